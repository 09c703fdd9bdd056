"""Validation of the PMU and of callgrind: machine-code loops, and constructed counts of other processors."""

from __future__ import annotations

import ctypes
import errno
import json
from pathlib import Path
from typing import Any

import pytest

from fake_kernel import FakeKernel
from sonda.frameworks.collector.counters.perf_event import Event, PerfEventError
from sonda.probes.callgrind.valgrind import valgrind_version
from sonda.probes.counters.pmu import CountingPlan, plan_counting
from sonda.probes.machine_code import MachineCode
from sonda.probes.validation.callgrind import callgrind_trials, judge_modelled
from sonda.probes.validation.microbenchmarks import COPY, count_work, machine_loops
from sonda.probes.validation.pmu import FLOP_EVENTS, INSTRUCTIONS, known_work, pmu_trials
from sonda.record.errors import SondaError
from validation_answers import quiet

# ---- loops --------------------------------------------------------------------------------------------------------


def test_loops_do_what_they_are_said_to_do() -> None:
    loops = machine_loops(1 << 16)
    for name, size in (("count", 1000), ("memory", 1000), ("copy", 1 << 16)):
        loops[name](size)
    # mov rax, rdi; add rax, rsi; ret
    add = MachineCode(bytes.fromhex("4889f8 4801f0 c3"), 2)
    assert add(40, 2) == 42
    source, target = (ctypes.c_char * 64)(*range(64)), (ctypes.c_char * 64)()
    MachineCode(COPY, 3)(ctypes.addressof(target), ctypes.addressof(source), 7)
    assert target.raw == bytes(range(56)) + bytes(8)


def test_machine_code_is_refused_on_other_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(OSError, match="x86-64"):
        machine_loops()


def has_valgrind() -> bool:
    try:
        valgrind_version()
    except SondaError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.skipif(not has_valgrind(), reason="needs valgrind 3.19 or later on x86-64")
def test_callgrind_counts_loops_exactly() -> None:
    found = {(one.check, one.expected): one for one in callgrind_trials(quiet)}
    assert [one.state for one in found.values()] == ["trusted"] * 8, found
    exact = [one for (check, _), one in found.items() if "misses" not in check]
    assert len(exact) == 6 and {one.deviation for one in exact} == {0.0}


