"""An exploration: a workload on every accelerator of a space, kept as one run whose points are its rows.

It goes batch by batch, wherever the executor has room; what has come is on disk, and a stopped exploration goes on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sonda.record.errors import SondaError
from sonda.record.progress import Say
from sonda.record.run import POINTS, SPANS, Run, RunInfo, keep_run, now
from sonda.record.store import Store
from sonda.record.target import ExplorationTarget
from sonda.record.workload import Workload
from sonda.studies.executors.executor import Executor, ExecutorTask, TaskResult, ThisProcess, Work
from sonda.studies.explore.pareto import Numbers, knee_row, least_row, pareto_front
from sonda.studies.explore.parts import ExplorationPart, ExplorationTotal, PartOrder, PartsFolder, explore_part
from sonda.studies.explore.points import add_front
from sonda.studies.explore.space import ON, count_points, cut_grid
from sonda.targets.instrument import NO_SPANS, Circumstances, Draft, Launcher, Observation, RunPlan
from sonda.targets.job import Job
from sonda.targets.pipeline import make_run
from sonda.targets.simulated.design_space import AND, MAPPING, values_by_field
from sonda.targets.simulated.exploration import Grid, make_grid
from sonda.version import VERSION

DEFAULT = "default"
"""The word for the mapping that a description gives or a rule chooses."""
OBVIOUS = {"dlrm": "sim:dlrm-hybrid"}
"""Where a workload is explored when nobody says."""
ELSE = "sim:maeri-256"
BATCH = 20_000
"""Points of a batch: what hides the cost of giving it to somebody, and what a process holds at once."""
NUMBER = re.compile(r"\d+(?:\.\d+)?")
MOST_REASONS = 50
BY_TIME = "clocks differ: points are compared by their time, cycles over clock"
BY_CYCLES = "clocks differ and some points have none: points are compared by cycles, which are not times"


def explore(
    job: Job,
    space: Mapping[str, Sequence[str]],
    store: Store,
    tags: Sequence[str] = (),
    say: Say = lambda text: None,
    executor: Executor | None = None,
    batch: int = BATCH,
) -> Run:
    """Simulate the job at every point of the space and keep them as one run.

    `space` has values by field: those of a description, `mapping`, and `on` for targets; fields whose names are joined
    by commas vary in step. `job.on` is where to go where `on` does not vary; where it is empty too, an obvious
    accelerator. `executor` is where batches of `batch` points run, this process unless given. Raises SondaError when
    nothing varies, when a field is unknown, when no point is possible, or when a batch fails; batches that are done
    stay, and the same exploration goes on from there.
    """
    grid, axes, targets = check_space(job, space)
    orders = [
        PartOrder(grid.job, grid.zeros, on, piece, axes, targets)
        for on in targets
        for piece in cut_grid(grid.axes[on], max(batch, 1))
    ]
    folder = PartsFolder(store, VERSION, orders, grid.descriptions)

    def simulate(say: Say) -> SimulatedPoints:
        total, seconds = _explore_parts(orders, folder, executor or ThisProcess(), say)
        return SimulatedPoints(total, seconds)

    return keep_exploration(ExplorationLauncher(grid, axes, space, targets, folder, simulate), store, tags, say)


def check_space(
    job: Job, space: Mapping[str, Sequence[str]]
) -> tuple[Grid, dict[str, tuple[str, ...]], tuple[str, ...]]:
    """The grid, its axes and its targets. Raises SondaError."""
    if not space:
        raise SondaError("nothing varies", "give for example --vary multipliers=64..1024*2")
    count_points(space)
    for name, value in ((ON, job.on), (MAPPING, job.mapping)):
        if value and name in space:
            raise SondaError(f"{name} is given as {value} and varies", f"leave out --{name} or --vary {name}=…")
    targets = tuple(space.get(ON, (job.on or OBVIOUS.get(job.workload, ELSE),)))
    axes = {key: tuple(values) for key, values in space.items() if key != ON}
    if MAPPING in axes:
        axes[MAPPING] = tuple("" if value == DEFAULT else value for value in axes[MAPPING])
    return make_grid(job, targets, axes), axes, targets


def _explore_parts(
    orders: list[PartOrder], folder: PartsFolder, executor: Executor, say: Say
) -> tuple[ExplorationTotal, float]:
    """All parts, those of an earlier start too, and the seconds of exploring: of this process, or on the clock where
    several work at once; an earlier start's parts count with what they took, divided among the workers."""
    total = ExplorationTotal()
    for number, part in folder.known():
        total.add(number, part)
    earlier = sum(part.seconds for part in total.parts.values()) / executor.workers
    if total.parts:
        say(f"{len(total):,} points of an earlier start are there already")
    count = len(orders)
    tasks = [ExecutorTask(number, order) for number, order in enumerate(orders) if number not in total.parts]
    if tasks:
        say(f"looking at the operations of {orders[0].job.workload}")
    begin = time.perf_counter()
    for _ in collect_parts(executor, explore_part, tasks, folder, total):
        if count > 1:
            say(f"{len(total):,} points, {len(total.parts)} of {count} batches; {total.so_far}")
    spent = time.perf_counter() - begin + earlier
    return total, sum(part.seconds for part in total.parts.values()) if executor.workers == 1 else spent


