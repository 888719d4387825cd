"""Sensors, read from folders as Linux shows them."""

import pytest

from octavo.system import sensors


def write(path, number):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{number}\n")


def test_times_throttled_are_summed_over_cores(tmp_path):
    for core, count in ((0, 3), (1, 4), (10, 5)):
        write(tmp_path / f"cpu{core}/thermal_throttle/core_throttle_count", count)
    write(tmp_path / "cpufreq/thermal_throttle/core_throttle_count", 100)
    assert sensors.times_throttled(tmp_path) == 12


def test_what_cannot_be_read_is_unknown(tmp_path, monkeypatch):
    assert sensors.times_throttled(tmp_path) is None
    assert not sensors.EnergyMeter(tmp_path).works
    monkeypatch.delattr(sensors.psutil, "sensors_temperatures", raising=False)
    assert sensors.temperature() is None


def test_energy_is_summed_over_packages_and_past_the_end_of_a_counter(tmp_path):
    for package, joules in ((0, 1), (1, 9)):
        write(tmp_path / f"intel-rapl:{package}/max_energy_range_uj", 9_999_999)
        write(tmp_path / f"intel-rapl:{package}/energy_uj", joules * 1_000_000)
    write(tmp_path / "intel-rapl:0:0/energy_uj", 5)  # a part of a package
    meter = sensors.EnergyMeter(tmp_path)
    assert meter.works
    before = meter.look()
    write(tmp_path / "intel-rapl:0/energy_uj", 3_500_000)
    write(tmp_path / "intel-rapl:1/energy_uj", 500_000)
    assert meter.joules_since(before) == pytest.approx(2.5 + 1.5)


def test_a_package_without_a_range_does_not_count(tmp_path):
    write(tmp_path / "intel-rapl:0/energy_uj", 5)
    assert not sensors.EnergyMeter(tmp_path).works


def test_this_process_holds_memory():
    assert sensors.peak_resident_bytes() > 1 << 20
