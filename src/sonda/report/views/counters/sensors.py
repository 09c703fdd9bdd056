"""What probes read while a program ran, those of other packages too: a row for each of their sensors."""

from __future__ import annotations

from collections.abc import Sequence

from sonda.record.readings import SensorReadings
from sonda.report import quantities
from sonda.report.blocks import Block, Gap, OneLine, TableBlock
from sonda.report.table import Cell, Column, Table, build, words
from sonda.report.values import Document, number_document

PROBED = "probed"
SHOWN = ("mean", "least", "most", "growth")
PROBED_MEANS = (
    "Read beside the program from its beginning to its end: the growth of counters, the level of everything else"
)


def probed_blocks(rows: Sequence[SensorReadings] | None) -> list[Block]:
    """The table, where any such probe was read."""
    blocks: list[Block] = []
    table = probed_table(rows)
    if table is not None:
        blocks += [Gap(), TableBlock(table, reasons=False)]
    return blocks


def probed_line(rows: Sequence[SensorReadings] | None) -> list[Block]:
    """What each such sensor read, in one line."""
    texts = [
        f"{row.probe}: {row.sensor}{_place(row)} {key} {_cell(row, key).text}"
        for row in rows or () for key in SHOWN[:1] + SHOWN[-1:] if getattr(row, key) is not None
    ]  # fmt: skip
    return [OneLine(texts)] if texts else []


def probed_table(rows: Sequence[SensorReadings] | None) -> Table | None:
    """Sensors of such probes: mean, least and most of their readings, or their growth. None where there are none."""
    if not rows:
        return None
    names = [Cell(f"{row.probe}: {row.sensor}{_place(row)}", row.sensor, tone="name") for row in rows]
    columns = [(Column("probe", right=False), names)]
    for key in SHOWN:
        if any(getattr(row, key) is not None for row in rows):
            columns.append((Column(key), [_cell(row, key) for row in rows]))
    columns.append((Column("readings", keep=1), [Cell(f"{row.readings:,}", row.readings) for row in rows]))
    columns.append((Column("source", right=False, keep=2), words([row.source for row in rows])))
    return build(columns, "added probes")


def probed_fields(rows: Sequence[SensorReadings] | None) -> Document:
    """The same for JSON: values by name with unit and source."""
    told = [
        {"probe": row.probe, "sensor": row.sensor, "readings": row.readings,
         **({"node": row.node} if row.node is not None else {}),
         **{key: number_document(value, row.unit, row.source) for key in SHOWN
            if (value := getattr(row, key)) is not None}}
        for row in rows or ()
    ]  # fmt: skip
    return {PROBED: told} if told else {}


def _place(row: SensorReadings) -> str:
    return f" on {row.node}" if row.node is not None else ""


def _cell(row: SensorReadings, key: str) -> Cell:
    value: float | None = getattr(row, key)
    if value is None:
        return Cell("–")
    unit = row.unit if row.unit != "1" else ""
    return Cell(f"{quantities.number(value)} {unit}".rstrip(), value, row.source)
