"""Make figures and write them as PNG files. matplotlib is optional, and is imported when a figure is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import OctavoError

_DOTS_PER_INCH = 120


def check_plot(path: Path) -> None:
    """Check that a picture can be written, before anything is measured for it.

    Parameters
    ----------
    path : Path
        File to write later.

    Raises
    ------
    OctavoError
        If matplotlib is not installed, the name does not end in .png, or the folder does not exist.
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
    """Create an empty figure that opens no window.

    Parameters
    ----------
    width, height : float
        Size in inches.

    Returns
    -------
    matplotlib.figure.Figure
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Any, path: Path) -> None:
    """Write a figure as a PNG file.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Figure to write.
    path : Path
        File to write.

    Raises
    ------
    OctavoError
        If the file cannot be written.
    """
    try:
        figure.savefig(path, dpi=_DOTS_PER_INCH, format="png")
    except OSError as problem:
        raise OctavoError(f"{path} cannot be written: {problem.strerror or problem}.") from problem