def collect_parts(
    executor: Executor, work: Work, tasks: Sequence[ExecutorTask], folder: PartsFolder, total: ExplorationTotal
) -> Iterator[tuple[int, ExplorationPart]]:
    """Parts as they come, kept and added up. Raises SondaError at the end for those that did not come; all others are
    kept."""
    failures: list[TaskResult] = []
    for done in executor.run(work, tasks):
        if done.failure:
            failures.append(done)
            if not done.lost:
                break  # what one batch cannot do, no other can
            continue
        folder.add(done.number, done.value)
        total.add(done.number, done.value)
        yield done.number, done.value
    if failures:
        reassurance = f" ({len(total):,} points are kept and need not be simulated again)" if total.parts else ""
        raise SondaError(failures[0].failure + reassurance, failures[0].remedy)


@dataclass(frozen=True)
class SimulatedPoints:
    """All points that were simulated, and the seconds that they took. `searched` says that there are others."""

    total: ExplorationTotal
    seconds: float
    searched: str = ""


def keep_exploration(launcher: ExplorationLauncher, store: Store, tags: Sequence[str], say: Say) -> Run:
    """Simulate the points and keep them as one run with these tags. Raises SondaError as the launcher does."""
    for tag in tags:
        store.check_tag(tag)
    run = make_run(launcher, [], store, say=say)
    for tag in tags:
        store.tag(run.id, tag)
    return run


class ExplorationLauncher(Launcher):
    """Simulates the points of a space, of which nothing is measured.

    Raises SondaError where no point is possible; its parts are then of no use, and gone.
    """

    kind = "exploration"
    offers = frozenset()

    def __init__(
        self, grid: Grid, axes: Mapping[str, Sequence[str]], space: Mapping[str, Sequence[str]],
        targets: Sequence[str], folder: PartsFolder, simulate: Callable[[Say], SimulatedPoints],
    ) -> None:  # fmt: skip
        self.grid, self.axes, self.space, self.targets = grid, axes, space, targets
        self.folder, self.simulate = folder, simulate
        self._held = ExitStack()

    def plan(self, store: Store, directory: Path, say: Say) -> RunPlan:
        self._held.enter_context(self.folder.hold())
        return RunPlan(self.kind, store, directory, say, self.grid.job)

    def launch(self, plan: RunPlan, environment: Mapping[str, str]) -> None:
        self.simulated = self.simulate(plan.say)
        plan.say("comparing points")

    def observe(self, plan: RunPlan) -> Observation:
        total, searched, grid = self.simulated.total, self.simulated.searched, self.grid
        impossible = total.counts("impossible")
        if not total.possible:
            self.folder.remove()
            tried = f"none of {len(total):,} simulated points" if searched else "no point"
            raise SondaError(
                f"{tried} is possible: {max(impossible, key=lambda reason: impossible[reason])}",
                f"{'search more of them, ' if searched else ''}vary other values, or give what is missing with --set",
            )
        names = total.objectives
        rows, objectives, on_host = total.candidates()
        front, compared = _front(objectives, on_host.codes, on_host.words)
        self.on_front = rows[front]
        among = np.where(compared[:, None], objectives, np.nan)
        return Observation(
            NO_SPANS,
            workload=Workload.of(grid.workload),
            target=ExplorationTarget.of(
                spec=",".join(self.targets),
                device="exploration",
                options={"mapping": grid.job.mapping, "set": grid.job.set},
                descriptions=grid.descriptions,
                exploration={
                    "axes": {
                        field: list(dict.fromkeys(values)) for field, values in values_by_field(self.space).items()
                    },
                    "together": [key.split(AND) for key in self.space if AND in key],
                    "points": len(total),
                    "possible": total.possible,
                    "impossible": _group_reasons(impossible),
                    "unpriced": _group_reasons(total.counts("unpriced"))
                    + _incomplete_points(total.counts("lacking"), names),
                    "front": int(front.sum()),
                    "objectives": list(names),
                    "by_time": _clock_note(total) == BY_TIME,
                    "best": {name: _row(rows, least_row(among, place)) for place, name in enumerate(names)},
                    "knee": _row(rows, knee_row(among)),
                    "on_host": sorted(total.counts("on_host")),
                    "simulations": sum(part.simulations for part in total.parts.values()),
                    "seconds": self.simulated.seconds,
                },
            ),
            circumstances=Circumstances(
                now(), grid.machine, grid.versions,
                notes=[*filter(None, [searched, _clock_note(total)]), *_notes(grid, self.axes, total)],
            ),
        )  # fmt: skip

    def keep(self, plan: RunPlan, draft: Draft) -> Run:
        def fill(partial: Path) -> RunInfo:
            total = self.simulated.total
            _write(partial, _tables(total, self.folder, self.on_front, total.units))
            return draft.info

        run = keep_run(plan.store.root, fill)
        self.folder.remove()
        return run

    def close(self) -> None:
        self._held.close()


