"""Which probes a run reads, on constructed trees of /sys and with the kernel's answer replaced."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sonda.frameworks.collector.counters.perf_event import Event, PerfEventError
from sonda.probes import availability
from sonda.probes.counters import pmu


def refuse(events: Sequence[Event]) -> None:
    raise PerfEventError(errno.ENOENT, "no such event")


def states(root: Path, **options: Any) -> dict[str, tuple[str, str]]:
    return {one.name: (one.state, one.reason) for one in availability.probe_states(root, **options)}


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch) -> Callable[[pmu.TryGroup], None]:
    """Replace what the kernel says to a group of events."""
    real = pmu.pmu_state
    return lambda answer: monkeypatch.setattr(availability, "pmu_state", lambda root: real(root, answer))


def test_without_a_pmu_and_without_rapl_both_say_so(tmp_path: Path, trial: Callable[[pmu.TryGroup], None]) -> None:
    trial(refuse)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor : 0\nflags : fpu hypervisor\n")
    found = states(tmp_path)
    assert found["clock"][0] == found["os"][0] == found["memory"][0] == "ok"
    assert found["pmu"] == ("missing", "no PMU in this virtual machine")
    assert found["energy"][0] == "missing" and "RAPL" in found["energy"][1]


def test_a_run_says_where_its_counts_came_from(tmp_path: Path, trial: Callable[[pmu.TryGroup], None]) -> None:
    trial(refuse)
    perf = {"os": {"source": "perf", "errno": 0}, "pmu": {"groups": 3, "threads": 1, "stable": True}}
    found = states(tmp_path, counting=perf)
    assert found["os"] == ("ok", "kernel counters, inherited by every thread")
    assert found["pmu"] == ("ok", "3 groups of events in turn, one a step, inherited by every thread")
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/perf_event_paranoid").write_text("3")
    refused = {"os": {"source": "getrusage", "errno": errno.EACCES},
               "pmu": {"errno": errno.EINVAL, "event": "slots", "message": "Invalid argument"}}  # fmt: skip
    found = states(tmp_path, counting=refused)
    assert found["os"][0] == "ok" and "getrusage" in found["os"][1] and "paranoid is 3" in found["os"][1]
    assert found["pmu"] == ("dead", "slots: the PMU does not take this combination")


def test_what_is_there_but_not_read_is_off(tmp_path: Path, trial: Callable[[pmu.TryGroup], None]) -> None:
    trial(lambda events: None)
    zone = tmp_path / "sys/class/powercap/intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0\n")
    (zone / "energy_uj").write_text("123\n")
    found = states(tmp_path)
    assert found["pmu"][0] == found["energy"][0] == "off"
