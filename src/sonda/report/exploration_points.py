"""All points of an exploration as a table: those of the front first, the impossible ones with their reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sonda.analysis.exploration import Exploration
from sonda.analysis.summary import TABLES, Value
from sonda.report import quantities
from sonda.report.table import Cell, Column, Table, build, numbers, words

MOST_POINTS = 2000
"""Of a larger exploration, the front and an even sample of the rest."""
SIMULATED = ":simulated"


def points_table(found: Exploration, points: Any) -> Table:
    """A row for each point: its settings, its figures, whether it is on the front, and why not where it cannot be."""
    rows = _chosen(points).to_pylist()
    columns: list[tuple[Column, Sequence[Cell]]] = []
    for key in found.axes:
        values = [row.get(key) for row in rows]
        right = all(isinstance(value, int | float) for value in values if value is not None)
        columns.append((Column(key, right=right), [_setting(value) for value in values]))
    why = [str(row.get("impossible") or row.get("unpriced") or "") for row in rows]
    for name in ("cycles", "energy", "area"):
        column = f"{name}{SIMULATED}"
        if column in points.column_names:
            unit = (points.schema.field(column).metadata or {}).get(b"unit", b"1").decode()
            columns.append(_figures(name, unit, rows, why))
    columns.append((Column("on the front", right=False), words(["yes" if row["front"] else "no" for row in rows])))
    return build(columns, "points")


def _chosen(points: Any) -> Any:
    """The rows to show, the front first."""
    import numpy as np

    front = points["front"].to_numpy()
    on_front, others = np.flatnonzero(front), np.flatnonzero(~front)
    room = max(0, MOST_POINTS - len(on_front))
    if len(others) > room:
        others = others[np.linspace(0, len(others) - 1, room).astype(int)] if room else others[:0]
    return points.take(np.concatenate([on_front[:MOST_POINTS], others]))


def _figures(name: str, unit: str, rows: Sequence[dict[str, Any]], why: Sequence[str]) -> tuple[Column, list[Cell]]:
    values = []
    for row, reason in zip(rows, why, strict=True):
        found = row[f"{name}{SIMULATED}"]
        # An impossible point has no cycles; one that no table prices has no energy or area.
        missing = found is None or bool(reason and not found)
        ends = (row.get(f"{name}_{end}{SIMULATED}") for end in ("low", "high"))
        low, high = (None if missing else end for end in ends)
        amount = None if missing else float(found)
        values.append(Value(amount, unit, "simulated", low, high, reason if missing else "", bounds=TABLES))
    if name == "cycles":
        return Column(name), [_exact(value) for value in values]
    shown, cells = numbers(values)
    return Column(f"{name} {shown}".strip(), hint="the tooltip has the bounds of the tables"), cells


def _exact(value: Value) -> Cell:
    if value.value is None:
        return Cell(quantities.MISSING, None, value.reason, tone="quiet")
    return Cell(f"{value.value:,.0f}", value.value, "exact, simulated")


def _setting(value: object) -> Cell:
    if value is None:
        return Cell(quantities.MISSING, tone="quiet")
    return Cell(str(value), value if isinstance(value, int | float) else str(value), tone="name")
