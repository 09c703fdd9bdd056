"""The tables of a summary: phases, layers, and several summaries side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sonda.analysis import reasons
from sonda.analysis.summary import LayerRow, PartSummary, SimulatedCost, Summary, Value
from sonda.record.quantities import LEVELS, Metric
from sonda.report import quantities
from sonda.report.blocks import Bar
from sonda.report.cost_quantities import cost_columns
from sonda.report.table import Cell, Column, Table, build, numbers, percents, quantity, shares, tone_of, words
from sonda.report.views.counters.system import in_table
from sonda.report.words.names import layer_label

_HINTS = {
    "share": "share of the step's median time",
    "bound": "what explains at least half of the time",
    "peak": "highest sum of live tensors",
    "activations": "memory first taken in this layer's forward and still held when forward ended",
    "own": "forward and backward per step, without what the layers inside took",
    "host": "time per step on the host's clock: what launching took",
    "busy": "time per step in which the GPU worked, from steps whose kernels were recorded",
    "kernels": "time per step of the kernels that it launched, layers inside included",
}


def phase_table(part: PartSummary) -> Table:
    """Phases of a step in their order, one row each; times are medians per step."""
    costs = [row.cost for row in part.phases]
    time_unit, times = numbers([cost.time for cost in costs])
    _, peaks = numbers([row.peak_memory for row in part.phases], suffix=True)
    names = [Cell(row.name, row.name, tone="name") for row in part.phases]
    sides: list[tuple[Column, list[Cell]]] = []
    if part.device is not None:
        nothing = Value(0.0, "ns", "measured")
        busy_unit, busy = numbers([row.busy or nothing for row in part.phases])
        host_unit, host = numbers([row.host or nothing for row in part.phases])
        sides = [
            (Column(f"busy {busy_unit}", keep=4, hint=_HINTS["busy"]), busy),
            (Column(f"host {host_unit}", keep=4, hint=_HINTS["host"]), host),
        ]
    return build(
        [
            (Column("phase", right=False), names),
            (Column(time_unit, hint="time per step, median over timed steps"), times),
            (Column("%", hint=_HINTS["share"]), shares([cost.share for cost in costs], "the step")),
            *sides,
            *cost_columns(costs, "phases"),
            (Column("bound", right=False, keep=6, hint=_HINTS["bound"]), words([c.bound for c in costs], tone_of)),
            (Column("peak memory", keep=3, hint=_HINTS["peak"]), peaks),
        ],
        "phases",
    )


@dataclass(frozen=True)
class LayerChoice:
    """The layers that a short table shows, and what it leaves out."""

    shown: tuple[LayerRow, ...]
    leaves: int
    rest: Value
    """ns per step in the leaves that are not shown."""
    containers: Value
    """ns per step in the own code of layers that hold other layers."""
    container: LayerRow | None
    """The one of these with the most own time, where that is more than some layer's that is shown."""


def choose_layers(part: PartSummary, limit: int) -> LayerChoice:
    """The `limit` leaves with the most own time, most first."""
    leaves = sorted((row for row in part.layers if row.leaf), key=_own)
    containers = sorted((row for row in part.layers if not row.leaf), key=_own)
    worth = bool(containers and leaves[:limit]) and _own(containers[0]) < _own(leaves[:limit][-1])
    return LayerChoice(
        tuple(leaves[:limit]),
        len(leaves),
        _total(leaves[limit:]),
        _total(containers),
        containers[0] if worth else None,
    )


def _own(row: LayerRow) -> float:
    """Sorts the most first."""
    return -(row.own.value or 0.0)


