"""The engine of a study: measures every point once, and goes on where it was stopped."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.record.store import Store, identity_of
from sonda.studies.applicability import why_not
from sonda.studies.failures import Failures
from sonda.studies.lock import only_one
from sonda.studies.plan import Point, plan, study_identity
from sonda.studies.study import Study, key_of

Measure = Callable[[Point], Run]
"""Measures a point in a process of its own and keeps the run under the point's identity; raises SondaError."""
Outcome = tuple[Point, Run | SondaError]
"""A point, and its run or why there is none."""
Spread = Callable[[list[Point]], Iterator[Outcome]]
"""Measures points elsewhere, several at once; gives each once, in any order."""
NOTHING: Mapping[Path, Run] = MappingProxyType({})


@dataclass(frozen=True)
class Progress:
    """Where a study stands."""

    done: int
    """Points that need no more work now: measured, or failed in this session."""
    total: int
    failed: int
    current: Point | None
    """What is being measured; None at the end."""
    seconds_left: float | None
    """None while nothing has been measured from which to tell."""


@dataclass(frozen=True)
class StudyResult:
    """All runs and failures of a study's plan, in the plan's order."""

    study: Study
    runs: tuple[tuple[Point, Run], ...]
    failures: tuple[tuple[Point, str], ...]
    """Points that have no complete run, with the reason; tried again at the next start."""
    measured: int
    """How many of the runs were made in this session."""
    inapplicable: tuple[tuple[Point, str], ...] = ()
    """Points that need no run, with the reason: what sets them apart means nothing where they would run."""


def run_study(
    study: Study,
    store: Store,
    measure: Measure,
    progress: Callable[[Progress], None],
    again: bool = False,
    clock: Callable[[], float] = time.monotonic,
    spread: Spread | None = None,
) -> StudyResult:
    """Measure the points that have no complete run in the store; `again` throws the runs away first. `spread` takes the
    place of `measure` where points are measured elsewhere.

    A point whose measurement raises SondaError, or leaves a run that is not complete, is noted as failed and the study
    goes on. Raises SondaError when another process is running the same study in the same store.
    """
    with only_one(_beside(study, store, ".lock"), f"study {study.name}"):
        store.sweep()
        points = plan(study)
        failures = Failures(_beside(study, store, ".failures.json"))
        if again:
            _throw_away(store, points)
        _remove_twins(store, points)
        finished = _finished(store, points)
        known = {run.directory: run for run in finished.values()}
        waiting = [point for point in points if point.identity not in finished and not _why(study, point)]
        failed = 0
        _throw_away(store, waiting)  # runs that did not end well; two runs of one point must never be in the store
        told = _Told(len(points) - len(waiting), len(points), waiting, progress, clock)
        for point, found in spread(waiting) if spread else _one_by_one(waiting, measure, told):
            try:
                if isinstance(found, SondaError):
                    raise found
                _check(found, point)
            except SondaError as error:
                failures.add(point.identity, str(error))
                failed += 1
            else:
                failures.forget(point.identity)
                known[found.directory] = found
            told.ended(point, failed)
            if spread:
                told.came(point)
        progress(Progress(len(points), len(points), failed, None, 0.0))
        _remove_twins(store, points)
        return _collect(study, points, store, len(waiting) - failed, known)


def _one_by_one(points: list[Point], measure: Measure, told: _Told) -> Iterator[Outcome]:
    """On this machine one measurement at a time."""
    for point in points:
        told.begins(point)
        try:
            yield point, measure(point)
        except SondaError as error:
            yield point, error


