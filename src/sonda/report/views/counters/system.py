"""What the operating system counted, by phase; and what second sources counted of the whole program."""

from __future__ import annotations

from collections.abc import Sequence

from sonda.analysis.counters.summary import SecondSources, SystemSummary
from sonda.analysis.summary import PartSummary, Value
from sonda.record.quantities import Metric
from sonda.report import quantities
from sonda.report.blocks import Block, Gap, TableBlock, paragraphs
from sonda.report.table import Cell, Column, Table, build, numbers
from sonda.report.values import Document, value_document
from sonda.report.words import describe

COLUMNS = (
    ("clock", "CPU", 6, "time that all threads spent on processors"),
    ("faults", "page faults", 7, "pages that were touched for the first time, or brought back"),
    ("switches", "switches", 4, "times that a thread left its processor"),
    ("migrations", "migrations", 3, "times that a thread went to another processor"),
    ("wait", "waited", 5, "time that threads were ready to run and had no processor, all threads together"),
    ("memory", "resident", 2, "memory of the process that is in RAM, at the end of the phase"),
)
"""Key of the value, heading, how long the column is kept where width is scarce, what it means."""
OWN = "sonda"


def system_blocks(part: PartSummary) -> list[Block]:
    """The table of a part, where it was asked for or something in it is remarkable."""
    blocks: list[Block] = []
    if part.system is None or not part.system.shown:
        return blocks
    blocks += [Gap(), TableBlock(system_table(part.system)), *paragraphs(map(describe, part.system.remarks), "remark")]
    return blocks


def system_table(system: SystemSummary) -> Table:
    """Phases and the step: CPU time, faults, switches, migrations, waits and memory, per step."""
    names = [Cell(row.name, row.name, tone="quiet" if row.name == "step" else "name") for row in system.rows]
    columns = [(Column("per step", right=False), names)]
    for key, title, keep, hint in COLUMNS:
        values = [row.values[key] for row in system.rows]
        if any(quantities.known(value) for value in values):
            unit, cells = numbers(values)
            columns.append((Column(f"{title} {unit}".rstrip(), keep=keep, hint=hint), cells))
        if key == "clock" and len(columns) > 1:
            busy = numbers([row.busy for row in system.rows])[1]
            columns.append((Column("busy", keep=6, hint="processors kept busy, derived"), busy))
    return build(columns, "operating system")


def second_blocks(second: SecondSources) -> list[Block]:
    """What second sources counted, with what a reader must know."""
    return [Gap(), TableBlock(second_table(second)), *paragraphs(map(describe, second.findings))]


def second_table(second: SecondSources) -> Table:
    """A row for each quantity: ours, then each source's with its difference from ours."""
    rows = second.rows
    names = [Cell(row.quantity.replace("_", " "), row.quantity, tone="name") for row in rows]
    columns = [(Column("whole program", right=False), names), (Column(OWN), _alone([row.ours for row in rows]))]
    for source in second.sources:
        columns.append((Column(source), _alone([row.others[source] for row in rows])))
        apart = [_signed(row.apart[source]) for row in rows]
        columns.append((Column(f"{source} − {OWN}", hint="of what Sonda counted, derived"), apart))
    return build(columns, "second sources")


def _alone(values: Sequence[Value]) -> list[Cell]:
    """Cells that carry their own units: the rows of a column are different quantities."""
    return [numbers([value], suffix=True)[1][0] for value in values]


def _signed(value: Value) -> Cell:
    if value.value is None:
        # Its source's own column has the reason.
        return Cell(quantities.MISSING, None, quantities.provenance(value), tone="quiet")
    return Cell(quantities.signed_percent(value.value), value.value, quantities.provenance(value))


def second_fields(second: SecondSources | None) -> Document:
    """What second sources add to a JSON document; nothing where none was asked."""
    if second is None:
        return {}
    return {
        "second_sources": {
            "sources": [OWN, *second.sources],
            "counts": {
                row.quantity: {
                    OWN: value_document(row.ours),
                    **{source: {**value_document(value), "apart": value_document(row.apart[source])}
                       for source, value in row.others.items()},
                }
                for row in second.rows
            },
            "notes": list(map(describe, second.findings)),
        }
    }  # fmt: skip


def in_table(part: PartSummary) -> frozenset[str]:
    """Columns of the step's counters that the table shows, where there is one."""
    if part.system is None or not part.system.shown:
        return frozenset()
    return frozenset(column for column in part.counters if Metric.parse(column).quantity in SHOWN)


SHOWN = frozenset(
    {"task_clock", "page_faults", "context_switches", "cpu_migrations", "run_queue_wait", "resident_memory"}
)
