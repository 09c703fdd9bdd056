"""What a comparison changed, as a picture: for everything that differs significantly a bar of A above one of B."""

from __future__ import annotations

from sonda.analysis.comparison.summary import ComparedRow, PartComparison
from sonda.analysis.summary import Value
from sonda.report import quantities
from sonda.report.charts.chart import Axis, BarPart, Chart, Place, grouped_bars
from sonda.report.palette import RUN_COLORS
from sonda.report.table import Table
from sonda.report.views.compare.tables import changed_layers, rows_table
from sonda.report.words.names import layer_label

MOST_LAYERS = 8
"""Layers of a picture, those that changed most."""


def paired_rows(part: PartComparison) -> list[ComparedRow]:
    """The step, then what differs significantly: phases, and the layers that changed most."""
    phases = [row for row in part.phases if row.significant]
    return [part.step, *phases, *changed_layers(part, MOST_LAYERS)]


def paired_bars(part: PartComparison, sides: tuple[str, str] = ("A", "B")) -> Chart | None:
    """Both sides of these rows with their intervals; None where a step is not known."""
    rows = paired_rows(part)
    if part.step.a.value is None or part.step.b.value is None:
        return None
    unit = part.step.a.unit
    known = [value.value for row in rows for value in (row.a, row.b) if value.value is not None]
    scale = quantities.common_scale(known, unit)
    names = [f"{_row_name(row)}: {row.text}" for row in rows]
    parts = [
        BarPart(
            side, color, [None if value.value is None else value.value / scale.factor for value in values],
            [f"{_row_name(row)}, {side}\n{quantities.provenance(value)}\nB is {row.text}"
             for row, value in zip(rows, values, strict=True)],
            intervals=[_interval(value, scale.factor) for value in values],
        )
        for side, color, values in (
            (sides[0], RUN_COLORS[0], [row.a for row in rows]), (sides[1], RUN_COLORS[1], [row.b for row in rows]),
        )
    ]  # fmt: skip
    title = f"{scale.unit}s per step" if unit == "cycle" else f"median time per step, {scale.unit}"
    return grouped_bars(names, parts, Axis(title), row=15)


def pairs_table(part: PartComparison) -> Table:
    """The table behind the bars."""
    return rows_table(paired_rows(part))


def _row_name(row: ComparedRow) -> str:
    return layer_label(row.path, row.name) if row.path else row.name


def _interval(value: Value, factor: float) -> Place | None:
    if value.value is None or value.low is None or value.high is None:
        return None
    return value.low / factor, value.high / factor
