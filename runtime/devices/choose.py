"""Choose the device that attention runs on."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ...cpu_kernels.numba_support.kernel_cache import kernel_folder
from ...cpu_kernels.numba_support.shape import F16, Q4_0
from ...errors import OctavoError
from ...metal.gpu import is_available
from ...metal.shader_library import has_method
from ...settings import check_device
from ...system.files import keep_in_json, read_json
from ..methods.attention import Attention
from . import AUTO, CPU, METAL
from .cpu_device import CpuDevice
from .metal_device import MetalDevice
from .protocol import Device


def choose(name: str, attention: Attention, kv_type: str = F16, model: str = "") -> tuple[Device, str]:
    """Return the device of a name, and on a Mac a sentence if "auto" is the CPU there.

    Parameters
    ----------
    name : str
        One of DEVICES (settings.py). "auto" is Metal on Apple silicon if Metal has the attention and the rows, and
        unless the CPU's steps of this model were measured to be faster; otherwise it is the CPU.
    model : str
        The model's file.

    Raises
    ------
    OctavoError
        The device does not exist, or lacks the attention or the rows.
    """
    check_device(name)
    if name == CPU or (name == AUTO and not is_available()):
        return CpuDevice(), ""
    method, on_metal = metal_method(attention)
    if name == METAL and not on_metal:
        raise OctavoError(f'The Metal kernels do not have {method}: use `device="cpu"`, or another attention.')
    if name == METAL and kv_type == Q4_0:
        raise OctavoError('The Metal kernels do not have rows of q4_0: use `device="cpu"`, or `cache_type="q8_0"`.')
    if not on_metal or kv_type == Q4_0:
        lacking = method if not on_metal else "rows of q4_0"
        return CpuDevice(), f"The Metal kernels do not have {lacking}, so that attention runs on the CPU."
    if name == AUTO and is_faster_on_cpu(model):
        return CpuDevice(), "Attention runs on the CPU, which `octavo doctor --metal` measured to be faster."
    return MetalDevice(), ""


def metal_method(attention: Attention) -> tuple[str, bool]:
    """Return the name of an attention's method on Metal, and whether Metal supports it with its parameters."""
    attention = attention.resolve_for(None, on_metal=True)
    duo, plan = attention.duo, attention.plan
    methods = [attention.new_method(), *([duo.streaming(plan)] if plan and duo else [])]
    return attention.method, has_method(attention.method) and all(method.on_metal for method in methods)


def measured_steps_path() -> Path:
    """Return the file with the times of steps on each device, by model."""
    return kernel_folder() / "device-steps.json"


def keep_measured_steps(model: str, milliseconds: Mapping[str, float]) -> None:
    """Keep what a step of a model takes on each device of this machine, for `choose`."""
    keep_in_json(measured_steps_path(), _key(model), dict(milliseconds))


def is_faster_on_cpu(model: str) -> bool:
    """Return whether steps of a model were measured, and took less time on the CPU than on Metal."""
    with suppress(OctavoError, OSError, KeyError, TypeError):
        kept = read_json(measured_steps_path())[_key(model)]
        return bool(kept[CPU] < kept[METAL])
    return False


def _key(model: str) -> str:
    """Return what a model's file is known by; an update has another size in all likelihood."""
    path = Path(model)
    return f"{path.resolve()}, {path.stat().st_size} bytes"
