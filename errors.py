"""The exceptions that users see, and how its sentences name settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

#: A setting in a sentence: an argument of Python's, perhaps with a value, such as `n_ctx` or `device="cpu"`.
_SETTING = re.compile(r"`(\w+)(?:=\"?([^`\"]*)\"?)?`")

#: Other names of settings, while a front end uses them.
_names: dict[str, str] = {}


class OctavoError(Exception):
    """A problem that a user can act on. Its message is a sentence that says what to do.

    The sentence names settings as Python's arguments, in backticks; the command line names its options.
    """

    def __str__(self) -> str:
        return spoken(shown(super().__str__()))


class NoRoom(OctavoError):
    """Disk or memory do not suffice now: the same may succeed later."""


class PromptError(OctavoError):
    """Messages, tools or a schema of which no prompt can be made.

    Parameters
    ----------
    message : str
        The reason, a sentence.
    param : str, optional
        The wrong field of a request.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


#: Halves of characters (lone surrogates), and those that stand for the bytes of a file's name that are not UTF-8.
_HALF, _BYTE = re.compile("[\ud800-\udfff]"), re.compile("[\udc80-\udcff]")


def well_formed(text: str) -> str:
    """Return a text with � for each half of a character, so that it can be printed, sent and tokenized."""
    return text if text.isascii() else _HALF.sub("\ufffd", text)


def shown(name: str) -> str:
    r"""Return a file's name, or a sentence with names, to print and to send: bytes beyond UTF-8 look like \xe9."""
    return name if name.isascii() else well_formed(_BYTE.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", name))


def failure(name: str, problem: Exception) -> str:
    """Return why a document cannot be used, in a sentence, whatever exception it was."""
    if isinstance(problem, OctavoError):
        return str(problem)
    if isinstance(problem, MemoryError):
        return f"{name} could not be read, as memory ran out: close other programs, or give a smaller model."
    message = shown(": ".join(filter(None, (type(problem).__name__, " ".join(str(problem).split())))))
    return f"{name} could not be read: {message}. Please report this."


def spoken(sentence: str) -> str:
    """Return a sentence whose settings have the names that the user knows."""

    def name(found: re.Match[str]) -> str:
        if (option := _names.get(found[1])) is None:
            return found[0]
        return option if found[2] is None else f"{option} {found[2]}"

    return _SETTING.sub(name, sentence)


@contextmanager
def naming(names: Mapping[str, str]) -> Iterator[None]:
    """Give settings other names meanwhile, in all threads.

    Parameters
    ----------
    names : mapping of str to str
        The name that the user knows, by that of Python's argument.
    """
    before = dict(_names)
    _names.update(names)
    try:
        yield
    finally:
        _names.clear()
        _names.update(before)
