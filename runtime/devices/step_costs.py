"""Measure once on each machine from how many tokens on selecting rows takes no longer than reading all of them.

Selecting pays from some length on that depends on the processor, the number of threads, and the model's shape. It is
measured with an eighth of the rows: most heads select fewer, and only those with a flat attention more.

What is measured is kept beside the kernels, so that the same sequence gives the same numbers on a machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ...cpu_kernels.numba_support.kernel_cache import kernel_folder
from ...cpu_kernels.numba_support.machine import cpu_name
from ...errors import OctavoError
from ...system.files import keep_in_json, read_json
from ...system.processors import look
from ...version import __version__
from ..cache.kv_cache import KVCache
from ..document.cache_layer import CacheLayer
from ..document.index import Index, whole_layer
from ..document.stored_rows import rows_format
from ..methods import DEFAULT_BUDGET
from ..methods.attention import DENSE_ATTENTION, Attention
from ..methods.auto import SHORT, Auto
from ..methods.method import Assignment, Method
from .random_layers import RandomLayers, as_rows, random_numbers

#: Tokens to measure at, from just above those that are always read whole.
LENGTHS = SHORT + 256, 2 * SHORT, 4 * SHORT

#: Where selecting does not pay so far, as with many cores or much bandwidth: measured until it pays.
LONGER = 8 * SHORT, 16 * SHORT

#: The lengths that may have been measured.
_MEASURED = [LENGTHS + LONGER[:n] for n in range(len(LONGER) + 1)]

#: Bytes of keys and values of a pass: more than most caches hold.
_BYTES = 48 << 20

#: Passes of each kind, in turns, after one to warm up.
_REPEATS = 8

#: Selecting pays if it takes at most this share of the time to read everything.
_PAYS = 1.03


#: Cores that others may use while costs are measured that are kept.
_MOST_OTHER_WORK = 0.25


@dataclass(frozen=True)
class StepCosts:
    """Time of one layer's attention for one token, on one machine.

    Parameters
    ----------
    tokens : tuple of int
        Tokens in the cache, rising.
    dense, selecting : tuple of float
        Microseconds where all rows are read, and where an eighth of them is selected.
    """

    tokens: tuple[int, ...]
    dense: tuple[float, ...]
    selecting: tuple[float, ...]

    @property
    def selects_from(self) -> int | None:
        """Return the tokens from which on selecting takes no longer: SHORT, a later length, or None for no length."""
        pays = [selecting <= _PAYS * dense for selecting, dense in zip(self.selecting, self.dense, strict=True)]
        if not pays[-1]:
            return None
        first = max((i + 1 for i, here in enumerate(pays) if not here), default=0)
        return self.tokens[first] if first else SHORT

    def and_at(self, n_tokens: int, dense: float, selecting: float) -> StepCosts:
        """Return these costs and those at a higher number of tokens."""
        return StepCosts((*self.tokens, n_tokens), (*self.dense, dense), (*self.selecting, selecting))


def measure(layer: CacheLayer, n_threads: int) -> StepCosts:
    """Measure the costs for layers of this shape."""
    numbers, costs = random_numbers(), StepCosts((), (), ())
    name, parameters = Auto().choose()
    selecting = Attention(name, {**parameters, "most": DEFAULT_BUDGET, "dense": 0}).new_method()
    with ThreadPoolExecutor(n_threads) as pool:
        for n_tokens in LENGTHS + LONGER:
            if n_tokens in LONGER and costs.selects_from is not None:
                break
            document = _document(layer, n_tokens, numbers, max(2, _BYTES // (n_tokens * layer.row_bytes)))
            _share_codes(layer, document, selecting)
            rows = [(stored.keys, stored.values) for stored in document.layers]
            methods = DENSE_ATTENTION.new_method(), selecting
            both = [RandomLayers(layer, rows, method, n_threads, document=document) for method in methods]
            turns = [[layers.seconds(pool) for layers in both] for _ in range(_REPEATS + 1)]
            best = np.min(turns[1:], axis=0) * 1e6  # other programs only add to it
            costs = costs.and_at(n_tokens, *(round(float(us), 1) for us in best))
    return costs


def _document(layer: CacheLayer, n_tokens: int, numbers: np.ndarray, n_layers: int) -> Index:
    """Return a document of random rows, which begin at another number in each layer."""
    dtype, sizes = rows_format(layer.shape)
    layers = []
    for number in range(n_layers):
        shapes = [(layer.n_kv_head, n_tokens, size) for size in sizes]
        keys, values = (
            np.resize(numbers.view(dtype)[64 * (2 * number + i) :][: math.prod(shape)], shape)  # copies what it gets
            for i, shape in enumerate(shapes)
        )
        keys = as_rows(layer.kv_type, layer.head_dim, keys)
        if not layer.latent:
            values = as_rows(layer.kv_type, layer.shape.value_dim, values)
        layers.append(whole_layer(keys, values, 0, split=layer.split))
    return Index(np.zeros(n_tokens, np.int32), layers)


def _share_codes(layer: CacheLayer, document: Index, method: Method) -> None:
    """Have all layers of a document take the extras of its first layer: to make them for each takes too long."""
    heads = np.arange(layer.n_kv_head)
    cache = KVCache([layer], len(document.tokens), [Assignment(method, heads, np.ones(len(heads)))])
    cache.table.connect()
    cache.attach(first := Index(document.tokens, document.layers[:1]))
    for name, kept in first.extras.items():
        document.extras[name] = dict.fromkeys(range(len(document.layers)), kept[0])


def costs_path() -> Path:
    """Return the file with the costs of all shapes."""
    return kernel_folder() / "step-costs.json"


def _selecting(layers: Sequence[CacheLayer]) -> CacheLayer:
    """Return a layer that stands for those that select: the first one without a sliding window."""
    return next((layer for layer in layers if not layer.window), layers[0])


def _key(layers: Sequence[CacheLayer], n_threads: int) -> str:
    """Return the name of a machine and a model's shape in the file."""
    layer = _selecting(layers)
    shape = layer.shape
    rows = f"{'latent ' if shape.latent else ''}{shape.kv_type} rows of {shape.head_dim} and {shape.value_dim}"
    model = f"{layer.n_kv_head} KV heads, groups of {shape.group}, {rows}"
    return f"octavo {__version__}, {cpu_name()}, {n_threads} threads: {model}, selecting {DEFAULT_BUDGET:g}"


def kept_costs(layers: Sequence[CacheLayer], n_threads: int) -> StepCosts | None:
    """Return the costs that were measured for a model's layers; None if they were not."""
    with suppress(OctavoError, OSError, KeyError, TypeError, ValueError):
        kept = read_json(costs_path())[_key(layers, n_threads)]
        tokens = tuple(kept["tokens"])
        times = [tuple(map(float, kept[name])) for name in ("dense", "selecting")]
        if tokens in _MEASURED and all(len(each) == len(tokens) for each in times):
            return StepCosts(tokens, *times)
    return None


def keep_costs(layers: Sequence[CacheLayer], n_threads: int) -> StepCosts:
    """Measure the costs, and keep them if the cache folder can be written and others left the cores alone meanwhile.

    Beside other work selecting may seem never to pay; then the next document's index measures again.
    """
    before = look()
    costs = measure(_selecting(layers), n_threads)
    if before.cores_of_others(look()) <= _MOST_OTHER_WORK:
        keep_in_json(costs_path(), _key(layers, n_threads), asdict(costs))
    return costs
