"""The engines that `octavo bench --peers` knows, and the programs that `--peer` names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_FLASH_ATTENTION: tuple[dict[str, Any], ...] = ({"flash_attention": True}, {"flash_attention": False})


@dataclass(frozen=True)
class Peer:
    """Another engine.

    Parameters
    ----------
    script : str
        The module of `evaluation/peers` that drives it.
    package : str, optional
        Name and version of its package, as pip takes them; None if octavo's own environment has it.
    ways : tuple of dict
        Arguments of its ways to run. Each runs in a process of its own, and the faster one counts.
    arguments : dict
        Arguments of all ways.
    cache_type : str, optional
        The type of its keys and values, if it takes no other; None if it takes the one that a benchmark asks for.
    """

    script: str
    package: str | None = None
    ways: tuple[Mapping[str, Any], ...] = ({},)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    cache_type: str | None = None

    def ways_for(self, cache_type: str) -> list[dict[str, Any]]:
        """Return the arguments of each way to run. Keys and values of q8_0 and q4_0 need flash attention."""
        ways = [{**self.arguments, **way} for way in self.ways]
        return [way for way in ways if cache_type == "f16" or way.get("flash_attention", True)]


_OPENVINO = "openvino-genai==2026.4.1"

#: The words of `--peers`.
PEERS = {
    "llama.cpp": Peer("c_api", None, _FLASH_ATTENTION, {"module": "llama_cpp"}),
    "ik": Peer("c_api", "ik-llama-cpp-python==0.1.5", _FLASH_ATTENTION, {"module": "ik_llama_cpp._ctypes_api"}),
    "xllamacpp": Peer("llama_server", "xllamacpp==2026.10.11549", _FLASH_ATTENTION),
    "openvino": Peer("open_vino", _OPENVINO, cache_type="u8"),
    "openvino-sparse": Peer("open_vino", _OPENVINO, arguments={"sparse": True}, cache_type="u8"),
    "mistralrs": Peer("mistral_rs", "mistralrs==0.9.5"),
}


def peer_at(program: Path) -> Peer:
    """Return the peer that is a llama-bench or a llama-server, by the name of its file."""
    script = "llama_bench" if "bench" in program.stem else "llama_server"
    return Peer(script, None, _FLASH_ATTENTION, {"program": str(program)})
