"""Options about who may ask a server, and where it listens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import options
from .option_types import WholeNumber

if TYPE_CHECKING:
    from ..serve.http.access import Access


def _access(
    host: str,
    port: int,
    api_key: str | None,
    allowed_hosts: tuple[str, ...],
    allowed_origins: tuple[str, ...],
    max_upload: int = 256,
) -> Access:
    """Gather the options of these names."""
    from ..serve.http.access import Access

    return Access(host, port, api_key, allowed_hosts, allowed_origins, max_upload << 20)


def access_options(port: int) -> Callable[[Any], Any]:
    """Return a decorator that adds the options, as one `access`.

    Parameters
    ----------
    port : int
        The default port.
    """
    return options.gathered(
        "access",
        _access,
        options.option(
            "--host",
            env="HOST",
            default="127.0.0.1",
            show_default=True,
            help="Address to listen at; beyond this machine a key is needed.",
        ),
        options.option(
            "--port",
            env="PORT",
            type=WholeNumber(0, 65535),
            default=port,
            show_default=True,
            help="Port; 0 for any.",
        ),
        options.option(
            "--api-key",
            env="API_KEY",
            help="What requests must bring, as a bearer token.  A variable keeps it out of the shell's history.",
        ),
        options.option(
            "--allow-host",
            "allowed_hosts",
            env="ALLOW_HOST",
            multiple=True,
            metavar="NAME",
            help="A name by which the server may be asked, besides addresses and localhost; may be given again.",
        ),
        options.option(
            "--allow-origin",
            "allowed_origins",
            env="ALLOW_ORIGIN",
            multiple=True,
            metavar="ORIGIN",
            help="Pages of other sites or programs that may ask, such as app://obsidian.md or chrome-extension://*; "
            "may be given again.",
        ),
    )