def _tables(total: ExplorationTotal, folder: PartsFolder, on_front: Any, units: tuple[str, str]) -> Iterator[Any]:
    """The points of one part after the other, with their place on the front."""
    first = 0
    for number in sorted(total.parts):
        count = total.parts[number].points
        front = np.zeros(count, dtype=bool)
        front[on_front[(on_front >= first) & (on_front < first + count)] - first] = True
        yield _with_units(add_front(folder.table(number), front), units)
        first += count


def _with_units(table: Any, units: tuple[str, str]) -> Any:
    """A part none of whose points is possible knows no units of its own."""
    for place, field in enumerate(table.schema):
        for name, unit in zip(("energy", "area"), units, strict=True):
            if field.name.startswith((f"{name}:", f"{name}_")):
                table = table.set_column(place, field.with_metadata({"unit": unit}), table.column(place))
    return table


def _write(partial: Path, tables: Iterator[Any]) -> None:
    import pyarrow.parquet as pq

    writer = None
    for table in tables:
        writer = writer or pq.ParquetWriter(partial / POINTS, table.schema, compression="zstd")
        writer.write_table(table.cast(writer.schema))
    if writer is not None:
        writer.close()
    pq.write_table(NO_SPANS.to_arrow(), partial / SPANS)


def _row(rows: Any, place: int) -> int:
    return int(rows[place]) if place >= 0 else -1


def _clock_note(total: ExplorationTotal) -> str:
    """What cycles are worth where points have different clocks; '' where all have the same or none."""
    clocks = np.array(total.clocks)
    if len(clocks) == 1:
        return ""
    return BY_CYCLES if np.isnan(clocks).any() else BY_TIME


def _front(objectives: Numbers, groups: Any, words: Sequence[str]) -> tuple[Any, Any]:
    """Masks of the front, and of the points among which the best are sought.

    Points that leave other operations to the host do not do the same work: each such group has a front of its own, and
    the best are sought where the fewest operations are left.
    """
    front = np.zeros(len(objectives), dtype=bool)
    for group in np.unique(groups):
        inside = np.flatnonzero(groups == group)
        front[inside] = pareto_front(objectives[inside])
    priced = groups[~np.isnan(objectives).any(axis=1)]
    fewest = min(np.unique(priced), key=lambda group: sum(map(int, NUMBER.findall(words[group]))), default=-1)
    return front, groups == fewest


def _group_reasons(counts: Mapping[str, int]) -> list[dict[str, Any]]:
    """Reasons that differ in numbers only, together: for how many points, and one in full; the most frequent first."""
    groups: dict[str, dict[str, Any]] = {}
    for reason, count in counts.items():
        like = NUMBER.sub("N", reason.partition("; ")[0])
        group = groups.setdefault(like, {"reason": like, "points": 0, "example": reason})
        group["points"] += count
    return sorted(groups.values(), key=lambda group: (-group["points"], group["reason"]))[:MOST_REASONS]


def _incomplete_points(lacking: Mapping[str, int], names: Sequence[str]) -> list[dict[str, Any]]:
    """Points that lack an objective which others have, though nothing stands in its way but the table."""
    groups = []
    for name in names:
        if lacking.get(name):
            reason = f"the energy table has no {name} for anything there"
            groups.append({"reason": reason, "points": lacking[name], "example": reason})
    return groups


def _notes(grid: Grid, axes: Mapping[str, Sequence[str]], total: ExplorationTotal) -> list[str]:
    notes = [*total.words("notes"), *_kept_tiles(grid, axes)]
    for key in axes:
        without = [on for on, own in grid.axes.items() if key not in own]
        if without:
            notes.append(f"{', '.join(without)} does not have {key}: it is taken once for all values")
    missing = sorted(total.words("missing"))
    for what, ending in (("area", " AREA"), ("static energy", " STATIC"), ("energy", "")):
        lacking = [name for name in missing if name.partition(" (")[0].endswith(ending)]
        missing = [name for name in missing if name not in lacking]
        if lacking:
            notes.append(f"no {what} in the table, so in no figure: {', '.join(_shorten_names(lacking, ending))}")
    recalled = sorted(total.words("recalled"))
    if recalled:
        notes.append(f"recalled, verified by nobody: {', '.join(recalled)}")
    notes.append("area: the engines that work, and one global buffer for all of them")
    return notes


def _kept_tiles(grid: Grid, axes: Mapping[str, Sequence[str]]) -> list[str]:
    """A tile that a description gives holds at all its points, so that a larger engine may stay idle."""
    if "" not in axes.get(MAPPING, (grid.job.mapping,)):
        return []
    tiled = {
        f"{on} ({name})": None
        for on, description in grid.descriptions.items()
        for name, engine in description["engines"].items()
        if engine["tile"] or engine["convolution_tile"]
    }
    if not tiled or any("tile" in key for key in axes):
        return []
    return [f"the description's tiles hold at every point of {', '.join(tiled)}; --mapping best chooses them anew"]


def _shorten_names(names: list[str], ending: str) -> list[str]:
    """Names without the ending that all of them share."""
    return [name.replace(ending, "", 1) if ending else name for name in names]
