"""What an exploration means: its front and the best points, as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sonda.analysis import reasons
from sonda.analysis.findings import Finding, Remark
from sonda.analysis.simulated.findings import BestDesign, BestDesigns, NothingCompared
from sonda.analysis.summary import TABLES, Summary, Value, list_experiment
from sonda.analysis.wording import duration
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.record.simulated import PointReason
from sonda.record.target import ExplorationTarget

OBJECTIVES = ("cycles", "energy", "area")
AXIS_END = "cycles:simulated"
"""The column before which all are settings."""
CLOCK = "clock:nominal"
PREFIXES = ((1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"), (1e-9, "nJ"), (1e-12, "pJ"))


@dataclass(frozen=True, repr=False)
class Point:
    """One design."""

    number: int
    """Its row."""
    settings: dict[str, Any]
    """What varies, without fields that its accelerator does not have."""
    values: dict[str, Value]
    """Cycles, energy, area, memory_cycles, and time where it has a clock."""
    on_host: str
    """Operations that no engine takes, in words; '' where there are none."""
    equal: int = 0
    """Other points with the same cycles, energy and area."""

    @property
    def words(self) -> str:
        """`multipliers=64 read_ports=16`."""
        return " ".join(f"{key}={value}" for key, value in self.settings.items())

    def __repr__(self) -> str:
        figures = ", ".join(amount(self.values[name]) for name in OBJECTIVES if self.values[name].value is not None)
        return f"<point {self.number}: {self.words}: {figures}>"


@dataclass(frozen=True)
class Exploration:
    """An exploration that was kept."""

    run: str
    title: str
    subtitle: str
    axes: dict[str, list[str]]
    """Values by field."""
    points: int
    possible: int
    impossible: tuple[PointReason, ...]
    """The most frequent reason first."""
    unpriced: tuple[PointReason, ...]
    """The same for points that lack energy or area and so are not compared."""
    objectives: tuple[str, ...]
    """What is to be small and is known."""
    front: tuple[Point, ...]
    """The fastest first; those equal in all objectives are one."""
    best: dict[str, Point]
    """By objective; `knee` has the least product of all of them."""
    on_host: tuple[str, ...]
    """What points leave to the host, in words; several where they differ."""
    seconds: float
    simulations: int
    notes: tuple[Finding, ...]
    together: tuple[tuple[str, ...], ...] = ()
    """Fields that vary in step."""
    by_time: bool = False
    """Clocks differ: what ends first is the fastest, however many cycles it takes."""

    @property
    def speed(self) -> str:
        """What says how fast a point is: its `cycles`, or its `time` where clocks differ."""
        return "time" if self.by_time else "cycles"

    def value(self, point: Point, objective: str) -> Value:
        """What a point has of an objective, as it is compared."""
        return point.values[self.speed if objective == "cycles" else objective]

    @property
    def rate(self) -> float:
        """Points per second."""
        return self.points / self.seconds if self.seconds else 0.0

    @property
    def finding(self) -> Finding:
        """The fastest, the one with the least energy, the smallest, and the best trade."""
        if not self.best:
            return NothingCompared()
        leading: dict[int, list[str]] = {}
        for name, point in self.best.items():
            if name in OBJECTIVES:
                leading.setdefault(point.number, []).append(name)
        points = {point.number: point for point in self.best.values()}
        best = tuple(self._design(points[number], names) for number, names in leading.items())
        return BestDesigns(best, self._design(self.best["knee"], self.objectives))

    def _design(self, point: Point, objectives: Iterable[str]) -> BestDesign:
        values = tuple((name, self.value(point, name)) for name in objectives)
        return BestDesign(point.number, tuple(point.settings.items()), values)


def explored(run: Run, title: str = "") -> Exploration:
    """The exploration that a run holds. Raises SondaError when it cannot be read."""
    if not isinstance(run.info.target, ExplorationTarget):
        raise SondaError(f"{run.directory.name} holds no exploration", "explore again")
    facts = run.info.target.exploration
    table = run.points
    names = table.column_names
    try:
        settings = names[: names.index(AXIS_END)]
        several = len(facts.axes.get("on", ())) > 1
        settings = [name for name in settings if name != "on" or several]
        best = {name: row for name, row in {**facts.best, "knee": facts.knee}.items() if row >= 0}
        by_time = bool(facts.by_time) and CLOCK in names
        on_front = _front_rows(table, by_time)
        points = _points(table, [*on_front, *best.values()], settings)
        return Exploration(
            run=run.id,
            title=title or run.info.workload.name,
            subtitle=run.info.target.spec,
            axes=facts.axes,
            points=facts.points,
            possible=facts.possible,
            impossible=tuple(facts.impossible),
            unpriced=tuple(facts.unpriced),
            objectives=tuple(facts.objectives),
            front=_without_equals(points[: len(on_front)], [*facts.objectives, *(["time"] if by_time else [])]),
            best=dict(zip(best, points[len(on_front) :], strict=True)),
            on_host=tuple(facts.on_host),
            seconds=facts.seconds,
            simulations=facts.simulations,
            notes=tuple(map(Remark, run.info.notes)),
            together=tuple(map(tuple, facts.together or ())),
            by_time=by_time,
        )
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise SondaError(f"{run.directory.name} holds no exploration ({error})", "explore again") from None


def summarise_exploration(run: Run, title: str) -> Summary:
    """An exploration where summaries of runs are listed: what it found, no parts."""
    exploration = explored(run, title)
    return list_experiment(
        run, exploration, f"{exploration.subtitle} · {exploration.points:,} points", reasons.EXPLORATION_HAS_NO_ROOF
    )


def amount(value: Value) -> str:
    """`1,204 cycles`, `1.2 µs`, `18.6 nJ`, `4.1 mm2`."""
    if value.value is None:
        return "unknown"
    if value.unit == "cycle":
        return f"{value.value:,.0f} cycle{'' if value.value == 1 else 's'}"
    if value.unit == "ns":
        return duration(value.value)
    if value.unit == "J":
        for factor, name in PREFIXES:
            if value.value >= factor:
                return f"{value.value / factor:.3g} {name}"
    return f"{value.value:.3g} {value.unit}"


def times(table: Any) -> Any:
    """ns of every point: cycles over clock; NaN without a clock."""
    import numpy as np

    cycles, clocks = (table[name].to_numpy(zero_copy_only=False).astype(np.float64) for name in (AXIS_END, CLOCK))
    return 1e9 * cycles / clocks


def _front_rows(table: Any, by_time: bool) -> list[int]:
    """Rows of the front, the fastest first, then by their number."""
    import numpy as np

    rows = np.flatnonzero(table["front"].to_numpy())
    speed = times(table)[rows] if by_time else table[AXIS_END].to_numpy()[rows]
    return [int(row) for row in rows[np.argsort(speed, kind="stable")]]


def _points(table: Any, rows: list[int], settings: list[str]) -> list[Point]:
    units = {field.name: (field.metadata or {}).get(b"unit", b"1").decode() for field in table.schema}
    return [
        Point(
            row,
            {name: read[name] for name in settings if read[name] is not None},
            {**{name: _value(read, name, units) for name in (*OBJECTIVES, "memory_cycles")}, **_time(read)},
            read["on_host"] or "",
        )
        for row, read in zip(rows, table.take(rows).to_pylist(), strict=True)
    ]


def _value(read: dict[str, Any], name: str, units: Mapping[str, str]) -> Value:
    low, high = (read.get(f"{name}_{side}:simulated") for side in ("low", "high"))
    column = f"{name}:simulated"
    bounds = TABLES if low is not None else ""
    return Value(read[column], units[column], "simulated", low, high, read["unpriced"] or "", bounds=bounds)


def _time(read: dict[str, Any]) -> dict[str, Value]:
    clock = read.get(CLOCK)
    return {"time": Value(1e9 * read[AXIS_END] / clock, "ns", "simulated")} if clock else {}


def _without_equals(front: list[Point], objectives: list[str]) -> tuple[Point, ...]:
    groups: dict[Any, list[Point]] = {}
    for point in front:
        key = (point.on_host, *(point.values[name].value for name in objectives))
        groups.setdefault(key, []).append(point)
    return tuple(
        Point(some[0].number, some[0].settings, some[0].values, some[0].on_host, len(some) - 1)
        for some in groups.values()
    )
