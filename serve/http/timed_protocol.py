"""Close connections whose requests do not come."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

#: Seconds that the head of a request may take.
_LONGEST = 30.0


class TimedProtocol(H11Protocol):
    """uvicorn's protocol, which waits for ever for the rest of a request's head."""

    _alarm: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin a connection."""
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Receive bytes of requests."""
        if not self._is_answering:
            self._expect()
        super().data_received(data)
        if self._is_answering:
            self._calm()

    def connection_lost(self, exc: Exception | None) -> None:
        """End a connection."""
        self._calm()
        super().connection_lost(exc)

    @property
    def _is_answering(self) -> bool:
        """Return whether the head of a request has come, and its answer has not ended."""
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete

    def _expect(self) -> None:
        """Close the connection if the head of a request is not whole in time."""
        if self._alarm is None:
            self._alarm = self.loop.call_later(_LONGEST, self.transport.close)

    def _calm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
