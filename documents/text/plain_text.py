"""Read text files: evaluation data, and the texts that octavo ships."""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import OctavoError

#: Folder of the texts that octavo ships.
EXAMPLES = Path(__file__).parents[2] / "examples"

#: The part of *Emma* that octavo ships, some 40,000 tokens: a novel to read, to time with, and to hide things in.
SHIPPED_NOVEL = EXAMPLES / "emma.txt"


def read_utf8(path: str | os.PathLike[str]) -> str:
    """Read a UTF-8 text file, without its byte order mark.

    Raises
    ------
    OctavoError
        The file cannot be opened, is not UTF-8, or is empty. The message names the position.
    """
    path = Path(path)
    if path.is_dir():
        raise OctavoError(f"{path} is a folder: give a text or Markdown file.")
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise OctavoError(f"The document {path} cannot be opened: {problem.strerror}.") from problem
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        raise OctavoError(
            f"{path} is not UTF-8 text: byte 0x{content[problem.start]:02x} in line {line}. Save it as UTF-8."
        ) from problem
    if not text.strip():
        raise OctavoError(f"{path} is empty: there is nothing to read in it.")
    return text
