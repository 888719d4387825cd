"""Choose the device that attention runs on."""

from __future__ import annotations

from ...cpu_kernels.numba_support.shape import F16, Q4_0
from ...errors import OctavoError
from ...metal.gpu import is_available
from ...metal.shader_library import has_method
from ...settings import check_device
from ..methods.attention import Attention
from . import AUTO, CPU, METAL
from .cpu_device import CpuDevice
from .metal_device import MetalDevice
from .protocol import Device


def choose(name: str, attention: Attention, kv_type: str = F16) -> Device:
    """Return the device of a name.

    Parameters
    ----------
    name : str
        One of DEVICES (settings.py). "auto" is Metal on Apple silicon if Metal has the attention and the rows, and
        otherwise the CPU.

    Raises
    ------
    OctavoError
        The device does not exist, or lacks the attention or the rows.
    """
    check_device(name)
    if name == CPU or (name == AUTO and not is_available()):
        return CpuDevice()
    method, on_metal = metal_method(attention)
    if name == METAL and not on_metal:
        raise OctavoError(f'The Metal kernels do not have {method}: use `device="cpu"`, or another attention.')
    if name == METAL and kv_type == Q4_0:
        raise OctavoError('The Metal kernels do not have rows of q4_0: use `device="cpu"`, or `cache_type="q8_0"`.')
    return MetalDevice() if on_metal and kv_type != Q4_0 else CpuDevice()


def metal_method(attention: Attention) -> tuple[str, bool]:
    """Return the name of an attention's method on Metal, and whether Metal supports it with its parameters."""
    attention = attention.resolve_for(None, on_metal=True)
    duo, plan = attention.duo, attention.plan
    methods = [attention.new_method(), *([duo.streaming(plan)] if plan and duo else [])]
    return attention.method, has_method(attention.method) and all(method.on_metal for method in methods)
