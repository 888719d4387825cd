"""Make figures and write them as PNG files. matplotlib is optional, and imported only for a figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import OctavoError

_DOTS_PER_INCH = 120


def check_plot(path: Path) -> None:
    """Check in advance that a picture can be written.

    Raise OctavoError if matplotlib is not installed, the name does not end in .png, or the folder does not exist.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as problem:
        raise OctavoError("Pictures need matplotlib: pip install matplotlib.") from problem
    if path.suffix.lower() != ".png":
        raise OctavoError(f"{path} is not a PNG file's name: give one that ends in .png.")
    if not path.parent.is_dir():
        raise OctavoError(f"There is no folder {path.parent} to write {path.name} in.")


def new_figure(width: float, height: float) -> Any:
    """Create an empty figure that opens no window. Sizes are in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Any, path: Path) -> None:
    """Write a figure as a PNG file. Raise OctavoError if that fails."""
    try:
        figure.savefig(path, dpi=_DOTS_PER_INCH, format="png")
    except OSError as problem:
        raise OctavoError(f"{path} cannot be written: {problem.strerror or problem}.") from problem
