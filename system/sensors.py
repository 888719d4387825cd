"""Read this machine's sensors: temperature, throttling and energy, each where the system shows it to this user."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

#: Where Linux counts how often cores were throttled, and the joules that packages of cores took (RAPL).
_CORES, _POWER = Path("/sys/devices/system/cpu"), Path("/sys/class/powercap")


def temperature() -> float | None:
    """Return the temperature of the hottest sensor in degrees Celsius; None where none can be read."""
    found: dict[str, Any] = {}
    with suppress(AttributeError, OSError, RuntimeError):  # not on every system
        found = psutil.sensors_temperatures()
    return max((reading.current for readings in found.values() for reading in readings), default=None)


def times_throttled(cores: Path = _CORES) -> int | None:
    """Return how often this machine's cores were throttled since it started; None where it is not counted."""
    counts = [_number(path) for path in cores.glob("cpu[0-9]*/thermal_throttle/core_throttle_count")]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def peak_resident_bytes() -> int:
    """Return the most memory that this process has held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, Linux KiB


class EnergyMeter:
    """Count the energy that all packages of cores take, beside what other programs make them take.

    Parameters
    ----------
    folder : Path
        Linux' folder of power zones. Most systems show their counters to the administrator alone.
    """

    def __init__(self, folder: Path = _POWER) -> None:
        zones = {path: _number(path / "max_energy_range_uj") for path in sorted(folder.glob("intel-rapl:[0-9]"))}
        self._ranges = {path: top for path, top in zones.items() if top and self._counter(path) is not None}

    @staticmethod
    def _counter(zone: Path) -> int | None:
        return _number(zone / "energy_uj")

    @property
    def works(self) -> bool:
        """Whether there is a counter that this user may read."""
        return bool(self._ranges)

    def look(self) -> list[int]:
        """Return the counters, in microjoules."""
        return [self._counter(zone) or 0 for zone in self._ranges]

    def joules_since(self, before: list[int]) -> float:
        """Return the joules since an earlier look. A counter that has passed its range begins again at 0."""
        pairs = zip(before, self.look(), self._ranges.values(), strict=True)
        return sum((now - then) % (top + 1) for then, now, top in pairs) / 1e6


def _number(path: Path) -> int | None:
    """Read a file that holds one number; None if it cannot be read."""
    with suppress(OSError, ValueError):
        return int(path.read_text("ascii"))
    return None
