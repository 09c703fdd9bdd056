"""Validation: known work counted for real where that is possible; constructed counts of machines that are not here."""

from __future__ import annotations

import ctypes
import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fake_kernel import FakeKernel
from sonda import cli
from sonda.frameworks.collector.perf_event import Event, PerfEventError
from sonda.probes import doctor, validation_system
from sonda.probes.callgrind import valgrind_version
from sonda.probes.counted_command import Count, Counted
from sonda.probes.doctor import examine
from sonda.probes.pmu import Plan, plan
from sonda.probes.validation import (
    Trial,
    Validated,
    huge_pages,
    judge_counts,
    judge_pair,
    judge_slope,
    validate,
)
from sonda.probes.validation_child import ask_child
from sonda.probes.validation_kernels import COPY, MachineCode, count_work, machine_loops, stolen, touching
from sonda.probes.validation_modelled import callgrind_trials, judge_modelled
from sonda.probes.validation_pmu import FLOP_EVENTS, INSTRUCTIONS, known_work, pmu_trials
from sonda.probes.validation_system import (
    children_trials,
    clock_trials,
    fill_trials,
    judge_clock,
    papi_trials,
    source_trials,
    sums_trials,
    system_trials,
)
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState
from sonda.report.validation import render_validation
from test_perf_event import needs_kernel


def quiet(text: str) -> None:
    """Nobody watches."""


def answering(**answers: Any) -> Callable[..., dict[str, Any]]:
    """Stands in for child processes: an answer for each kind of work."""

    def ask(kind: str, request: dict[str, Any], *_: object, **__: object) -> dict[str, Any]:
        if isinstance(answers[kind], Exception):
            raise answers[kind]
        found = answers[kind]
        return found(request) if callable(found) else found

    return ask


# ---- judging ------------------------------------------------------------------------------------------------------


def test_counts_are_right_only_where_every_one_of_them_is() -> None:
    right = judge_counts("os", "faults", [16384.0] * 99 + [16385.0], 16384, 1)
    assert (right.state, right.deviation, right.reason) == ("trusted", 0.0, "100 times")
    assert (right.expected, right.found) == ("16,384 (+1)", "16,384 to 16,385")
    # PyTorch's own counters see 8191 of them with two threads, and none from a second Python thread.
    for missed, away in ((8191.0, 8193 / 16384), (0.0, 1.0)):
        wrong = judge_counts("os", "faults", [16384.0] * 99 + [missed], 16384, 1)
        assert wrong.state == "differs" and wrong.deviation == pytest.approx(away)
    too_many = judge_counts("os", "faults", [16386.0], 16384, 1)
    assert too_many.state == "differs" and too_many.deviation == pytest.approx(2 / 16384)
    assert judge_counts("os", "faults", [], 16384).state == "missing"


def test_a_slope_has_nothing_of_what_both_sizes_share() -> None:
    # 210,214 and 410,214 instructions, as an emulator counted the loop with Python around it.
    found = judge_slope("pmu", "loop", [(100_000, 210_214), (200_000, 410_214)], 2.0, 0.01)
    assert (found.state, found.deviation, found.found) == ("trusted", 0.0, "2 a turn")
    # An interrupt more in one of five turns does not move the medians.
    counts = [(1000.0, 2007.0), (2000.0, 4007.0)] * 4 + [(1000.0, 2007.0), (2000.0, 4907.0)]
    assert judge_slope("pmu", "loop", counts, 2.0, 0.01).deviation == 0.0
    off = judge_slope("pmu", "loop", [(1000, 2000), (2000, 4022)], 2.0, 0.01)
    assert off.state == "differs" and off.deviation == pytest.approx(0.011)
    assert judge_slope("pmu", "loop", [(1000, 2000)], 2.0, 0.01).state == "missing"


def test_two_sources_agree_within_a_share_or_a_number() -> None:
    assert judge_pair("os", "clock", 1_005_000, 1_000_000, 0.01).state == "trusted"
    assert judge_pair("os", "clock", 1_015_000, 1_000_000, 0.01).state == "differs"
    assert judge_pair("os", "sums", 70_001, 70_000, more=1).state == "trusted"
    assert judge_pair("os", "sums", 70_002, 70_000, more=1).state == "differs"
    assert judge_pair("os", "nothing", 3, 0).deviation == 1.0


