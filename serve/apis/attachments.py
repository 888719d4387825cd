"""Documents that a request names, and that its messages name or include."""

from __future__ import annotations

import binascii
from collections.abc import Sequence

from ..http.requests import aside
from ..request_error import RequestError
from ..services import Server

#: The refusal of a document that only an address names.
NO_URL = "octavo fetches no url: send the document itself, or upload it."


class Attachments:
    """The documents of a conversation, each once.

    Parameters
    ----------
    named : sequence of str
        Ids, names or patterns of documents in the request, outside its messages.

    Attributes
    ----------
    documents : list of str
        All of them, each once.
    titles : list of str
        What the messages call each document that they name or include; "" if nothing.
    """

    def __init__(self, server: Server, named: Sequence[str] = ()) -> None:
        self._server, self._named = server, named
        self.documents, self.titles, self._in_messages = list(named), list[str](), list[str]()

    def name(self, reference: str, title: str = "") -> None:
        """Add a document that a message names."""
        self._in_messages.append(reference)
        self.titles.append(title)
        if reference not in self.documents:
            self.documents.append(reference)

    async def numbers(self) -> dict[str, int]:
        """Return the number of each document by its id: its place in the messages, or after all of them."""
        known, n_blocks = await self._server.documents.look(), len(self._in_messages)
        ids = known.ids([*self._in_messages, *self._named])
        found: dict[str, int] = {}
        for number, named in enumerate(ids[:n_blocks]):
            for document_id in named:
                found.setdefault(document_id, number)
        others = dict.fromkeys(each for named in ids[n_blocks:] for each in named if each not in found)
        return found | {document_id: number for number, document_id in enumerate(others, n_blocks)}

    async def bring(self, name: str | None, data: str, title: str = "") -> str:
        """Add a document that a message includes, wait until it is read, and return its id.

        Parameters
        ----------
        name : str, optional
            Name of the document.
        data : str
            Bytes in base64, with or without the head of a data URL.

        Raises
        ------
        RequestError
            It is not base64, or cannot be read.
        """
        return await self.bring_bytes(name or "document", await aside(len(data), lambda: bytes_of(data)), title)

    async def bring_bytes(self, name: str, content: bytes, title: str = "") -> str:
        """Add a document from its bytes, wait until it is read, and return its id."""
        document_id = await self._server.documents.add_bytes(name, content)
        self.name(document_id, title)
        await self._server.documents.wait(document_id)
        return document_id


def bytes_of(data: str) -> bytes:
    """Return bytes from base64, with or without the head of a data URL. Raise RequestError if it is not base64."""
    try:
        return binascii.a2b_base64(data.rpartition(",")[2], strict_mode=True)
    except (binascii.Error, ValueError) as problem:
        raise RequestError("A file's data is not base64.", param="messages") from problem