class _Told:
    """Tells how far a study is, and how long it will still take."""

    def __init__(
        self, done: int, total: int, waiting: list[Point], progress: Callable[[Progress], None],
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._done, self._total, self._progress, self._clock = done, total, progress, clock
        self._left = list(waiting)
        self._failed = 0
        self._took: dict[str, list[float]] = {}
        self._began = clock()

    def begins(self, point: Point) -> None:
        left = _seconds_left(self._left, self._took)
        self._progress(Progress(self._done, self._total, self._failed, point, left))
        self._began = self._clock()

    def ended(self, point: Point, failed: int) -> None:
        self._took.setdefault(key_of(point.configuration), []).append(self._clock() - self._began)
        self._began = self._clock()
        self._done, self._failed = self._done + 1, failed
        self._left.remove(point)

    def came(self, point: Point) -> None:
        """The same where points are measured elsewhere: what counts is how often one comes."""
        left = _seconds_left(self._left, {"": [one for some in self._took.values() for one in some]})
        self._progress(Progress(self._done, self._total, self._failed, point, left))


def load_study_result(study: Study, store: Store) -> StudyResult:
    """What the store holds of a study, measuring nothing."""
    return _collect(study, plan(study), store, 0)


def _collect(
    study: Study, points: list[Point], store: Store, measured: int, known: Mapping[Path, Run] = NOTHING
) -> StudyResult:
    reasons = Failures(_beside(study, store, ".failures.json")).reasons
    finished = _finished(store, points, known)
    without = {point.identity: why for point in points if (why := _why(study, point))}
    return StudyResult(
        study,
        tuple((point, finished[point.identity]) for point in points if point.identity in finished),
        tuple(
            (point, reasons.get(point.identity, "not measured yet"))
            for point in points
            if point.identity not in finished and point.identity not in without
        ),
        measured,
        tuple((point, without[point.identity]) for point in points if point.identity in without),
    )


def _why(study: Study, point: Point) -> str:
    return why_not(study, point.configuration)


def _beside(study: Study, store: Store, suffix: str) -> Path:
    return store.root / "studies" / f"{study_identity(study)}{suffix}"


def _directories(store: Store, points: Iterable[Point]) -> dict[str, list[Path]]:
    """The directories of each point's runs, oldest first."""
    wanted = {point.identity for point in points}
    found: dict[str, list[Path]] = {}
    for directory in reversed(store.directories()):
        identity = identity_of(directory.name)
        if identity in wanted:
            found.setdefault(identity, []).append(directory)
    return found


def _finished(store: Store, points: list[Point], known: Mapping[Path, Run] = NOTHING) -> dict[str, Run]:
    """Complete runs by point identity; the oldest counts. `known` ones are not read again."""
    directories = _directories(store, points)
    found = {identity: _oldest_complete(some, known) for identity, some in directories.items()}
    return {identity: run for identity, run in found.items() if run is not None}


def _oldest_complete(directories: list[Path], known: Mapping[Path, Run] = NOTHING) -> Run | None:
    for directory in directories:
        try:
            run = known.get(directory) or Run.load(directory)
        except SondaError:
            continue
        if run.info.status == "complete":
            return run
    return None


def _remove_twins(store: Store, points: list[Point]) -> None:
    """Leave one run of each point: a process that outlived its killed study may have kept its run after all."""
    for directories in _directories(store, points).values():
        if len(directories) == 1:
            continue  # that needs no reading
        complete = _oldest_complete(directories)
        keep = complete.directory if complete else directories[-1]
        for directory in directories:
            if directory != keep:
                store.remove(directory)


def _throw_away(store: Store, points: list[Point]) -> None:
    for directories in _directories(store, points).values():
        for directory in directories:
            store.remove(directory)


def _check(run: Run, point: Point) -> None:
    if run.id != point.identity:
        raise SondaError(
            f"the run of point {point.identity} was kept as {run.id}", "keep it under the point's identity"
        )
    if run.info.status != "complete":
        reason = run.info.notes[-1] if run.info.notes else f"exit code {run.info.exit_code}"
        raise SondaError(f"the run is {run.info.status}: {reason}", f"see: sonda show {run.id}")


def _seconds_left(waiting: list[Point], took: dict[str, list[float]]) -> float | None:
    """The median of what each configuration took; of all of them for a configuration that has not had its turn."""
    if not took:
        return None
    medians = {key: statistics.median(seconds) for key, seconds in took.items()}
    otherwise = statistics.median(medians.values())
    return sum(medians.get(key_of(point.configuration), otherwise) for point in waiting)
