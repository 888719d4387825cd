"""Who may ask the server, and how much."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address

from ...errors import OctavoError


@dataclass(frozen=True)
class Access:
    """Address of the server, and its access rules.

    Parameters
    ----------
    host : str
        Address to listen at. Addresses beyond this machine need a key.
    port : int
        Port to listen at; 0 for any free one.
    api_key : str, optional
        Key that requests need.
    hosts, origins : sequence of str
        Accepted host names, besides addresses and localhost; and patterns of the origins of accepted pages.
    most_bytes : int
        Largest body, in bytes.

    Raises
    ------
    OctavoError
        The key is empty or fits into no header, or the address is open to other machines and has no key.
    """

    host: str
    port: int
    api_key: str | None = field(repr=False)
    hosts: Sequence[str]
    origins: Sequence[str]
    most_bytes: int

    def __post_init__(self) -> None:
        if self.api_key is not None and not self.api_key.strip():  # all requests would have it
            raise OctavoError("The key is empty: give one with --api-key (OCTAVO_API_KEY), or neither.")
        if self.api_key is not None and not _fits_into_header(self.api_key):
            raise OctavoError(
                "No request can bring this key: it has characters beyond ASCII, or blanks around it. Give another one."
            )
        if self.api_key is None and not _is_loopback(self.host):
            raise OctavoError(f"Everyone who reaches {self.host} could ask: give a key with --api-key.")


def _fits_into_header(key: str) -> bool:
    return key.isascii() and key.isprintable() and key == key.strip()


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"