def test_modelled_slopes_that_are_off_differ() -> None:
    """Constructed: markers that cost more the second time, as naive ones do."""
    counted = [("count", size, {"Ir": 2.02 * size + 5000, "Bc": size}) for size in (100_000, 200_000)]
    counted += [("memory", size, {"Ir": 4 * size, "Dr": size, "Dw": size}) for size in (100_000, 200_000)]
    counted += [("copy", size, {"Ir": 6 * size // 8, "DLmr": size // 64, "DLmw": 0}) for size in (1 << 20, 2 << 20)]
    found = list(judge_modelled(counted))  # type: ignore[arg-type]
    wrong = {one.check: one.deviation for one in found if one.state != "trusted"}
    assert wrong == {
        "instructions of a loop": pytest.approx(0.01),
        "store misses of a copy larger than the last level": 1.0,
    }


# ---- the PMU ------------------------------------------------------------------------------------------------------


def refusing_plan() -> CountingPlan:
    raise SondaError("no PMU in this virtual machine", "use a bare-metal machine")


def has_pmu() -> bool:
    try:
        plan_counting()
    except SondaError:
        return False
    return True


@pytest.mark.skipif(not has_pmu(), reason="needs a PMU")
def test_the_pmu_counts_loops() -> None:
    found = {one.check: one for one in pmu_trials(quiet)}
    assert found["instructions of a loop"].state == "trusted", found["instructions of a loop"]


def test_without_a_pmu_every_trial_has_the_reason() -> None:
    found = list(pmu_trials(quiet, make_plan=refusing_plan))
    assert len(found) >= 6
    assert {(one.state, one.reason, one.remedy) for one in found} == {
        ("missing", "no PMU in this virtual machine", "use a bare-metal machine")
    }


class Processor:
    """Constructed: a kernel with a PMU, whose loops let happen what such a loop executes, and Python around it."""

    def __init__(self, overcount: float = 1.0, share: float = 1.0, python: int = 12_345) -> None:
        self.kernel = FakeKernel()
        self.overcount, self.share, self.python = overcount, share, python

    def ask(self, kind: str, request: dict[str, Any], **_: object) -> dict[str, Any]:
        assert kind == "hardware"
        events = [Event(**one) for one in request["events"]]
        [(name, sizes)] = request["sizes"].items()
        try:
            found = count_work(events, {name: lambda size: self.work(name, size)}, {name: sizes}, 3, self.kernel)
        except PerfEventError as error:
            return {"errno": error.errno, "event": error.event}
        return {"counted": json.loads(json.dumps(found))}

    def work(self, name: str, size: int) -> None:
        # By config, as the constants of the kernel's header and of the vendors' manuals have them.
        counts = {
            "count": {1: 2 * size + 2, 4: size, 0: size, 256: 0},
            "memory": {1: 4 * size + 2, 0: size, 256: size},
            # 512-bit fused multiply-adds: a count each for 16 lanes, twice.
            "product": {0x80C7: 2 * size**3 // 16, 0x02C7: 0, 0x08C7: 0, 0x20C7: 0, 0x0F03: 2 * size**3},
            "copy": {3: 2 * size // 64},
        }[name]
        happened = {config: int(self.overcount * count) + self.python for config, count in counts.items()}
        self.kernel.happen(happened, time=1_000_000, share=self.share)


def cpuinfo(root: Path, vendor: str) -> Path:
    (root / "proc").mkdir(parents=True)
    text = f"processor : 0\nvendor_id : {vendor}\ncpu family : 6\nmodel : 85\nmodel name : constructed\n"
    (root / "proc/cpuinfo").write_text(text)
    return root


@pytest.mark.parametrize("vendor", ["GenuineIntel", "AuthenticAMD"])
def test_a_pmu_that_counts_right_is_trusted(tmp_path: Path, vendor: str) -> None:
    processor = Processor()
    group = [Event("cycles", 0, 0), INSTRUCTIONS, Event("retired", 4, 0xC2)]
    found = list(pmu_trials(quiet, processor.ask, cpuinfo(tmp_path, vendor), lambda: CountingPlan([group, group])))
    assert [one.check for one in found if "Top-Down group" in one.check] == [
        "instructions of a loop, Top-Down group 1 of 2", "instructions of a loop, Top-Down group 2 of 2",
    ]  # fmt: skip
    assert len(found) == len(known_work(vendor, 1 << 20)) + 2 == 9
    assert {one.state for one in found} == {"trusted"}, found
    assert processor.kernel.events == {}, "every counter is closed"


def test_a_pmu_that_counts_too_much_is_found_out(tmp_path: Path) -> None:
    root = cpuinfo(tmp_path, "GenuineIntel")
    found = list(pmu_trials(quiet, Processor(overcount=1.03).ask, root, lambda: CountingPlan([])))
    # 3 % is too much for instructions and operations; misses are allowed 4 %.
    assert {one.check for one in found if one.state == "trusted"} == {
        "last-level misses of a copy larger than the cache"
    }
    assert all(one.deviation == pytest.approx(0.03, rel=1e-3) for one in found)


def test_counters_that_were_shared_are_estimates_and_say_so(tmp_path: Path) -> None:
    root = cpuinfo(tmp_path, "GenuineIntel")
    first = next(iter(pmu_trials(quiet, Processor(share=0.5).ask, root, lambda: CountingPlan([]))))
    assert first.state == "trusted" and first.reason == "estimated: counted 50 % of the time"
    never = next(iter(pmu_trials(quiet, Processor(share=0.0).ask, root, lambda: CountingPlan([]))))
    assert never.state == "missing" and "never free" in never.reason


def test_an_event_that_a_pmu_has_not_is_named(tmp_path: Path) -> None:
    processor = Processor()
    processor.kernel.refuse = lambda event: errno.ENOENT if event.type == 3 else 0
    found = {
        one.check: one for one in pmu_trials(quiet, processor.ask, cpuinfo(tmp_path, "Other"), lambda: CountingPlan([]))
    }
    assert found["loads of a loop"].state == "missing" and "l1_dcache_loads" in found["loads of a loop"].reason
    assert found["instructions of a loop"].state == "trusted"
    assert not any("floating-point" in check for check in found), "nobody knows this vendor's event"


def test_floating_point_events_are_those_of_the_manuals() -> None:
    # FP_ARITH_INST_RETIRED: event 0xc7, umask of single precision by width, FLOP a count.
    assert [(event.config, worth) for event, worth in FLOP_EVENTS["GenuineIntel"]] == [
        (0x02 << 8 | 0xC7, 1), (0x08 << 8 | 0xC7, 4), (0x20 << 8 | 0xC7, 8), (0x80 << 8 | 0xC7, 16),
    ]  # fmt: skip
