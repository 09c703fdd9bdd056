"""The engine of a study: measures every point once, goes on where it was stopped, and keeps points that failed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import msgspec

from sonda.analysis import reasons
from sonda.record.errors import MissingExtraError, SondaError
from sonda.record.files.partial import write_whole
from sonda.record.run import Run
from sonda.record.store import Store, identity_of
from sonda.studies.engine.applicability import why_not
from sonda.studies.engine.lock import hold_lock
from sonda.studies.engine.plan import StudyPoint, is_simulated, plan_points, study_identity
from sonda.studies.file.study import Study, key_of

Measure = Callable[[StudyPoint], Run]
"""Measures a point in a process of its own and keeps the run under the point's identity; raises SondaError."""
Outcome = tuple[StudyPoint, Run | SondaError]
"""A point, and its run or why there is none."""
Spread = Callable[[list[StudyPoint]], Iterator[Outcome]]
"""Measures points elsewhere, several at once; gives each once, in any order."""
NOTHING: Mapping[Path, Run] = MappingProxyType({})


@dataclass(frozen=True)
class StudyProgress:
    """Where a study stands."""

    done: int
    """Points that need no more work now: measured, or failed in this session."""
    total: int
    failed: int
    current: StudyPoint | None
    """What is being measured; None at the end."""
    seconds_left: float | None
    """None while nothing has been measured from which to tell."""
    seconds_after: float | None = None
    """Of `seconds_left`, those after the current point; None as above."""


@dataclass(frozen=True)
class StudyResult:
    """All runs and failures of a study's plan, in the plan's order."""

    study: Study
    runs: tuple[tuple[StudyPoint, Run], ...]
    failures: tuple[tuple[StudyPoint, str], ...]
    """Points that have no complete run, with the reason; tried again at the next start."""
    measured: int
    """How many of the runs were made in this session."""
    inapplicable: tuple[tuple[StudyPoint, str], ...] = ()
    """Points that need no run, with the reason: what sets them apart means nothing where they would run."""


def run_study(
    study: Study,
    store: Store,
    measure: Measure,
    progress: Callable[[StudyProgress], None],
    again: bool = False,
    clock: Callable[[], float] = time.monotonic,
    spread: Spread | None = None,
) -> StudyResult:
    """Measure the points that have no complete run in the store; `again` throws the runs away first. `spread` takes the
    place of `measure` where points are measured elsewhere.

    A point whose measurement raises SondaError, or leaves a run that is not complete, is noted as failed and the study
    goes on. Raises SondaError when another process is running the same study in the same store, and MissingExtraError
    when a package is missing without which nothing can be simulated here.
    """
    with hold_lock(_failures_path(study, store, ".lock"), f"study {study.name}"):
        store.sweep()
        points = plan_points(study)
        failures = Failures(_failures_path(study, store, ".failures.json"))
        if again:
            _remove_runs(store, points)
        _remove_twins(store, points)
        finished = _finished_runs(store, points)
        known = {run.directory: run for run in finished.values()}
        waiting = [point for point in points if point.identity not in finished and not _why_not_measured(study, point)]
        failed = 0
        _remove_runs(store, waiting)  # runs that did not end well; two runs of one point must never be in the store
        teller = _ProgressTeller(len(points) - len(waiting), len(points), waiting, progress, clock)
        for point, outcome in spread(waiting) if spread else _measure_in_turn(waiting, measure, teller):
            try:
                if isinstance(outcome, SondaError):
                    raise outcome
                _check_run(outcome, point)
            except SondaError as error:
                failures.add(point.identity, str(error))
                failed += 1
            else:
                failures.forget(point.identity)
                known[outcome.directory] = outcome
            teller.note_end(point, failed)
            if spread:
                teller.tell_arrival(point)
        progress(StudyProgress(len(points), len(points), failed, None, 0.0))
        _remove_twins(store, points)
        return _collect(study, points, store, len(waiting) - failed, known)


def _measure_in_turn(points: list[StudyPoint], measure: Measure, teller: _ProgressTeller) -> Iterator[Outcome]:
    """Measure the points on this machine, one after the other."""
    for point in points:
        teller.tell_begin(point)
        try:
            yield point, measure(point)
        except MissingExtraError as error:
            if is_simulated(point.configuration):
                raise  # no other point could be simulated either
            yield point, error
        except SondaError as error:
            yield point, error