def layer_table(rows: Sequence[LayerRow], title: str, own: bool = False) -> Table:
    """One row for each of these layers, in the order given; `own` adds the time without the layers inside."""
    names = [Cell(layer_name(row), row.path, hint=layer_hint(row), tone="name") for row in rows]
    unit, times = numbers([row.forward for row in rows] + [row.backward for row in rows])
    forward, backward = times[: len(rows)], times[len(rows) :]
    costs = [row.cost for row in rows]
    _, activations = numbers([row.activations for row in rows], suffix=True)
    own_unit, owns = numbers([row.own for row in rows])
    extra = [(Column(f"own {own_unit}", keep=4, hint=_HINTS["own"]), owns)] if own else []
    hosts = [row.host for row in rows if row.host is not None]
    if len(hosts) == len(rows) and hosts:
        host_unit, cells = numbers(hosts)
        extra.append((Column(f"host {host_unit}", keep=3, hint=_HINTS["host"]), cells))
    hint = _HINTS["kernels"] if hosts else "time per step, layers inside included"
    return build(
        [
            (Column(title, right=False, path=True), names),
            (Column("type", right=False, keep=type_keep(rows)), words([row.name for row in rows])),
            (Column(f"forward {unit}", hint=hint), forward),
            (Column(f"backward {unit}", hint=hint), backward),
            *extra,
            (Column("%", keep=4, hint=_HINTS["share"]), shares([cost.share for cost in costs], "the step")),
            *cost_columns(costs, "layers"),
            (Column("bound", right=False, keep=6, hint=_HINTS["bound"]), words([c.bound for c in costs], tone_of)),
            (Column("activations", keep=3, hint=_HINTS["activations"]), activations),
        ],
        "layers",
    )


def layer_name(row: LayerRow) -> str:
    return layer_label(row.path, row.name)


def type_keep(rows: Sequence[LayerRow]) -> int:
    """How dear the column of types is: where layers are numbers, as those of a sequence, only their types tell them."""
    return 6 if any(row.path.rpartition(".")[2].isdigit() for row in rows) else 1


def layer_hint(row: LayerRow) -> str:
    """Class and calls of a layer in words."""
    return f"{row.name}, {row.calls:,} call{'' if row.calls == 1 else 's'} per step"


def column_names(summaries: Sequence[Summary], asked: Sequence[str] = ()) -> list[str]:
    """What tells these runs apart: their targets; where one is missing or occurs twice, the names by which they were
    asked for, with a number where several runs have one, or else their ids."""
    targets = [summary.target.spec for summary in summaries]
    if all(targets) and len(set(targets)) == len(targets):
        return targets
    if len(set(asked)) < 2:
        return [summary.run for summary in summaries]
    number = [asked[: at + 1].count(name) for at, name in enumerate(asked)]
    return [f"{name} {at}" if asked.count(name) > 1 else name for name, at in zip(asked, number, strict=True)]


def side_by_side_table(summaries: Sequence[Summary], names: Sequence[str]) -> Table:
    """One column per summary: step, throughput, phases, percent of roof, verdict; the fastest step is marked."""
    parts = [summary.parts[0] if summary.parts else None for summary in summaries]
    steps = [part.step.value if part is not None and quantities.known(part.step) else None for part in parts]
    timed = [value for value in steps if value is not None]
    fastest = steps.index(min(timed)) if len(timed) > 1 else -1
    absent = Value(None, "1", "measured", reason=reasons.NO_STEP_HELD)
    lines: list[tuple[str, list[Cell]]] = []

    def add(name: str, values: list[Value], suffix: bool = True) -> None:
        if any(quantities.known(value) for value in values):
            lines.append((name, numbers(values, suffix=suffix)[1]))

    add("step", [part.step if part else absent for part in parts])
    engines = [part.simulated if part else None for part in parts]
    measured = Value(None, "cycle", "simulated")
    if any(engines):
        lines.append(("cycles", [_cycles(one) for one in engines]))
        lines.append(("  utilisation", percents([one.utilisation if one else measured for one in engines])))
    if any(part is not None and part.step.low is not None for part in parts):
        few = any(part is not None and part.step.few for part in parts)
        lines.append(("±" if few else "± (95 %)", [_spread(part, few) for part in parts]))
    add("samples/s", [part.samples_per_second if part else absent for part in parts], suffix=False)
    add("tokens/s", [part.tokens_per_second if part else absent for part in parts], suffix=False)
    for phase in dict.fromkeys(row.name for part in parts if part for row in part.phases):
        lacking = Value(None, "ns", "measured")
        rows = [next((row for row in part.phases if row.name == phase), None) if part else None for part in parts]
        add(phase, [row.cost.time if row else lacking for row in rows])
        roofs = [row.cost.roof if row else Value(None, "1", "derived") for row in rows]
        if any(quantities.known(roof) for roof in roofs):
            lines.append(("  % of roof", percents(roofs)))
    lines.append(("limited by", words([s.verdicts[0].kind if s.verdicts else "" for s in summaries], tone_of)))
    columns = [Column("", right=False)]
    for index, name in enumerate(names):
        columns.append(Column(name + (" (fastest)" if index == fastest else "")))
    body = []
    for name, cells in lines:
        marked = [_strong(cell) if name == "step" and index == fastest else cell for index, cell in enumerate(cells)]
        body.append((Cell(name, name, tone="quiet" if name.startswith(" ") else "name"), *marked))
    return Table(tuple(columns), tuple(body), "side by side")