def test_a_probe_is_trusted_as_far_as_its_worst_trial() -> None:
    validated = Validated((
        Trial("os", "faults", "trusted", deviation=0.0),
        Trial("os", "clock", "trusted", deviation=0.004),
        Trial("pmu", "loop", "missing", reason="no PMU", remedy="use another machine"),
        Trial("papi", "here", "trusted", deviation=0.0),
        Trial("papi", "command", "missing", reason="cannot attach"),
        Trial("perf stat", "a", "differs", deviation=0.5),
        Trial("perf stat", "b", "differs", deviation=0.02),
        Trial("perf stat", "c", "trusted", deviation=0.0),
    ))  # fmt: skip
    said = {one.probe: (one.state, one.sentence) for one in validated.trust}
    assert said == {
        "os": ("trusted", "2 of 2 checks as expected, within 0.4 %"),
        "pmu": ("missing", "no PMU"),
        "papi": ("trusted", "1 of 1 checks as expected, exactly; without command: cannot attach"),
        "perf stat": ("differs", "differs by 50 % (a); 1 of 3 checks as expected"),
    }
    assert validated.exit_status == 1
    assert Validated(validated.trials[:5]).exit_status == 0, "what is not there counts nothing wrong"
    text = render_validation(json.loads(json.dumps(validated.to_document())), width=100, color=False)
    assert "not available" in text and "pmu: loop: no PMU" in text and "use another machine" in text


# ---- what the operating system counts, for real -------------------------------------------------------------------


def fills(monkeypatch: pytest.MonkeyPatch, threads: int, where: str, when: str, times: int) -> Trial:
    monkeypatch.setattr(validation_system, "FILLS", ((threads, where, when),))
    [found] = fill_trials(quiet, times, ask_child)
    return found


@needs_kernel
def test_page_faults_of_threads_that_were_there_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    found = fills(monkeypatch, 2, "other", "late", 3)
    assert (found.probe, found.state, found.reason) == ("os", "trusted", "3 times"), found


