"""The speed of a report: `octavo bench` at three depths with all methods, each depth a run of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..convert.plan.recall_texts import SHIPPED_NOVEL
from ..documents.extract import extract_document
from ..progress import Progress
from ..runtime.llama import Llama
from ..runtime.load_model import load_model
from ..runtime.methods import AUTO, DENSE, LLAMA_CPP, METHODS, method_class
from ..runtime.methods.attention import Attention
from ..runtime.store.model_library import Library
from ..settings import ModelSettings
from ..system.free_memory import free_memory
from .bench import BenchSettings, sweep
from .pace import Pace, longest_within
from .peer_table import PEERS
from .report import Piece

#: Depths to measure, the deepest first; the first three that fit context, memory and time.
_DEPTHS: tuple[tuple[int, ...], ...] = (
    (2048, 8000, 32000),
    (2048, 8000, 16000),
    (2048, 4096, 8000),
    (1024, 2048, 4096),
    (256, 512, 1024),
)

#: Engines that read a text and keep all of its keys and values: llama.cpp's two, dense, and the index's reader.
_READERS = 4

#: Share of the free memory that their keys and values may take.
_OF_MEMORY = 0.5

#: How often a peer reads a text: with flash attention, without it, and to score it.
_OF_A_PEER = 3

#: llama.cpp reads so many times as long as octavo where it is slowest, and an engine decodes in turns with others.
_SLOWER = 2.0


def speed_pieces(settings: ModelSettings, how: Piece, depths: Sequence[int], progress: Progress) -> list[Piece]:
    """Choose depths that take about an hour, unless they are given, and return a piece for each.

    Parameters
    ----------
    settings : ModelSettings
        The located model.
    how : dict
        All of a piece but its depth: how tokens are decoded, and the names of peers.
    """
    bench = _bench_settings({**how, "depth": 0}, [])
    n_peers = len(bench.peers)
    llama = load_model(settings, progress.notice, measures=True, attention=DENSE)
    pace, room = Pace.of(llama, progress), _deepest(llama, bench)
    llama.close()

    def seconds(chosen: Sequence[int]) -> float:
        return sum(_seconds(pace, depth, bench, n_peers) for depth in chosen)

    def plans() -> Iterator[Sequence[int]]:
        fitting = [plan for plan in _DEPTHS if max(plan) <= room]
        yield from fitting or [_DEPTHS[-1][:1]]

    chosen = depths or longest_within(plans(), seconds)
    return [
        {"depth": depth, **how, "estimated_s": round(_seconds(pace, depth, bench, n_peers))}
        for depth in sorted(set(chosen))
    ]


def _deepest(llama: Llama, bench: BenchSettings) -> int:
    """Return the largest depth that context and memory hold."""
    of_memory = int(_OF_MEMORY * free_memory().n_bytes / (_READERS * llama.context.cache.row_bytes))
    return min(int(llama.n_ctx()), of_memory) - bench.n_tokens


def _seconds(pace: Pace, depth: int, bench: BenchSettings, n_peers: int) -> float:
    evicting = sum(method_class(name).evicts for name in METHODS)
    n_readings, n_engines = _READERS + evicting + _OF_A_PEER * n_peers, len(METHODS) + 3 + 2 * n_peers
    steps = pace.steps(bench.n_tokens * n_engines, depth) + bench.repetitions * bench.delay_s
    return _SLOWER * n_readings * pace.reading(depth) + steps


def measure_speed(settings: ModelSettings, library: Library, piece: Piece, progress: Progress) -> dict[str, Any]:
    """Measure a piece; return the content of `octavo bench -o json`."""
    names = [name for name in (LLAMA_CPP, DENSE, AUTO, *METHODS) if name not in piece["peers"]]
    bench = _bench_settings(piece, [Attention.parse(name) for name in dict.fromkeys(names)])
    text = (SHIPPED_NOVEL.name, extract_document(SHIPPED_NOVEL).text)
    return sweep(settings, library, text, bench, [settings.n_threads], [settings.cache_type], progress)


def _bench_settings(piece: Piece, attentions: list[Attention]) -> BenchSettings:
    return BenchSettings(
        [piece["depth"]],
        attentions,
        piece["predict"],
        n_question=piece["question"],
        repetitions=piece["repetitions"],
        delay_s=piece["delay_s"],
        alone=piece["alone"],
        peers={name: PEERS[name] for name in piece["peers"]},
    )
