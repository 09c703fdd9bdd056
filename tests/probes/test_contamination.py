"""Whether other programs disturbed a measurement; readings made by hand."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonda.probes.machine.contamination import (
    ContaminationWatch,
    DisturbanceSign,
    MachineConditions,
    find_disturbances,
    parse_stat,
    read_conditions,
    stored_conditions,
)

START = MachineConditions(time=100.0, cpu_time=1.0, cores=2, busy=500.0, steal=3.0, load=0.5, runnable=0)


def after(own: float, busy: float, steal: float = 0.0, wall: float = 10.0) -> MachineConditions:
    """A reading `wall` seconds later: CPU seconds of this program, of all programs, and stolen."""
    return replace(START, time=100.0 + wall, cpu_time=1.0 + own, busy=500.0 + busy, steal=3.0 + steal)


def judged(flags: list[DisturbanceSign]) -> set[str]:
    return {flag.name for flag in flags if flag.contaminated}


def test_a_quiet_machine_has_no_flags() -> None:
    assert find_disturbances(START, after(own=19.8, busy=20.0), threads=2) == []


def test_others_on_the_same_cores_contaminate() -> None:
    """13 s of 20 s were ours, 7 s of others': 0.7 of a CPU, and our threads got 0.65 each."""
    flags = find_disturbances(START, after(own=13.0, busy=20.0), threads=2)
    assert judged(flags) == {"others", "use"}
    values = {flag.name: flag.value for flag in flags}
    assert values["others"] == pytest.approx(0.7)
    assert values["use"] == pytest.approx(0.65)
    assert "0.7 of 2 CPUs" in flags[0].sentence


def test_others_on_a_core_that_is_free_do_not() -> None:
    assert find_disturbances(START, after(own=9.9, busy=19.9), threads=1) == []


def test_threads_without_work_are_told_but_not_judged() -> None:
    flags = find_disturbances(START, after(own=10.0, busy=10.1), threads=2)
    assert [flag.name for flag in flags] == ["use"]
    assert judged(flags) == set()


def test_more_threads_than_processors_are_not_held_up_by_others() -> None:
    """64 threads kept both processors busy by themselves; what they ask for is told by the tasks that were ready."""
    flags = find_disturbances(START, replace(after(own=19.8, busy=20.0), sampled=(63, 65)), threads=64)
    assert [flag.name for flag in flags] == ["runnable"]
    assert flags[0].sentence.startswith("64.0 tasks were ready to run on 2 CPUs: ")


def test_sleeping_threads_do_not_look_like_contention() -> None:
    assert find_disturbances(START, after(own=13.2, busy=13.3), threads=2, policy="passive") == []


@pytest.mark.parametrize(("samples", "expected"), [([3, 3, 3, 2], {"runnable"}), ([2, 2, 2, 1], set()), ([], set())])
def test_more_runnable_tasks_than_cores_contaminate(samples: list[int], expected: set[str]) -> None:
    later = replace(after(own=19.0, busy=19.5), sampled=tuple(samples))
    assert judged(find_disturbances(START, later, 2, "active")) == expected
    kept = stored_conditions(START, later, [])
    assert kept.runnable == (sum(samples) / len(samples) if samples else None)


def test_steal_is_told_but_not_judged() -> None:
    flags = find_disturbances(START, after(own=19.0, busy=19.2, steal=1.0), threads=2)
    assert [(flag.name, flag.value, flag.contaminated) for flag in flags] == [("steal", pytest.approx(0.05), False)]
    assert "5.0%" in flags[0].sentence


def test_a_window_shorter_than_the_kernels_ticks_says_nothing() -> None:
    assert find_disturbances(START, after(own=0.0, busy=0.1, wall=0.04), threads=2) == []


def test_unknown_is_not_judged() -> None:
    blind = replace(START, cores=None, busy=None, steal=None, load=None, runnable=None)
    later = replace(blind, time=110.0, cpu_time=1.0, sampled=(9, 9))
    assert judged(find_disturbances(blind, later, threads=2)) == set()


@given(st.lists(st.integers(0, 10**12), min_size=8, max_size=10), st.integers(1, 64), st.integers(0, 500))
def test_stat_files(ticks: list[int], cores: int, running: int) -> None:
    lines = ["cpu  " + " ".join(map(str, ticks))]
    lines += [f"cpu{number} 1 2 3 4 5 6 7 8" for number in range(cores)]
    lines += ["intr 1 2 3", f"procs_running {running}", "procs_blocked 9"]
    found = parse_stat("\n".join(lines), 100)
    user, nice, system, _, _, irq, softirq, steal = ticks[:8]
    assert found["busy"] == (user + nice + system + irq + softirq) / 100
    assert found["steal"] == steal / 100
    assert (found["cores"], found["runnable"]) == (cores, running)


