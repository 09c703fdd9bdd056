"""Which probes a run reads, on constructed trees of /sys and with the kernel's answer replaced."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from sonda.probes import availability
from sonda.probes.perf_events import PerfEventError


class Refusing:
    def __init__(self, kind: int, config: int) -> None:
        raise PerfEventError(errno.ENOENT, "no such event")


class Counting:
    def __init__(self, kind: int, config: int) -> None:
        pass

    def __enter__(self) -> Counting:
        return self

    def __exit__(self, *failure: object) -> None:
        pass


def states(root: Path, **options: bool) -> dict[str, tuple[str, str]]:
    return {one.name: (one.state, one.reason) for one in availability.probe_states(root, **options)}


def test_without_a_pmu_and_without_rapl_both_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "PerfEvent", Refusing)
    found = states(tmp_path, virtual=True)
    assert found["clock"][0] == found["os"][0] == found["memory"][0] == "ok"
    assert found["counters"] == ("missing", "no PMU in this virtual machine")
    assert found["energy"][0] == "missing" and "RAPL" in found["energy"][1]


def test_what_is_there_but_not_read_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "PerfEvent", Counting)
    zone = tmp_path / "sys/class/powercap/intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0\n")
    (zone / "energy_uj").write_text("123\n")
    found = states(tmp_path)
    assert found["counters"][0] == found["energy"][0] == "off"
