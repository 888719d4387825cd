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
        return spoken(super().__str__())


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