@needs_kernel
@pytest.mark.slow
@pytest.mark.parametrize(("threads", "where"), [(1, "main"), (2, "main"), (8, "main"), (2, "other")])
def test_page_faults_are_exact_every_time_of_a_hundred(
    threads: int, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = fills(monkeypatch, threads, where, "early", 100)
    assert (found.probe, found.state, found.reason) == ("os", "trusted", "100 times"), found


@needs_kernel
def test_phases_and_what_is_unattributed_are_the_whole() -> None:
    first, second, whole, between = sums_trials(quiet, ask_child)
    assert [one.state for one in (first, second, whole, between)] == ["trusted"] * 4, (first, second, whole, between)
    assert first.expected == "1,000 (+1)" and second.expected == "2,000 (+1)"


@needs_kernel
@pytest.mark.slow
def test_time_switches_moves_and_children_are_counted() -> None:
    found = [*clock_trials(quiet, ask_child), *children_trials(ask_child)]
    assert {one.state for one in found} <= {"trusted", "missing"}, found
    # Where the hypervisor took time in every window, nobody knows what the task clock must say.
    assert found[0].state == "trusted" or "hypervisor" in found[0].reason
    assert found[1].state == "trusted"


@needs_kernel
def test_sources_that_are_there_agree_on_a_command() -> None:
    found = list(source_trials(quiet))
    assert {one.probe for one in found} == {"os", "perf stat", "getrusage", "papi"}
    for one in found:
        assert one.state == "trusted" or (one.state == "missing" and one.reason), one
    assert [one.state for one in found if one.probe in ("os", "getrusage")] == ["trusted"] * 2


# ---- the same, constructed ----------------------------------------------------------------------------------------


def test_counters_that_miss_threads_are_found_out() -> None:
    answers = answering(fill=lambda asked: {
        "counted": [16384.0 if asked["threads"] == 1 else 8191.0] * 3, "getrusage": [], "source": {"source": "perf"},
    })  # fmt: skip
    found = list(fill_trials(quiet, 3, answers))
    assert [one.state for one in found] == ["trusted", "differs", "differs", "differs", "differs"]
    assert "from a second Python thread" in found[3].check and "opened late" in found[4].check


def test_without_permission_the_system_has_a_reason_and_getrusage_is_tried() -> None:
    source = {"source": "getrusage", "errno": errno.EACCES}
    answers = answering(fill={"counted": [16384.0], "getrusage": [], "source": source})
    found = list(fill_trials(quiet, 1, answers))
    assert [(one.probe, one.state) for one in found[:2]] == [("os", "missing"), ("getrusage", "trusted")]
    assert "refused" in found[0].reason


def test_sums_that_do_not_add_up_differ() -> None:
    phases = [1000.0, 2000.0] * 20
    right = {"phases": phases, "whole": 70_000, "collector": 70_000}
    assert [one.state for one in sums_trials(quiet, answering(sums=right))] == ["trusted"] * 4
    lost = {**right, "collector": 65_000}
    assert [one.state for one in sums_trials(quiet, answering(sums=lost))] == ["trusted"] * 2 + ["differs"] * 2
    swapped = {**right, "phases": [1400.0, 1600.0] * 20}
    assert [one.state for one in sums_trials(quiet, answering(sums=swapped))][:2] == ["differs"] * 2
    assert [one.state for one in sums_trials(quiet, answering(sums={**right, "collector": None}))] == ["missing"]


def window(task_clock: int, stolen_ticks: int) -> dict[str, int]:
    return {"task_clock": task_clock, "process_time": 1_000_000, "stolen": stolen_ticks}


def test_the_task_clock_is_judged_where_nothing_was_stolen() -> None:
    right = judge_clock([window(1_002_000, 0), window(1_376_000, 7), window(1_001_000, 0), window(1_003_000, 0)])
    assert right.state == "trusted" and right.deviation == pytest.approx(0.002)
    assert right.reason.startswith("1 of 4 windows left out") and "up to 38 % more" in right.reason
    # A clock that runs wrong by itself is not excused by time that was stolen in other windows.
    wrong = judge_clock([window(1_020_000, 0), window(1_376_000, 7)])
    assert wrong.state == "differs" and wrong.deviation == pytest.approx(0.02)
    never = judge_clock([window(1_020_000, 2), window(1_376_000, 7)])
    assert never.state == "missing" and never.reason.startswith("2 of 2 windows left out")
    assert judge_clock([window(1_000_000, 0)]).reason == ""


def test_stolen_time_is_that_of_the_processor(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text(
        "cpu  1 2 3 4 5 6 7 99 9 9\ncpu1 1 2 3 4 5 6 7 8 9 9\ncpu10 1 2 3 4 5 6 7 70 9 9\n"
    )
    assert [stolen(cpu, tmp_path) for cpu in (1, 10, 3)] == [8, 70, 0]
    (tmp_path / "proc/stat").write_text("cpu1 1 2 3 4\n")  # a kernel that knows no stolen time
    assert stolen(1, tmp_path) == 0


@pytest.mark.parametrize(
    ("counted", "usage", "states"),
    [
        (49, 49, ["trusted"]),  # seen: a short sleep may end before its thread has left the processor
        (50, 51, ["trusted"]),
        (20, 50, ["differs"]),
        (0, 0, ["trusted", "differs"]),  # both agree, but a counter that does not move is none
    ],
)
def test_switches_must_agree_and_move(counted: int, usage: int, states: list[str]) -> None:
    sleep = {"context_switches": counted, "getrusage_switches": usage}
    answer = {"busy": [window(1_000_000, 0)], "sleep": sleep}
    found = [one for one in clock_trials(quiet, answering(clock=answer)) if "switches" in one.check]
    assert [one.state for one in found] == states


def test_children_counted_where_they_should_not_be_differ() -> None:
    [found] = children_trials(answering(children={"out": 19_525, "in": 19_525}))
    assert found.state == "differs"
    [found] = children_trials(answering(children={"out": 0, "in": 0}))
    assert found.state == "differs"


def test_huge_pages_leave_page_faults_untried(tmp_path: Path) -> None:
    file = tmp_path / "sys/kernel/mm/transparent_hugepage/enabled"
    file.parent.mkdir(parents=True)
    file.write_text("always [madvise] never\n")
    assert huge_pages(tmp_path) == ""
    file.write_text("[always] madvise never\n")
    clock = {"task_clock": 100, "process_time": 100, "stolen": 0, "context_switches": 50, "getrusage_switches": 50}
    first, *rest = system_trials(quiet, 1, answering(clock={"busy": [clock], "sleep": clock}), tmp_path)
    assert first.state == "missing" and "huge pages" in first.reason and "madvise" in first.remedy
    assert [one.state for one in rest] == ["trusted", "trusted", "missing"]


class Source:
    """A source that counts a command: `each` fault for every page, and the interpreter's own."""

    def __init__(self, name: str, each: float = 1.0, state: str = "ok") -> None:
        self.name, self.each, self.answer = name, each, state

    def state(self) -> ProbeState:
        return ProbeState(self.name, self.answer, "not installed", "install it")

    def count(self, command: list[str], events: list[str], interval: float = 0.0) -> Counted:
        pages = next(pages for pages in validation_system.COMMAND_PAGES if touching(pages) == command)
        return Counted(0, {"page-faults": Count(744 + self.each * pages)})


def test_a_source_that_counts_half_is_found_out_and_one_that_is_not_there_says_so(monkeypatch: Any) -> None:
    monkeypatch.setattr(validation_system, "_waited", lambda pages: 500 + pages)
    papi = {"state": "missing", "reason": "libpapi is not installed", "remedy": "apt install libpapi7.0"}
    sources = (Source("perf_event_open"), Source("perf stat", 0.5), Source("third", state="missing"))
    found = list(source_trials(quiet, answering(papi=papi), sources))
    assert [(one.probe, one.state) for one in found] == [
        ("os", "trusted"), ("perf stat", "differs"), ("third", "missing"), ("getrusage", "trusted"),
        ("papi", "missing"), ("papi", "missing"),
    ]  # fmt: skip
    assert found[1].deviation == 0.5 and found[2].reason == "not installed"


def test_papi_may_count_the_calling_thread_and_no_command() -> None:
    here = [[4096, 4107.0], [20480, 20480.0], [4096, 4096.0], [20480, 20480.0], [4096, 4096.0], [20480, 20480.0]]
    answer = {"state": "ok", "reason": "", "remedy": "", "here": here, "command_reason": "event does not exist"}
    command, thread = papi_trials(quiet, answering(papi=answer))
    assert (command.state, command.reason) == ("missing", "event does not exist")
    assert (thread.state, thread.deviation) == ("trusted", 0.0)
    [broken] = papi_trials(quiet, answering(papi=SondaError("the trial papi failed: 1", "")))
    assert broken.state == "missing"


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


def refusing_plan() -> Plan:
    raise SondaError("no PMU in this virtual machine", "use a bare-metal machine")


def has_pmu() -> bool:
    try:
        plan()
    except SondaError:
        return False
    return True


@pytest.mark.skipif(not has_pmu(), reason="needs a PMU")
def test_the_pmu_counts_loops() -> None:
    found = {one.check: one for one in pmu_trials(quiet)}
    assert found["instructions of a loop"].state == "trusted", found["instructions of a loop"]


def test_without_a_pmu_every_trial_has_the_reason() -> None:
    found = list(pmu_trials(quiet, found=refusing_plan))
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
    found = list(pmu_trials(quiet, processor.ask, cpuinfo(tmp_path, vendor), lambda: Plan([group, group])))
    assert [one.check for one in found if "Top-Down group" in one.check] == [
        "instructions of a loop, Top-Down group 1 of 2", "instructions of a loop, Top-Down group 2 of 2",
    ]  # fmt: skip
    assert len(found) == len(known_work(vendor, 1 << 20)) + 2 == 9
    assert {one.state for one in found} == {"trusted"}, found
    assert processor.kernel.events == {}, "every counter is closed"


def test_a_pmu_that_counts_too_much_is_found_out(tmp_path: Path) -> None:
    root = cpuinfo(tmp_path, "GenuineIntel")
    found = list(pmu_trials(quiet, Processor(overcount=1.03).ask, root, lambda: Plan([])))
    # 3 % is too much for instructions and operations; misses are allowed 4 %.
    assert {one.check for one in found if one.state == "trusted"} == {
        "last-level misses of a copy larger than the cache"
    }
    assert all(one.deviation == pytest.approx(0.03, rel=1e-3) for one in found)


def test_counters_that_were_shared_are_estimates_and_say_so(tmp_path: Path) -> None:
    root = cpuinfo(tmp_path, "GenuineIntel")
    first = next(iter(pmu_trials(quiet, Processor(share=0.5).ask, root, lambda: Plan([]))))
    assert first.state == "trusted" and first.reason == "estimated: counted 50 % of the time"
    never = next(iter(pmu_trials(quiet, Processor(share=0.0).ask, root, lambda: Plan([]))))
    assert never.state == "missing" and "never free" in never.reason


def test_an_event_that_a_pmu_has_not_is_named(tmp_path: Path) -> None:
    processor = Processor()
    processor.kernel.refuse = lambda event: errno.ENOENT if event.type == 3 else 0
    found = {one.check: one for one in pmu_trials(quiet, processor.ask, cpuinfo(tmp_path, "Other"), lambda: Plan([]))}
    assert found["loads of a loop"].state == "missing" and "l1_dcache_loads" in found["loads of a loop"].reason
    assert found["instructions of a loop"].state == "trusted"
    assert not any("floating-point" in check for check in found), "nobody knows this vendor's event"


def test_floating_point_events_are_those_of_the_manuals() -> None:
    # FP_ARITH_INST_RETIRED: event 0xc7, umask of single precision by width, FLOP a count.
    assert [(event.config, worth) for event, worth in FLOP_EVENTS["GenuineIntel"]] == [
        (0x02 << 8 | 0xC7, 1), (0x08 << 8 | 0xC7, 4), (0x20 << 8 | 0xC7, 8), (0x80 << 8 | 0xC7, 16),
    ]  # fmt: skip


# ---- all of it ----------------------------------------------------------------------------------------------------


def test_a_part_that_breaks_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> list[Trial]:
        raise RuntimeError("stranger than foreseen")

    monkeypatch.setattr("sonda.probes.validation_system.system_trials", broken)
    monkeypatch.setattr("sonda.probes.validation_system.source_trials", lambda say: [])
    monkeypatch.setattr("sonda.probes.validation_modelled.callgrind_trials", lambda say: [])
    monkeypatch.setattr("sonda.probes.validation_pmu.pmu_trials", lambda say: [Trial("pmu", "loop", "trusted")])
    first, second = validate().trials
    assert (first.state, first.reason) == ("missing", "RuntimeError: stranger than foreseen")
    assert second.state == "trusted"


def test_a_child_that_fails_says_why() -> None:
    with pytest.raises(SondaError, match="KeyError: 'no such kind'"):
        ask_child("no such kind", {})


# ---- the doctor and the command line ------------------------------------------------------------------------------


def test_the_doctor_names_second_sources_and_a_partition_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor.Papi, "state", lambda self: ProbeState("papi", "missing", "not there", "install it"))
    monkeypatch.setattr(doctor.PerfStat, "state", lambda self: ProbeState("perf stat", "ok", "version 6.1"))
    tools = {check.name: check for check in doctor._tools()}
    assert (tools["libpapi"].state, tools["libpapi"].remedy) == ("missing", "install it")
    assert tools["perf"].detail == "version 6.1: a second source for CPU counters"
    left = [("cache partition left behind", "ok", "restored the cache partition that process 7 left", "")]
    monkeypatch.setattr(doctor, "left_checks", lambda root: left if root == tmp_path else [])
    assert "restored the cache partition that process 7 left" in {one.detail for one in examine(store=tmp_path)}


@pytest.mark.parametrize(("state", "code"), [("trusted", 0), ("missing", 0), ("differs", 1)])
def test_the_command_says_what_differs_in_its_exit_code(
    state: str, code: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    found = Validated((Trial("os", "faults", state, "16,384", "16,384", 0.5, "so it is"),))
    monkeypatch.setattr("sonda.probes.validation.validate", lambda say: found)
    monkeypatch.setattr("sys.argv", ["sonda", "doctor", "--validate", "--json"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert (ended.value.code or 0) == code
    document = json.loads(capfd.readouterr().out)
    assert document["trials"][0]["state"] == document["probes"][0]["state"] == state
