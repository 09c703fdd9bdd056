"""The engine of a study: every point once, whatever happens."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from places import SUPPORT
from plain_runs import run_info
from sonda.record.errors import MissingExtraError, SondaError
from sonda.record.files.partial import PARTIAL
from sonda.record.run import Run, now, write_run
from sonda.record.spans import Spans, Words
from sonda.record.store import Store
from sonda.studies.engine.plan import StudyPoint, plan_points
from sonda.studies.engine.runner import StudyProgress, StudyResult, load_study_result, run_study
from sonda.studies.file.study import Study

STUDY = Study("kill", {"workload": "mlp"}, {"batch": (1, 2, 4, 8)}, repeat=3)
SPANS = Spans(
    {"start": np.array([0, 1]), "duration": np.array([9, 5]), "parent": np.array([-1, 0])},
    {"kind": Words.of(["run", "step"]), "name": Words.of(["run", "step"])},
)


def keep(store: Store, point: StudyPoint, status: str = "complete", created: str = "") -> Run:
    info = run_info(
        id=point.identity,
        created=created or now(),
        status=status,  # type: ignore[arg-type]
        study=point.study,
        point=point.record(),
        exit_code=None if status == "complete" else 3,
    )
    return write_run(store.root, info, SPANS)


def quiet(progress: StudyProgress) -> None:
    pass


def identities(store: Store) -> list[str]:
    return [directory.name.rpartition("-")[2] for directory in store.directories()]


def assert_each_point_once(store: Store, study: Study = STUDY) -> None:
    expected = [point.identity for point in plan_points(study)]
    assert Counter(identities(store)) == Counter(expected)
    runs = list(store.runs())
    assert not store.damaged
    for run in runs:
        assert run.info.status == "complete"
        assert len(run.spans) == 2
    assert not list(store.root.glob(f"{PARTIAL}*"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")


def test_every_point_is_measured_in_the_planned_order(store: Store) -> None:
    seen: list[StudyPoint] = []

    def measure(point: StudyPoint) -> Run:
        seen.append(point)
        return keep(store, point)

    result = run_study(STUDY, store, measure, quiet)
    assert seen == plan_points(STUDY) == [point for point, _ in result.runs]
    assert result.measured == 12
    assert not result.failures
    assert_each_point_once(store)


def test_a_finished_study_measures_nothing_more(store: Store) -> None:
    first = run_study(STUDY, store, lambda point: keep(store, point), quiet)
    second = run_study(STUDY, store, _never, quiet)
    assert second.measured == 0
    assert [run.directory for _, run in second.runs] == [run.directory for _, run in first.runs]
    assert [run.id for _, run in load_study_result(STUDY, store).runs] == [run.id for _, run in second.runs]


def _never(point: StudyPoint) -> Run:
    raise AssertionError(f"{point} was measured again")


def test_again_measures_everything_anew(store: Store) -> None:
    for point in plan_points(STUDY):
        keep(store, point, created="2020-01-01T00:00:00+00:00")
    other = plan_points(Study("other", {"workload": "mlp"}, {}))[0]
    keep(store, other)
    result = run_study(STUDY, store, lambda point: keep(store, point), quiet, again=True)
    assert result.measured == 12
    assert all(not run.directory.name.startswith("2020") for _, run in result.runs)
    assert len(identities(store)) == 13, "runs of other studies stay"


@pytest.mark.parametrize(("on", "tried"), [("sim:maeri-256", 1), ("cpu", 2)])
def test_what_no_simulation_can_do_without_ends_the_study(store: Store, on: str, tried: int) -> None:
    """A framework that is missing fails its own points only."""
    seen = []

    def lacking(point: StudyPoint) -> Run:
        seen.append(point)
        raise MissingExtraError("Numba", "numba")

    try:
        failures = run_study(Study("lacking", {"workload": "mlp", "on": on}, {"batch": (1, 2)}), store, lacking, quiet)
    except MissingExtraError:
        assert on.startswith("sim:")
    else:
        assert not on.startswith("sim:") and len(failures.failures) == 2
    assert len(seen) == tried


def test_a_failing_point_is_noted_and_tried_again_at_the_next_start(store: Store) -> None:
    def broken(point: StudyPoint) -> Run:
        if point.configuration["batch"] == 4:
            raise SondaError("no memory for batch 4", "use a smaller batch")
        return keep(store, point)

    result = run_study(STUDY, store, broken, quiet)
    assert len(result.runs) == result.measured == 9
    assert [(point.configuration["batch"], point.repetition) for point, _ in result.failures] == [
        (4, 1),
        (4, 2),
        (4, 3),
    ]
    assert {reason for _, reason in result.failures} == {"no memory for batch 4; use a smaller batch"}
    assert load_study_result(STUDY, store).failures == result.failures, "reasons outlive the process"

    seen = []

    def mended(point: StudyPoint) -> Run:
        seen.append(point.configuration["batch"])
        return keep(store, point)

    assert not run_study(STUDY, store, mended, quiet).failures
    assert seen == [4, 4, 4]
    assert_each_point_once(store)
    assert not load_study_result(STUDY, store).failures
    for directory in store.directories():
        store.remove(directory)
    assert {reason for _, reason in load_study_result(STUDY, store).failures} == {"not measured yet"}


def test_a_run_that_did_not_end_well_is_replaced(store: Store) -> None:
    def dying(point: StudyPoint) -> Run:
        return keep(store, point, "incomplete" if point.configuration["batch"] == 8 else "complete")

    result = run_study(STUDY, store, dying, quiet)
    assert [point.configuration["batch"] for point, _ in result.failures] == [8, 8, 8]
    assert all(reason.startswith("the run is incomplete: exit code 3") for _, reason in result.failures)
    assert len(identities(store)) == 12, "what was seen until then is kept"
    assert run_study(STUDY, store, lambda point: keep(store, point), quiet).measured == 3
    assert_each_point_once(store)


def test_a_damaged_run_is_measured_again(store: Store) -> None:
    result = run_study(STUDY, store, lambda point: keep(store, point), quiet)
    (result.runs[5][1].directory / "run.json").write_text("{")
    assert run_study(STUDY, store, lambda point: keep(store, point), quiet).measured == 1
    assert_each_point_once(store)


def test_a_run_kept_late_by_an_orphan_is_not_a_second_one(store: Store) -> None:
    points = plan_points(STUDY)
    for created in ("2020-01-01T00:00:00+00:00", "2020-01-01T00:00:01+00:00"):
        keep(store, points[0], created=created)

    def measure(point: StudyPoint) -> Run:
        if point == points[3]:
            keep(store, point, created="2020-01-01T00:00:02+00:00")
        return keep(store, point)

    assert run_study(STUDY, store, measure, quiet).measured == 11
    assert_each_point_once(store)


def test_a_run_under_another_id_is_a_failure_of_its_point(store: Store) -> None:
    def elsewhere(point: StudyPoint) -> Run:
        return keep(store, dataclasses.replace(point, identity=f"{point.repetition}{point.identity[1:]}"))

    result = run_study(dataclasses.replace(STUDY, repeat=2), store, elsewhere, quiet)
    astray = [
        point
        for point in plan_points(dataclasses.replace(STUDY, repeat=2))
        if point.identity[0] != str(point.repetition)
    ]
    assert len(astray) > 1
    assert [point for point, _ in result.failures] == astray
    assert all("was kept as" in reason for _, reason in result.failures)


def test_progress_tells_the_time_left_from_the_median_of_each_configuration(store: Store) -> None:
    study = Study("time", {"workload": "mlp"}, {"batch": (1, 2)}, repeat=3, protocol="plain")
    seconds = 0.0
    took = iter([10.0, 30.0, 50.0, 7.0, 9.0, 100.0])
    seen: list[StudyProgress] = []

    def measure(point: StudyPoint) -> Run:
        nonlocal seconds
        seconds += next(took)
        if point.repetition == 3:
            raise SondaError("gone")
        return keep(store, point)

    run_study(study, store, measure, seen.append, clock=lambda: seconds)
    assert [(p.done, p.total, p.failed) for p in seen] == [
        (0, 6, 0), (1, 6, 0), (2, 6, 0), (3, 6, 1), (4, 6, 1), (5, 6, 1), (6, 6, 2),
    ]  # fmt: skip
    # Batch 1: medians 10, 20, 30. Batch 2 has not had its turn until the fourth point: as long as batch 1. Then 7, 8.
    assert [p.seconds_left for p in seen] == [None, 5 * 10, 4 * 20, 3 * 30, 2 * 7, 8, 0]
    assert [p.current and p.current.configuration["batch"] for p in seen] == [1, 1, 1, 2, 2, 2, None]


def test_what_was_measured_before_counts_as_done(store: Store) -> None:
    for point in plan_points(STUDY)[:5]:
        keep(store, point)
    seen: list[StudyProgress] = []
    run_study(STUDY, store, lambda point: keep(store, point), seen.append)
    assert [progress.done for progress in seen] == [5, 6, 7, 8, 9, 10, 11, 12]


def test_a_store_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(SondaError, match=r"cannot write to the store .*runs: (Not a directory|File exists)"):
        run_study(STUDY, Store(tmp_path / "runs"), _never, quiet)


def test_an_interrupted_session_lets_go_of_the_lock(store: Store) -> None:
    def interrupted(point: StudyPoint) -> Run:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(STUDY, store, interrupted, quiet)
    assert run_study(STUDY, store, lambda point: keep(store, point), quiet).measured == 12


# Real processes. The child measures by writing real runs; it can be told to kill itself at a stage of its n-th point,
# or to stay after it.
CHILD = """
import os, pathlib, signal, sys, time
sys.path[:0] = {tests!r}
import test_study_engine as here
from sonda.record.store import Store

