"""Validation: known work counted for real where that is possible; constructed counts of machines that are not here."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from perf_event_cases import needs_kernel
from sonda import cli
from sonda.probes import doctor
from sonda.probes.counters.command_counter import CountedCommand, EventCount
from sonda.probes.doctor import examine_machine
from sonda.probes.validation import system as validation_system
from sonda.probes.validation.child import ask_child
from sonda.probes.validation.microbenchmarks import read_stolen_ticks, touch_command
from sonda.probes.validation.system import (
    children_trials,
    clock_trials,
    fill_trials,
    judge_clock,
    papi_trials,
    source_trials,
    sums_trials,
    system_trials,
)
from sonda.probes.validation.trust import (
    ProbeTrial,
    Validation,
    huge_pages_reason,
    judge_counts,
    judge_pair,
    judge_slope,
    validate_probes,
)
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState
from sonda.report.screen import render
from sonda.report.views.validation import validation_blocks
from validation_answers import answering, quiet

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
    validated = Validation((
        ProbeTrial("os", "faults", "trusted", deviation=0.0),
        ProbeTrial("os", "clock", "trusted", deviation=0.004),
        ProbeTrial("pmu", "loop", "missing", reason="no PMU", remedy="use another machine"),
        ProbeTrial("papi", "here", "trusted", deviation=0.0),
        ProbeTrial("papi", "command", "missing", reason="cannot attach"),
        ProbeTrial("perf stat", "a", "differs", deviation=0.5),
        ProbeTrial("perf stat", "b", "differs", deviation=0.02),
        ProbeTrial("perf stat", "c", "trusted", deviation=0.0),
    ))  # fmt: skip
    said = {one.probe: (one.state, one.sentence) for one in validated.trust}
    assert said == {
        "os": ("trusted", "2 of 2 checks as expected, within 0.4 %"),
        "pmu": ("missing", "no PMU"),
        "papi": ("trusted", "1 of 1 checks as expected, exactly; without command: cannot attach"),
        "perf stat": ("differs", "differs by 50 % (a); 1 of 3 checks as expected"),
    }
    assert validated.exit_status == 1
    assert Validation(validated.trials[:5]).exit_status == 0, "what is not there counts nothing wrong"
    text = render(validation_blocks(json.loads(json.dumps(validated.to_document()))), 100, False)
    assert "not available" in text and "pmu: loop: no PMU" in text and "use another machine" in text


# ---- what the operating system counts, for real -------------------------------------------------------------------


def fills(monkeypatch: pytest.MonkeyPatch, threads: int, where: str, when: str, times: int) -> ProbeTrial:
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
    # 36 MiB: what is larger than 32 MiB the C library gives back to the system, and has anew each time.
    monkeypatch.setattr(validation_system, "PAGES_FILLED", 36 * 256)
    found = fills(monkeypatch, threads, where, "early", 100)
    assert (found.probe, found.state, found.reason) == ("os", "trusted", "100 times"), found
    assert found.expected == "9,216 (+1)"


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
        "counted": [16384.0 if asked["threads"] == 1 else 8191.0] * 3, "source": {"source": "perf"},
    })  # fmt: skip
    found = list(fill_trials(quiet, 3, answers))
    assert [one.state for one in found] == ["trusted", "differs", "differs", "differs", "differs"]
    assert "from a second Python thread" in found[3].check and "opened late" in found[4].check


def test_without_permission_the_system_is_tried_with_getrusage_and_says_so(tmp_path: Path) -> None:
    level = tmp_path / "proc/sys/kernel/perf_event_paranoid"
    level.parent.mkdir(parents=True)
    level.write_text("2")
    source = {"source": "clock", "errno": errno.EACCES}
    answers = answering(fill={"counted": [16384.0], "source": source})
    found = next(iter(fill_trials(quiet, 1, answers, tmp_path)))
    assert (found.probe, found.state) == ("os", "trusted")
    assert found.reason == "with getrusage" and "perf_event_paranoid=1" in found.remedy


def test_sums_that_do_not_add_up_differ() -> None:
    phases = [1000.0, 2000.0] * 20
    right = {"phases": phases, "whole": 70_000, "collector": 70_000}
    assert [one.state for one in sums_trials(quiet, answering(sums=right))] == ["trusted"] * 4
    lost = {**right, "collector": 65_000}
    assert [one.state for one in sums_trials(quiet, answering(sums=lost))] == ["trusted"] * 2 + ["differs"] * 2
    swapped = {**right, "phases": [1400.0, 1600.0] * 20}
    assert [one.state for one in sums_trials(quiet, answering(sums=swapped))][:2] == ["differs"] * 2


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
    assert [read_stolen_ticks(cpu, tmp_path) for cpu in (1, 10, 3)] == [8, 70, 0]
    (tmp_path / "proc/stat").write_text("cpu1 1 2 3 4\n")  # a kernel that knows no stolen time
    assert read_stolen_ticks(1, tmp_path) == 0


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
    assert huge_pages_reason(tmp_path) == ""
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

    def count(self, command: list[str], events: list[str], interval: float = 0.0) -> CountedCommand:
        pages = next(pages for pages in validation_system.COMMAND_PAGES if touch_command(pages) == command)
        return CountedCommand(0, {"page-faults": EventCount(744 + self.each * pages)})


def test_a_source_that_counts_half_is_found_out_and_one_that_is_not_there_says_so(monkeypatch: Any) -> None:
    monkeypatch.setattr(validation_system, "_faults_by_wait4", lambda pages: 500 + pages)
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


# ---- all of it ----------------------------------------------------------------------------------------------------


def test_a_part_that_breaks_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> list[ProbeTrial]:
        raise RuntimeError("stranger than foreseen")

    monkeypatch.setattr("sonda.probes.validation.system.system_trials", broken)
    monkeypatch.setattr("sonda.probes.validation.system.source_trials", lambda say: [])
    monkeypatch.setattr("sonda.probes.validation.callgrind.callgrind_trials", lambda say: [])
    monkeypatch.setattr("sonda.probes.validation.pmu.pmu_trials", lambda say: [ProbeTrial("pmu", "loop", "trusted")])
    first, second = validate_probes().trials
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
    tools = {check.name: check for check in doctor._tool_checks()}
    assert (tools["libpapi"].state, tools["libpapi"].remedy) == ("missing", "install it")
    assert tools["perf"].detail == "version 6.1: a second source for CPU counters"
    left = [("cache partition left behind", "ok", "restored the cache partition that process 7 left", "")]
    monkeypatch.setattr(doctor, "check_left_partition", lambda root: left if root == tmp_path else [])
    assert "restored the cache partition that process 7 left" in {one.detail for one in examine_machine(store=tmp_path)}


@pytest.mark.parametrize(("state", "code"), [("trusted", 0), ("missing", 0), ("differs", 1)])
def test_the_command_says_what_differs_in_its_exit_code(
    state: str, code: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    found = Validation((ProbeTrial("os", "faults", state, "16,384", "16,384", 0.5, "so it is"),))
    monkeypatch.setattr("sonda.probes.validation.trust.validate_probes", lambda say: found)
    monkeypatch.setattr("sys.argv", ["sonda", "doctor", "--validate", "--json"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert (ended.value.code or 0) == code
    document = json.loads(capfd.readouterr().out)
    assert document["trials"][0]["state"] == document["probes"][0]["state"] == state
