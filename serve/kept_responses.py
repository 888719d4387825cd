"""Keep responses in memory, so that a later request can name one in place of the conversation before it."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from .request_error import RequestError

#: Most characters of all conversations that are kept; the oldest ones are forgotten first.
_MOST_CHARACTERS = 64_000_000


class KeptResponse(NamedTuple):
    """A response, and the conversation up to its end: items of input and output, and the names of documents."""

    response: dict[str, Any]
    items: Sequence[dict[str, Any]]
    documents: Sequence[str]

    @property
    def length(self) -> int:
        """Return about how many characters it takes."""
        return len(json.dumps(self.items)) + len(json.dumps(self.response))


class KeptResponses:
    """Responses by id, the newest last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[KeptResponse, int]] = OrderedDict()
        self._length = 0

    def keep(self, kept: KeptResponse) -> None:
        """Keep a response."""
        length = kept.length
        self._kept[kept.response["id"]] = kept, length
        self._length += length
        while self._length > _MOST_CHARACTERS:
            self._length -= self._kept.popitem(last=False)[1][1]

    def get(self, name: str) -> KeptResponse:
        """Return a response. Raise RequestError if it is not kept."""
        if name not in self._kept:
            raise RequestError(
                f"There is no response {name}: the server keeps the last ones until it stops.", 404, "not_found"
            )
        self._kept.move_to_end(name)
        return self._kept[name][0]

    def remove(self, name: str) -> None:
        """Forget a response. Raise RequestError if it is not kept."""
        self.get(name)
        self._length -= self._kept.pop(name)[1]