root, stage, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = Store(pathlib.Path(root))
log = os.open(root + ".log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
count = 0

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def measure(point):
    global count
    count += 1
    while stage == "stay" and count > number:
        time.sleep(0.01)
    os.write(log, (point.identity + "\\n").encode())
    mine = count == number
    if stage == "wait":
        while True:
            time.sleep(0.01)
    if mine and stage == "before":
        die()
    rename = pathlib.Path.rename
    def deadly(path, target):
        if stage == "written":
            die()
        rename(path, target)
        die()
    if mine and stage in ("written", "renamed"):
        pathlib.Path.rename = deadly
    try:
        run = here.keep(store, point)
    finally:
        pathlib.Path.rename = rename
    if mine and stage == "after":
        die()
    return run

def progress(state):
    if stage == "end" and state.current is None:
        die()

here.run_study(here.STUDY, store, measure, progress)
"""


def start(store: Store, stage: str = "", number: int = 0) -> subprocess.Popen[bytes]:
    program = CHILD.format(tests=[str(Path(__file__).parent), str(SUPPORT)])
    return subprocess.Popen([sys.executable, "-c", program, str(store.root), stage, str(number)])


def measured(store: Store) -> list[str]:
    """Identities in the order in which their measurement began, over all processes."""
    log = Path(f"{store.root}.log")
    return log.read_text().split() if log.exists() else []


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    while not condition() and process.poll() is None:
        time.sleep(0.001)


def finish(store: Store) -> StudyResult:
    return run_study(STUDY, store, lambda point: keep(store, point), quiet)


@pytest.mark.parametrize("stage", ["before", "written", "renamed", "after", "end"])
def test_killed_at_a_given_stage_it_goes_on(store: Store, stage: str) -> None:
    assert start(store, stage, 4).wait() == -signal.SIGKILL
    begun = {"before": 4, "written": 4, "renamed": 4, "after": 4, "end": 12}[stage]
    kept = {"before": 3, "written": 3, "renamed": 4, "after": 4, "end": 12}[stage]
    assert len(measured(store)) == begun
    assert len(identities(store)) == kept, "nothing lost"
    assert bool(list(store.root.glob(f"{PARTIAL}*"))) == (stage == "written")
    assert finish(store).measured == 12 - kept, "nothing twice"
    assert_each_point_once(store)


def test_killed_at_random_moments_it_goes_on(store: Store) -> None:
    chance = random.Random(20260101)
    kills = 0
    for _ in range(4):
        # It stays after so many points: however late the kill comes, it finds something to kill.
        more = chance.randint(1, 3)
        wanted = len(measured(store)) + more
        process = start(store, "stay", more)
        wait_until(lambda: len(measured(store)) >= wanted, process)  # noqa: B023
        time.sleep(chance.uniform(0, 0.01))
        before = set(identities(store))
        process.kill()
        kills += process.wait() == -signal.SIGKILL
        assert before <= set(identities(store)), "nothing lost"
    assert kills
    finish(store)
    assert_each_point_once(store)
    begun = Counter(measured(store))
    assert sum(begun.values()) <= len(begun) + kills, "only what was cut off is measured again"


def test_a_second_process_is_refused_and_a_killed_one_holds_no_lock(store: Store) -> None:
    process = start(store, "wait")
    try:
        wait_until(lambda: bool(measured(store)), process)
        with pytest.raises(SondaError) as caught:
            run_study(STUDY, store, _never, quiet)
        assert str(caught.value) == (
            f"study kill is being run by process {process.pid} with the same store; "
            "wait for it, or use another $SONDA_HOME"
        )
        other = Study("other", {"workload": "mlp"}, {})
        assert run_study(other, store, lambda point: keep(store, point), quiet).measured == 1
    finally:
        process.kill()
        process.wait()
    assert finish(store).measured == 12
    assert os.path.exists(store.root / "studies")
