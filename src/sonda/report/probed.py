"""What probes of other packages read while a program ran: a row for each of their sensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sonda.report import quantities
from sonda.report.screen import Screen
from sonda.report.table import Cell, Column, Table, build, words
from sonda.report.values import Document, number_document

PROBED = "probed"
SHOWN = ("mean", "least", "most", "growth")
PROBED_MEANS = (
    "Read beside the program from its beginning to its end: the growth of counters, the level of everything else"
)


def show_probed(screen: Screen, target: Mapping[str, Any]) -> None:
    """The table, where any such probe was read."""
    table = probed_table(target)
    if table is not None:
        screen.line()
        screen.table(table, reasons=False)


def probed_table(target: Mapping[str, Any]) -> Table | None:
    """Sensors of added probes: mean, least and most of their readings, or their growth. None where there are none."""
    rows: list[dict[str, Any]] = target.get(PROBED) or []
    if not rows:
        return None
    names = [Cell(f"{row['probe']}: {row['sensor']}", row["sensor"], tone="name") for row in rows]
    columns = [(Column("probe", right=False), names)]
    for key in SHOWN:
        if any(key in row for row in rows):
            columns.append((Column(key), [_cell(row, key) for row in rows]))
    columns.append((Column("readings", keep=1), [Cell(f"{row['readings']:,}", row["readings"]) for row in rows]))
    columns.append((Column("source", right=False, keep=2), words([str(row["source"]) for row in rows])))
    return build(columns, "added probes")


def probed_document(target: Mapping[str, Any]) -> Document:
    """The same for JSON: values by name with unit and source."""
    rows: list[dict[str, Any]] = target.get(PROBED) or []
    told = [
        {"probe": row["probe"], "sensor": row["sensor"], "readings": row["readings"],
         **{key: number_document(row[key], row["unit"], row["source"]) for key in SHOWN if key in row}}
        for row in rows
    ]  # fmt: skip
    return {PROBED: told} if told else {}


def _cell(row: Mapping[str, Any], key: str) -> Cell:
    if key not in row:
        return Cell("–")
    unit = str(row["unit"]) if row["unit"] != "1" else ""
    return Cell(f"{quantities.number(row[key])} {unit}".rstrip(), row[key], str(row["source"]))
