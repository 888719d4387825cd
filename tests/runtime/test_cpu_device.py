"""The memory that threads of the CPU work in."""

import pytest

from octavo.cpu_kernels.numba_support.vector import CACHE_LINE
from octavo.runtime.cache.kv_cache import KVCache
from octavo.runtime.devices.cpu_device import CpuDevice
from octavo.runtime.devices.protocol import ExecutorArguments
from octavo.runtime.document.cache_layer import CacheLayer
from octavo.runtime.graph.attention_nodes import AttentionNode
from octavo.runtime.methods.assignment import assign
from octavo.runtime.methods.attention import Attention


@pytest.mark.parametrize("n_threads", [1, 2, 7])
@pytest.mark.parametrize("head_dim", [64, 80, 256])
def test_each_thread_works_from_a_cache_line_on(head_dim, n_threads):
    device, layers = CpuDevice(), [CacheLayer(1, head_dim, 0, "f16", 3)]
    cache = KVCache(layers, 64, assign(Attention.parse("dense", budget=1.0), layers), device.new_memory())
    nodes = [AttentionNode(head_dim, 3, 1, 0, 1.0, 0.0, 0, True)]
    executor = device.new_executor(ExecutorArguments(cache, nodes, [layers[0].shape], 512, n_threads))
    work = executor._work[0]
    for name in ("queries", "partials", "scratch", "scratch_bytes"):
        assert work[name] % CACHE_LINE == 0