def step_bars(names: Sequence[str], summaries: Sequence[Summary]) -> list[Bar]:
    """The step of each run as a bar, the fastest marked: its time, or its cycles where all are simulated. What was
    simulated beside what was timed has its cycles and no bar."""
    parts = [summary.parts[0] if summary.parts else None for summary in summaries]
    cycles = [part.simulated.cycles if part is not None and part.simulated is not None else None for part in parts]
    steps = cycles if all(cycles) else [part.step if part is not None else None for part in parts]
    known = [step.value for step in steps if step is not None and step.value is not None]
    fastest, longest = min(known, default=0.0), max(known, default=0.0) or 1.0
    bars = []
    for name, step, count in zip(names, steps, cycles, strict=True):
        if step is not None and step.value is not None:
            mark = "fastest" if step.value == fastest and len(known) > 1 else ""
            exact = step.unit == "cycle"
            amount = f"{quantities.whole(step.value)} cycles" if exact else quantities.amount(step.value, step.unit)
            bars.append(Bar(name, step.value / longest, f"{amount} a step", note=mark))
        elif count is not None and count.value is not None:
            bars.append(Bar(name, 0.0, f"{quantities.whole(count.value)} cycles a step"))
    return bars


def counter_phrases(part: PartSummary) -> list[str]:
    """`page faults 1,204/step (counted)` for every counter of the step; a level has no `/step`.

    Hardware counters have tables of their own, and the system's where they are shown by phase.
    """
    phrases = []
    own = set(part.counted.step.counters) | {"counter_enabled", "counter_running"} if part.counted else set()
    shown = in_table(part)
    for column, value in part.counters.items():
        metric = Metric.parse(column)
        if value.value is not None and quantities.known(value) and metric.quantity not in own and column not in shown:
            per_step = "" if metric.quantity in LEVELS else "/step"
            name = metric.quantity.replace("_", " ")
            phrases.append(f"{name} {quantities.amount(value.value, value.unit)}{per_step} ({metric.source})")
    return phrases


def _cycles(simulated: SimulatedCost | None) -> Cell:
    if simulated is None or simulated.cycles.value is None:
        return Cell(quantities.MISSING, None, "measured on a clock", tone="quiet")
    return quantity(simulated.cycles, quantities.whole(simulated.cycles.value))


def _total(rows: Sequence[LayerRow]) -> Value:
    return Value(sum(row.own.value or 0.0 for row in rows), "ns", "derived")


def _spread(part: PartSummary | None, named: bool) -> Cell:
    """Half of the interval of a step; `named` says what it is."""
    if part is None or part.step.low is None:
        return Cell(quantities.MISSING, None, "too few steps for an interval", tone="quiet")
    half = 100 * (quantities.half_width(part.step) or 0.0)
    what = quantities.ends_words(part.step)
    text = f"{quantities.fixed(half, 1)} %" + (f" ({what})" if named else "")
    return Cell(text, half, f"half of the interval over the median ({what}), derived", unit="%")


def _strong(cell: Cell) -> Cell:
    return replace(cell, tone="good")
