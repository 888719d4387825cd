"""Documents that a request names, and that messages name or bring along."""

from __future__ import annotations

import base64
import binascii

from ..http.api_error import RequestError
from ..http.server import Server


class Attachments:
    """The documents of a conversation, each once, however often it is named.

    Parameters
    ----------
    server : Server
        Where documents are read.
    named : str or list of str, optional
        Ids, names or patterns of documents that the request names beside its messages.
    """

    def __init__(self, server: Server, named: str | list[str] | None = None) -> None:
        self._server = server
        self.documents = list(dict.fromkeys([named] if isinstance(named, str) else named or ()))

    def name(self, reference: str) -> None:
        """Take a document that a message names."""
        if reference not in self.documents:
            self.documents.append(reference)

    async def bring(self, name: str | None, data: str) -> None:
        """Take a document that a message brings along, and wait until it is read.

        Parameters
        ----------
        name : str, optional
            What it is called.
        data : str
            Its bytes in base64, as a data URL or alone.

        Raises
        ------
        RequestError
            It is not base64, or cannot be read.
        """
        try:
            content = base64.b64decode(data.rpartition(",")[2], validate=True)
        except (binascii.Error, ValueError) as problem:
            raise RequestError("A file's data is no base64.", param="messages") from problem
        await self.bring_bytes(name or "document", content)

    async def bring_bytes(self, name: str, content: bytes) -> None:
        """Take a document's bytes, and wait until it is read."""
        document_id = await self._server.documents.add_bytes(name, content)
        self.name(document_id)
        await self._server.documents.wait(document_id)