@given(st.text())
def test_damaged_stat_files_never_raise(text: str) -> None:
    parse_stat(text, 100)
    parse_stat("cpu " + text, 100)


def test_a_reading_does_not_count_the_reader(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text("cpu  100 0 50 900 0 0 0 7\ncpu0 1 1 1 1\nprocs_running 3\n")
    (tmp_path / "proc/loadavg").write_text("1.25 0.9 0.5 3/90 4711\n")
    reading = read_conditions(tmp_path)
    assert (reading.runnable, reading.load, reading.cores) == (2, 1.25, 1)
    assert reading.busy is not None
    assert reading.steal is not None
    assert reading.busy / reading.steal == pytest.approx(150 / 7)


def test_a_machine_without_proc_is_read_as_unknown(tmp_path: Path) -> None:
    reading = read_conditions(tmp_path)
    assert (reading.runnable, reading.load, reading.cores, reading.busy, reading.steal) == (None,) * 5


def test_own_cpu_time_is_counted() -> None:
    before = read_conditions()
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    assert read_conditions().cpu_time - before.cpu_time >= 0.045


def test_a_watch_samples_in_between(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text("cpu  100 0 50 900 0 0 0 7\ncpu0 1 1 1 1\ncpu1 1 1 1 1\nprocs_running 6\n")
    with ContaminationWatch(tmp_path, interval=0.001) as watch:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and len(watch.runnable) < 3:
            time.sleep(0.001)
    assert set(watch.after.sampled) == {5}
    # It may have lasted less than five of the kernel's ticks: judged as if it were 10 s.
    later = replace(watch.after, time=watch.before.time + 10)
    assert "runnable" in judged(find_disturbances(watch.before, later, 1, "active"))


def test_a_processor_that_was_too_hot_contaminates() -> None:
    cool = replace(START, throttled=5)
    assert find_disturbances(cool, replace(after(own=19.8, busy=20.0), throttled=5), threads=2) == []
    (flag,) = find_disturbances(cool, replace(after(own=19.8, busy=20.0), throttled=8), threads=2)
    assert (flag.name, flag.value, flag.contaminated) == ("throttled", 3, True)
    assert flag.sentence == "the processor was too hot and slowed down 3 times: cool it"


def test_throttling_is_counted_once_for_each_package(tmp_path: Path) -> None:
    assert read_conditions(tmp_path).throttled is None
    for cpu, package, count in ((0, 0, 4), (1, 0, 4), (2, 1, 3)):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}"
        (folder / "thermal_throttle").mkdir(parents=True)
        (folder / "topology").mkdir()
        (folder / "thermal_throttle/package_throttle_count").write_text(f"{count}\n")
        (folder / "topology/physical_package_id").write_text(f"{package}\n")
    assert read_conditions(tmp_path).throttled == 7


def test_what_is_kept_has_the_load_the_cpu_time_and_every_sign() -> None:
    end = replace(after(own=13.0, busy=20.0, steal=1.0), load=3.5)
    kept = stored_conditions(START, end, find_disturbances(START, end, threads=2))
    assert (kept.load, kept.wall_s, kept.cpu_s) == ([0.5, 3.5], 10.0, 13.0)
    assert kept.others == pytest.approx(0.7)
    assert kept.steal == pytest.approx(1.0 / 20)
    assert kept.signs == ["others", "use"], "stealing is told, not judged"
    hot = replace(end, throttled=2)
    cool = replace(START, throttled=0)
    assert stored_conditions(cool, hot, find_disturbances(cool, hot, threads=2)).throttled == 2


TWO_CORES = "cpu  1000 0 0 500 0 0 0 10\ncpu0 900 0 0 50 0 0 0 3\ncpu1 100 0 0 450 0 0 0 7\nprocs_running 3\n"


def test_a_program_bound_to_a_core_is_not_disturbed_by_what_runs_on_others() -> None:
    bound = parse_stat(TWO_CORES, 100, allowed={1})
    assert bound == {"busy": 1.0, "steal": 0.07, "runnable": 3, "processors": 2, "cores": 1}
    assert parse_stat(TWO_CORES, 100, allowed={0, 1}) == {
        "busy": 10.0, "steal": 0.1, "runnable": 3, "processors": 2, "cores": 2,
    }  # fmt: skip


def test_tasks_that_are_ready_are_compared_with_all_processors() -> None:
    """Three tasks on four processors disturb nobody, though this program may use one of them only."""
    before = replace(START, cores=1, processors=4)
    later = replace(after(own=9.9, busy=10.0), cores=1, processors=4, sampled=(3, 3))
    assert judged(find_disturbances(before, later, threads=1)) == set()


def test_what_others_use_is_kept_whether_it_disturbs_or_not() -> None:
    later = after(own=9.0, busy=14.0)
    assert stored_conditions(START, later, []).other_cpus == pytest.approx(0.5)
