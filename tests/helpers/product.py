"""The product's files: the packages and modules that the wheel ships, as they lie in the tree."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
#: pyproject.toml, parsed.
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
#: The top-level folders that are packages. tests/ and benchmarks/ have no __init__.py.
FOLDERS = sorted(path.parent for path in ROOT.glob("*/__init__.py"))
#: Every Python file of the product.
MODULES = sorted(
    {*ROOT.glob("*.py"), *(path for folder in FOLDERS for path in folder.rglob("*.py"))} - {ROOT / "setup.py"}
)


def name(path: Path) -> str:
    """Return a module's path below the root, with slashes."""
    return path.relative_to(ROOT).as_posix()
