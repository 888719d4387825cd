"""Keep responses in memory, so that a later request can name one, or an item of one."""

from __future__ import annotations

import json
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from .request_error import RequestError

#: Most characters of all responses that are kept; the oldest ones are forgotten first.
_MOST_CHARACTERS = 64_000_000

#: The beginnings of the ids of items, by type, as OpenAI's API has them.
_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}


class Item(dict[str, Any]):
    """An item of a conversation, which has an id. It is found as long as something that is kept holds it."""

    @classmethod
    def of(cls, stated: Mapping[str, Any]) -> Item:
        """Return a client's item as OpenAI's API lists it: with a type, an id, and a message's content in parts."""
        kind = str(stated.get("type") or "message")
        made = f"{_PREFIXES.get(kind, 'item')}_{uuid.uuid4().hex}"
        item = cls({**stated, "type": kind, "id": str(stated.get("id") or made)})
        if kind == "message":
            item.setdefault("status", "completed")
            if isinstance(text := item.get("content"), str):
                output = {"type": "output_text", "text": text, "annotations": []}
                item["content"] = [output if item.get("role") == "assistant" else {"type": "input_text", "text": text}]
        return item


class KeptResponse(NamedTuple):
    """A response, and the conversation up to its end.

    Parameters
    ----------
    response : dict
        The response, as clients see it.
    input, output : sequence of Item
        The items before the answer, and the items of the answer.
    documents : sequence of str
        Names of the conversation's documents.
    """

    response: dict[str, Any]
    input: Sequence[Item]
    output: Sequence[Item]
    documents: Sequence[str]

    @property
    def items(self) -> list[Item]:
        """Return the whole conversation."""
        return [*self.input, *self.output]

    @property
    def length(self) -> int:
        """Return about how many characters it takes."""
        return len(json.dumps([self.response, self.input]))


class KeptResponses:
    """Responses by id, the newest last, and their items."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[KeptResponse, int]] = OrderedDict()
        self._items: WeakValueDictionary[str, Item] = WeakValueDictionary()
        self._length = 0

    def keep(self, kept: KeptResponse) -> None:
        length = kept.length
        self._kept[kept.response["id"]] = kept, length
        self._items.update((item["id"], item) for item in kept.items)
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

    def item(self, name: str) -> Item:
        """Return an item of a response that is kept. Raise RequestError if there is none."""
        item = self._items.get(name)
        if item is None:
            message = (
                f"There is no item {name}: the server keeps the items of the last responses until it stops, unless "
            )
            raise RequestError(f'{message}they had "store": false. Send the item itself.', 404, "not_found", "input")
        return item

    def remove(self, name: str) -> None:
        """Forget a response. Raise RequestError if it is not kept."""
        self.get(name)
        self._length -= self._kept.pop(name)[1]
