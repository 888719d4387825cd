"""The error that refuses a request."""

from __future__ import annotations

import re

from ..errors import OctavoError, PromptError

#: The folders of an absolute path.
_FOLDERS = re.compile(r"(?<![\w/.])(?:~|[A-Z]:)?[/\\](?:[^/\\\n:;,\"']++[/\\])++")


class RequestError(OctavoError):
    """A refused request; each API writes it in its own form.

    Parameters
    ----------
    message : str
        The reason, a sentence.
    status : int
        HTTP status.
    code : str, optional
        OpenAI's code, such as "model_not_found".
    param : str, optional
        The wrong field.

    Attributes
    ----------
    fields : dict of str to int
        Further fields of the error.
    """

    def __init__(self, message: str, status: int = 400, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param
        self.fields: dict[str, int] = {}

    @property
    def kind(self) -> str:
        """Return OpenAI's type of the error."""
        kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
        return "server_error" if self.status >= 500 else kinds.get(self.status, "invalid_request_error")


def refusal_of(problem: BaseException) -> RequestError:
    """Return a problem as a refusal: of status 400 if the request is wrong, of 500 else."""
    if isinstance(problem, RequestError):
        return problem
    if isinstance(problem, PromptError):
        return RequestError(str(problem), param=problem.param)
    return RequestError(without_folders(str(problem)), 500)


def without_folders(sentence: str) -> str:
    """Return a sentence without the folders of the files that it names: clients need not know them."""
    return _FOLDERS.sub("", sentence)
