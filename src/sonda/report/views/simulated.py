"""The tables of a simulated run: the cycle stack, the layers, and layers beside those of measured runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sonda.analysis.summary import LayerRow, PartSummary, SimulatedCost, Summary, Traffic, Value
from sonda.record.target import SimulatedTarget
from sonda.report import quantities
from sonda.report.table import Cell, Column, Table, build, numbers, percents, quantity, shares, tone_of, words
from sonda.report.views.steps.tables import layer_hint, layer_name, type_keep

_HINTS = {
    "share": "share of the step's cycles",
    "utilisation": "products of the operations, without what fills tiles up, over multipliers times cycles",
    "reads": "elements read from the global buffer",
    "writes": "elements written to the global buffer",
    "bound": "what most of the cycles are spent on",
    "mapping": "what is on the multipliers at one time",
    "energy": "in brackets the bounds that the entries of the energy table allow",
    "dram_read": "bytes read from the memory behind the global buffer, in whole bursts",
    "dram_written": "bytes written to the memory behind the global buffer, in whole bursts",
    "row_hits": "accesses of the memory that find its row open",
    "cold": "rows of embedding tables that come into the global buffer for the first time",
    "capacity": "rows of embedding tables that had to leave the global buffer and come again",
}


def is_idle(summary: Summary, part: PartSummary) -> bool:
    """Whether nothing of a simulated step ran on an engine: the verdict says so, and there is nothing to list."""
    return isinstance(summary.target, SimulatedTarget) and part.simulated is None


def stack_tables(part: PartSummary) -> tuple[Table, ...]:
    """Phases of a step, and what their cycles were spent on; then, where the buffer is finite, what they moved."""
    rows = [(row.name, row.simulated, row.cost.time) for row in part.phases if row.simulated is not None]
    phases = [simulated for _, simulated, _ in rows]
    names = (Column("phase", right=False), [Cell(name, name, tone="name") for name, _, _ in rows])
    columns = [names, (Column("cycles"), _whole([phase.cycles for phase in phases]))]
    if len(rows) > 1:
        columns.append(
            (Column("%", hint=_HINTS["share"]), shares([phase.share for phase in phases], "the step's cycles"))
        )
    stack = list(phases[0].stack) if phases else []
    # The smallest parts are those that a narrow screen can spare.
    by_size = sorted(stack, key=lambda name: sum(phase.stack[name].value or 0.0 for phase in phases))
    for name in stack:
        cells = [_part_of(phase.stack[name], phase.cycles) for phase in phases]
        columns.append((Column(name, keep=1 + by_size.index(name), hint="part of the cycles"), cells))
    columns.append(_utilisation(phases))
    times = _times([time for _, _, time in rows])
    traffic = _traffic(phases)
    moved = [*_accesses(phases), *traffic, *_energies([phase.energy for phase in phases])]
    if traffic:
        return build([*columns, *times], "cycle stack"), build([names, *moved], "accesses")
    return (build([*columns, *moved, *times], "cycle stack"),)


@dataclass(frozen=True)
class SimulatedChoice:
    """The layers that a short table shows, and what it leaves out."""

    shown: tuple[LayerRow, ...]
    total: int
    rest: float
    """Cycles of the layers that are not shown."""


def choose_simulated(part: PartSummary, limit: int) -> SimulatedChoice:
    """The `limit` layers with the most cycles of their own, most first; a module that only calls others has none."""
    rows = [row for row in part.layers if row.own_simulated is not None]
    rows.sort(key=lambda row: -_cycles(row.own_simulated))
    rest = sum(_cycles(row.own_simulated) for row in rows[limit:])
    return SimulatedChoice(tuple(rows[:limit]), len(rows), rest)


def simulated_layer_table(rows: Sequence[LayerRow], title: str) -> Table:
    """One row for each of these layers, in the order given, without the layers inside."""
    layers = [row.own_simulated for row in rows if row.own_simulated is not None]
    names = [Cell(layer_name(row), row.path, hint=layer_hint(row), tone="name") for row in rows]
    return build(
        [
            (Column(title, right=False, path=True), names),
            (Column("type", right=False, keep=type_keep(rows)), words([row.name for row in rows])),
            (Column("mapping", right=False, keep=5, hint=_HINTS["mapping"]), [_mapping(layer) for layer in layers]),
            (Column("cycles"), _whole([layer.cycles for layer in layers])),
            (Column("%", keep=6, hint=_HINTS["share"]), shares([layer.share for layer in layers], "the step's cycles")),
            _utilisation(layers),
            *_accesses(layers),
            (
                Column("bound", right=False, keep=7, hint=_HINTS["bound"]),
                words([layer.bound for layer in layers], tone_of),
            ),
            *_traffic(layers),
            *_energies([layer.energy for layer in layers]),
            *_times([row.own for row in rows]),
        ],
        "layers",
    )


def layers_side_by_side(summaries: Sequence[Summary], names: Sequence[str], limit: int) -> Table:
    """The layers that take most on any target: ms where it was timed, cycles where it was simulated."""
    parts = [summary.parts[0] if summary.parts else None for summary in summaries]
    by_path = [{row.path: row for row in part.layers} if part else {} for part in parts]
    weight: dict[str, float] = {}
    label: dict[str, LayerRow] = {}
    for rows in by_path:
        for path, row in rows.items():
            label.setdefault(path, row)
            weight[path] = max(weight.get(path, 0.0), _own_share(row))
    wanted = sorted((path for path in weight if weight[path] > 0), key=lambda path: -weight[path])[:limit]
    columns = [
        (Column("layer", right=False, path=True), [Cell(layer_name(label[p]), p, tone="name") for p in wanted]),
        (Column("type", right=False, keep=1), words([label[path].name for path in wanted])),
    ]
    for part, rows, name in zip(parts, by_path, names, strict=True):
        simulated = part is not None and part.simulated is not None
        absent = Value(None, "cycle" if simulated else "ns", "")
        own = [rows[path].own if path in rows else absent for path in wanted]
        if simulated:
            layers = [rows[path].own_simulated if path in rows else None for path in wanted]
            cycles = [layer.cycles if layer else absent for layer in layers]
            columns.append((Column(f"{name} cycles"), _whole(cycles)))
        if not simulated or any(quantities.known(value) for value in own):
            unit, cells = numbers(own)
            columns.append((Column(f"{name} {unit}"), cells))
        own_shares = [_own_share(rows[path]) if path in rows else float("nan") for path in wanted]
        columns.append((Column("%"), shares([share or float("nan") for share in own_shares], "the step")))
    return build(columns, "layers side by side")


def _own_share(row: LayerRow) -> float:
    if row.own_simulated is not None:
        return row.own_simulated.share
    share = row.own_cost.share if row.own_cost is not None else row.cost.share
    return share if share == share else 0.0


def _cycles(simulated: SimulatedCost | None) -> float:
    return (simulated.cycles.value or 0.0) if simulated else 0.0


def _utilisation(rows: Sequence[SimulatedCost]) -> tuple[Column, list[Cell]]:
    return Column("utilisation", keep=5, hint=_HINTS["utilisation"]), percents([row.utilisation for row in rows])


def _accesses(rows: Sequence[SimulatedCost]) -> list[tuple[Column, list[Cell]]]:
    return [
        (Column("reads", keep=3, hint=_HINTS["reads"]), _whole([row.reads for row in rows])),
        (Column("writes", keep=2, hint=_HINTS["writes"]), _whole([row.writes for row in rows])),
    ]


def _traffic(rows: Sequence[SimulatedCost]) -> list[tuple[Column, list[Cell]]]:
    """To and from the memory, where the buffer is finite."""
    traffic = [row.traffic for row in rows if row.traffic is not None]
    if not traffic or len(traffic) < len(rows):
        return []
    return [
        (Column("DRAM read", keep=4, hint=_HINTS["dram_read"]), _bytes([moved.reads for moved in traffic])),
        (Column("DRAM written", keep=3, hint=_HINTS["dram_written"]), _bytes([moved.writes for moved in traffic])),
        (Column("row hits", keep=2, hint=_HINTS["row_hits"]), percents([moved.row_hits for moved in traffic])),
        *_misses(traffic),
    ]


def _misses(traffic: Sequence[Traffic]) -> list[tuple[Column, list[Cell]]]:
    """Rows of embedding tables, where there are any."""
    if not any(moved.cold_misses.value for moved in traffic):
        return []
    return [
        (Column("cold misses", keep=2, hint=_HINTS["cold"]), _whole([moved.cold_misses for moved in traffic])),
        (
            Column("capacity misses", keep=1, hint=_HINTS["capacity"]),
            _whole([moved.capacity_misses for moved in traffic]),
        ),
    ]


def _energies(values: Sequence[Value]) -> list[tuple[Column, list[Cell]]]:
    """A column of energies with the bounds of their table; where no row has one, a note tells why."""
    known = [value for value in values if quantities.known(value)]
    if not known:
        return []
    return [(Column("energy", keep=5, hint=_HINTS["energy"]), [energy_cell(value) for value in values])]


def energy_cell(value: Value) -> Cell:
    """`1.20 µJ (0.60–2.40)`; every energy has the unit that suits it, for layers differ by far."""
    if value.value is None or value.low is None or value.high is None:
        return Cell(quantities.MISSING, None, quantities.provenance(value), value.reason, "quiet")
    scale = quantities.own_scale(value.value, "J")
    shown, low, high = (quantities.number(joules / scale.factor) for joules in (value.value, value.low, value.high))
    return quantity(value, f"{shown} {scale.unit} ({low}–{high})")


def _times(values: Sequence[Value]) -> list[tuple[Column, list[Cell]]]:
    """A column of times where the description gives a clock."""
    if not any(quantities.known(value) for value in values):
        return []
    unit, cells = numbers(values)
    return [(Column(unit, keep=3, hint="cycles at the described clock"), cells)]


def _whole(values: Sequence[Value]) -> list[Cell]:
    """Counts with all their digits: they are exact."""
    return [quantity(value, quantities.whole(value.value or 0.0)) for value in values]


def _bytes(values: Sequence[Value]) -> list[Cell]:
    """A column in the unit that suits its largest."""
    scale = quantities.own_scale(max((value.value or 0.0 for value in values), default=0.0), "B")
    sizes = [(value.value or 0.0) / scale.factor for value in values]
    decimals = quantities.decimals_for(sizes)
    return [
        quantity(value, f"{quantities.fixed(size, decimals)} {scale.unit}")
        for size, value in zip(sizes, values, strict=True)
    ]


def _part_of(value: Value, whole: Value) -> Cell:
    share = (value.value or 0.0) / whole.value if whole.value else 0.0
    text, guess = f"{quantities.percent(share, 1)} %", quantities.is_guess(value)
    return Cell(text, 100 * share, quantities.provenance(value), unit="%", estimated=guess)


def _mapping(simulated: SimulatedCost) -> Cell:
    chosen = simulated.mapping
    if not chosen:
        return Cell(quantities.MISSING, tone="quiet")
    shown = chosen[0] + (f" +{len(chosen) - 1}" if len(chosen) > 1 else "")
    return Cell(shown, chosen[0], "; ".join(chosen))
