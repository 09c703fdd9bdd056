"""The tables of a simulated run: the cycle stack, the layers, and layers beside those of measured runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sonda.analysis.summary import LayerRow, PartSummary, Simulated, Summary, Value
from sonda.report import quantities
from sonda.report.labels import plain
from sonda.report.summary_tables import layer_hint, layer_name, tone_of
from sonda.report.table import Cell, Column, Table, build, numbers, percents, shares, words

_HINTS = {
    "share": "share of the step's cycles",
    "utilisation": "products computed over multipliers times cycles",
    "reads": "elements read from the global buffer",
    "writes": "elements written to the global buffer",
    "bound": "what most of the cycles are spent on",
    "mapping": "what is on the multipliers at one time",
}


def stack_table(part: PartSummary) -> Table:
    """Phases of a step, and what their cycles were spent on."""
    rows = [(row.name, row.simulated, row.cost.time) for row in part.phases if row.simulated is not None]
    found = [simulated for _, simulated, _ in rows if simulated is not None]
    stack = list(found[0].stack) if found else []
    columns = [
        (Column("phase", right=False), [Cell(plain(name), name, tone="name") for name, _, _ in rows]),
        (Column("cycles"), _whole([one.cycles for one in found])),
    ]
    if len(rows) > 1:
        columns.append((Column("%", hint=_HINTS["share"]), shares([one.share for one in found], "the step's cycles")))
    for place, name in enumerate(stack):
        cells = [_part_of(one.stack[name], one.cycles) for one in found]
        # The parts come in the order of an operation; the last are those that a narrow screen can spare.
        columns.append((Column(name, keep=max(1, 5 - place), hint="part of the cycles"), cells))
    columns += _accesses(found)
    columns += _times([time for _, _, time in rows])
    return build(columns, "cycle stack")


@dataclass(frozen=True)
class SimulatedChoice:
    """The layers that a short table shows, and what it leaves out."""

    shown: tuple[LayerRow, ...]
    total: int
    rest: float
    """Cycles of the layers that are not shown."""


def choose_simulated(part: PartSummary, limit: int) -> SimulatedChoice:
    """The `limit` layers with the most cycles of their own, most first; a module that only calls others has none."""
    found = [row for row in part.layers if row.own_simulated is not None]
    found.sort(key=lambda row: -_cycles(row.own_simulated))
    rest = sum(_cycles(row.own_simulated) for row in found[limit:])
    return SimulatedChoice(tuple(found[:limit]), len(found), rest)


def simulated_layer_table(rows: Sequence[LayerRow], title: str) -> Table:
    """One row for each of these layers, in the order given, without the layers inside."""
    found = [row.own_simulated for row in rows if row.own_simulated is not None]
    names = [Cell(layer_name(row), row.path, hint=layer_hint(row), tone="name") for row in rows]
    return build(
        [
            (Column(title, right=False, path=True), names),
            (Column("type", right=False, keep=2), words([plain(row.name) for row in rows])),
            (Column("mapping", right=False, keep=1, hint=_HINTS["mapping"]), [_mapping(one) for one in found]),
            (Column("cycles"), _whole([one.cycles for one in found])),
            (Column("%", keep=6, hint=_HINTS["share"]), shares([one.share for one in found], "the step's cycles")),
            *_accesses(found),
            (Column("bound", right=False, keep=7, hint=_HINTS["bound"]), words([one.bound for one in found], tone_of)),
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
        (Column("type", right=False, keep=1), words([plain(label[path].name) for path in wanted])),
    ]
    for part, rows, name in zip(parts, by_path, names, strict=True):
        simulated = part is not None and part.simulated is not None
        absent = Value(None, "cycle" if simulated else "ns", "")
        own = [rows[path].own if path in rows else absent for path in wanted]
        if simulated:
            cycles = [one.cycles if one else absent
                      for one in (rows[path].own_simulated if path in rows else None for path in wanted)]  # fmt: skip
            columns.append((Column(f"{plain(name)} cycles"), _whole(cycles)))
        if not simulated or any(quantities.known(value) for value in own):
            unit, cells = numbers(own)
            columns.append((Column(f"{plain(name)} {unit}"), cells))
        taken = [_own_share(rows[path]) if path in rows else float("nan") for path in wanted]
        columns.append((Column("%", keep=3), shares([one or float("nan") for one in taken], "the step")))
    return build(columns, "layers side by side")


def _own_share(row: LayerRow) -> float:
    if row.own_simulated is not None:
        return row.own_simulated.share
    share = row.own_cost.share if row.own_cost is not None else row.cost.share
    return share if share == share else 0.0


def _cycles(simulated: Simulated | None) -> float:
    return (simulated.cycles.value or 0.0) if simulated else 0.0


def _accesses(found: Sequence[Simulated]) -> list[tuple[Column, list[Cell]]]:
    return [
        (Column("utilisation", keep=5, hint=_HINTS["utilisation"]), percents([one.utilisation for one in found])),
        (Column("reads", keep=3, hint=_HINTS["reads"]), _whole([one.reads for one in found])),
        (Column("writes", keep=3, hint=_HINTS["writes"]), _whole([one.writes for one in found])),
    ]


def _times(values: Sequence[Value]) -> list[tuple[Column, list[Cell]]]:
    """A column of times where the description gives a clock."""
    if not any(quantities.known(value) for value in values):
        return []
    unit, cells = numbers(values)
    return [(Column(unit, keep=5, hint="cycles at the described clock"), cells)]


def _whole(values: Sequence[Value]) -> list[Cell]:
    """Counts with all their digits: they are exact."""
    return [
        Cell(f"{value.value:,.0f}", value.value, quantities.provenance(value))
        if value.value is not None
        else Cell(quantities.MISSING, None, quantities.provenance(value), value.reason, "quiet")
        for value in values
    ]


def _part_of(value: Value, whole: Value) -> Cell:
    share = (value.value or 0.0) / whole.value if whole.value else 0.0
    return Cell(f"{quantities.percent(share, 1)} %", share, quantities.provenance(value))


def _mapping(simulated: Simulated) -> Cell:
    chosen = simulated.mapping
    if not chosen:
        return Cell(quantities.MISSING, tone="quiet")
    shown = plain(chosen[0]) + (f" +{len(chosen) - 1}" if len(chosen) > 1 else "")
    return Cell(shown, chosen[0], plain("; ".join(chosen)))
