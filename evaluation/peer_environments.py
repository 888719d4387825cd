"""Install the packages of other engines, each in an environment of its own under octavo's cache folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

from ..errors import OctavoError
from .peer_table import Peer

#: The file of an environment that is complete.
_COMPLETE = "installed"


def environment_of(peer: Peer) -> Path | None:
    """Return the folder of a peer's environment; None if it needs only octavo's own."""
    import platformdirs

    if peer.package is None:
        return None
    folder = f"{peer.package.replace('==', '-')}-python{sys.version_info.major}.{sys.version_info.minor}"
    return Path(platformdirs.user_cache_dir("octavo")) / "peers" / folder


def is_installed(peer: Peer) -> bool:
    """Return whether a peer can start."""
    folder = environment_of(peer)
    return folder is None or (folder / _COMPLETE).exists()


def python_of(peer: Peer) -> str:
    """Return the Python that runs a peer."""
    folder = environment_of(peer)
    return sys.executable if folder is None else str(folder / "bin" / "python")


def install(peer: Peer) -> None:
    """Install a peer's package from its wheels.

    Raises
    ------
    OctavoError
        There is no wheel for this system, or no network.
    """
    folder = environment_of(peer)
    assert folder is not None
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    venv.create(folder, with_pip=False)
    command = [sys.executable, "-m", "pip", "--python", python_of(peer), "install", "--disable-pip-version-check"]
    command += ["--only-binary", ":all:", str(peer.package)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        shutil.rmtree(folder, ignore_errors=True)
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")] or done.stderr.splitlines()[-1:]
        reason = "".join(said[-1:]).removeprefix("ERROR: ").removesuffix(".")
        raise OctavoError(f"pip does not install {peer.package}: {reason}.")
    (folder / _COMPLETE).touch()