class _ProgressTeller:
    """Tells how far a study has come, and how long it will still take."""

    def __init__(
        self, done: int, total: int, waiting: list[StudyPoint], progress: Callable[[StudyProgress], None],
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._done, self._total, self._progress, self._clock = done, total, progress, clock
        self._left = list(waiting)
        self._failed = 0
        self._took: dict[str, list[float]] = {}
        self._began = clock()

    def tell_begin(self, point: StudyPoint) -> None:
        left = _seconds_left(self._left, self._took)
        after = _seconds_left([other for other in self._left if other is not point], self._took)
        self._progress(StudyProgress(self._done, self._total, self._failed, point, left, after))
        self._began = self._clock()

    def note_end(self, point: StudyPoint, failed: int) -> None:
        self._took.setdefault(key_of(point.configuration), []).append(self._clock() - self._began)
        self._began = self._clock()
        self._done, self._failed = self._done + 1, failed
        self._left.remove(point)

    def tell_arrival(self, point: StudyPoint) -> None:
        """Tell that a point came from elsewhere. The time left follows from how often points arrive."""
        left = _seconds_left(self._left, {"": [seconds for some in self._took.values() for seconds in some]})
        self._progress(StudyProgress(self._done, self._total, self._failed, point, left))


def load_study_result(study: Study, store: Store) -> StudyResult:
    """What the store holds of a study, measuring nothing."""
    return _collect(study, plan_points(study), store, 0)


def _collect(
    study: Study, points: list[StudyPoint], store: Store, measured: int, known: Mapping[Path, Run] = NOTHING
) -> StudyResult:
    failures = Failures(_failures_path(study, store, ".failures.json")).reasons
    finished = _finished_runs(store, points, known)
    without = {point.identity: why for point in points if (why := _why_not_measured(study, point))}
    return StudyResult(
        study,
        tuple((point, finished[point.identity]) for point in points if point.identity in finished),
        tuple(
            (point, failures.get(point.identity, reasons.NOT_MEASURED_YET))
            for point in points
            if point.identity not in finished and point.identity not in without
        ),
        measured,
        tuple((point, without[point.identity]) for point in points if point.identity in without),
    )


def _why_not_measured(study: Study, point: StudyPoint) -> str:
    return why_not(study, point.configuration)


def _failures_path(study: Study, store: Store, suffix: str) -> Path:
    return store.root / "studies" / f"{study_identity(study)}{suffix}"


def _directories(store: Store, points: Iterable[StudyPoint]) -> dict[str, list[Path]]:
    """The directories of each point's runs, oldest first."""
    wanted = {point.identity for point in points}
    directories: dict[str, list[Path]] = {}
    for directory in reversed(store.directories()):
        identity = identity_of(directory.name)
        if identity in wanted:
            directories.setdefault(identity, []).append(directory)
    return directories


def _finished_runs(store: Store, points: list[StudyPoint], known: Mapping[Path, Run] = NOTHING) -> dict[str, Run]:
    """Complete runs by point identity; the oldest counts. `known` ones are not read again."""
    directories = _directories(store, points)
    complete = {identity: _oldest_complete(some, known) for identity, some in directories.items()}
    return {identity: run for identity, run in complete.items() if run is not None}


def _oldest_complete(directories: list[Path], known: Mapping[Path, Run] = NOTHING) -> Run | None:
    for directory in directories:
        try:
            run = known.get(directory) or Run.load(directory)
        except SondaError:
            continue
        if run.info.status == "complete":
            return run
    return None


def _remove_twins(store: Store, points: list[StudyPoint]) -> None:
    """Leave one run of each point: a process that outlived its killed study may have kept its run after all."""
    for directories in _directories(store, points).values():
        if len(directories) == 1:
            continue  # that needs no reading
        complete = _oldest_complete(directories)
        keep = complete.directory if complete else directories[-1]
        for directory in directories:
            if directory != keep:
                store.remove(directory)


def _remove_runs(store: Store, points: list[StudyPoint]) -> None:
    for directories in _directories(store, points).values():
        for directory in directories:
            store.remove(directory)


def _check_run(run: Run, point: StudyPoint) -> None:
    if run.id != point.identity:
        raise SondaError(
            f"the run of point {point.identity} was kept as {run.id}", "keep it under the point's identity"
        )
    if run.info.status != "complete":
        reason = run.info.notes[-1] if run.info.notes else f"exit code {run.info.exit_code}"
        raise SondaError(f"the run is {run.info.status}: {reason}", f"see: sonda show {run.id}")


def _seconds_left(waiting: list[StudyPoint], took: dict[str, list[float]]) -> float | None:
    """The median of what each configuration took; of all of them for a configuration that has not had its turn."""
    if not took:
        return None
    medians = {key: statistics.median(seconds) for key, seconds in took.items()}
    otherwise = statistics.median(medians.values())
    return sum(medians.get(key_of(point.configuration), otherwise) for point in waiting)


# ---- Points that failed, with their reasons, kept beside the runs until they succeed --------------------------------


class Failures:
    """Reasons by point identity, in one small file that is replaced whole at every change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.reasons = msgspec.json.decode(path.read_bytes(), type=dict[str, str])
        except (OSError, msgspec.MsgspecError):
            # The points they speak of are measured again at the next start, so a lost file loses nothing else.
            self.reasons = {}

    def add(self, identity: str, reason: str) -> None:
        self.reasons[identity] = reason
        self._write()

    def forget(self, identity: str) -> None:
        if self.reasons.pop(identity, None) is not None:
            self._write()

    def _write(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, msgspec.json.format(msgspec.json.encode(self.reasons), indent=1))
        except OSError as error:
            raise SondaError(
                f"cannot write {self.path}: {error.strerror}",
                "free some space, or point $SONDA_HOME at a directory that can be written",
            ) from None
