"""Operations of a study one by one: time, FLOPs that were counted, rates beside ceilings, what their warps wait for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from sonda.report import quantities
from sonda.report.output import whole_file
from sonda.report.table import Cell, Column, Table, build
from sonda.report.words.names import FRAMEWORKS

Row = Mapping[str, Any]


def operations_table(rows: Sequence[Row]) -> Table:
    """For a terminal."""
    return build([
        (Column(column.title, right=column.value is not None, keep=column.keep), [column.cell(row) for row in rows])
        for column in COLUMNS
    ])  # fmt: skip


def write_recording(path: Path, recording: Row) -> None:
    """As JSON, or as a table where the name ends in .md. Raises SondaError where it cannot be written."""
    if path.suffix == ".md":
        text = operations_markdown(recording)
    else:
        text = msgspec.json.format(msgspec.json.encode(recording), indent=1).decode() + "\n"
    with whole_file(path) as stream:
        stream.write(text.encode("utf-8"))


def operations_markdown(recording: Row) -> str:
    """A recorded result as a page's table, with where it comes from in front and what is out of line below."""
    about = recording["provenance"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    lines = [f"{', '.join(about['devices'])}, {', '.join(about['recorded'])}; {versions}.", ""]
    lines += [f"Kernels {note}." for note in about["counted"]]
    lines += ["", f"| {' | '.join(column.title for column in COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    for row in recording["operations"]:
        lines.append(f"| {' | '.join(column.cell(row).text for column in COLUMNS)} |")
    if recording["verdicts"]:
        lines += ["", "Out of line:", "", *(f"* {sentence}" for sentence in recording["verdicts"])]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class OperationColumn:
    """A column: words, or a number with its unit and source."""

    title: str
    keep: int
    """How dear it is where there is little room."""
    words: Callable[[Row], str] = str
    value: Callable[[Row], float | None] | None = None
    unit: str = ""
    source: str = "derived"
    digits: str = ""
    """How the number is written, where not as numbers are elsewhere."""
    reason: str = ""
    """Where a row says why it has none of its own."""

    def cell(self, row: Row) -> Cell:
        """Its field of a row; `–` with the reason where there is nothing."""
        if self.value is None:
            text = self.words(row)
            return Cell(text, text) if text else _missing_cell(row)
        value = self.value(row)
        if value is None:
            return Cell(quantities.MISSING, missing=row[self.reason]) if row.get(self.reason) else _missing_cell(row)
        text = self.digits.format(value) if self.digits else quantities.number(value)
        amount = text if self.unit in ("%", "1") else f"{text} {self.unit}"
        return Cell(text, value, f"{amount}, {self.source}", unit=self.unit)


def _missing_cell(row: Row) -> Cell:
    return Cell(quantities.MISSING, missing=str(row.get("missing", "")))


def _divided(key: str, factor: float = 1.0) -> Callable[[Row], float | None]:
    return lambda row: None if row[key] is None else row[key] / factor


def _ratio(row: Row) -> float | None:
    return row["counted"] / row["nominal"] if row["counted"] is not None and row["nominal"] else None


def _stalls(row: Row) -> str:
    stalls = row["stalls"] or {}
    return ", ".join(f"{reason} {quantities.rounded(100 * share, 0)} %" for reason, share in list(stalls.items())[:2])


def _published(row: Row) -> str:
    return "; ".join(
        f"{published['hardware']} {quantities.whole(published['mflops'])}" for published in row["published"]
    )


COLUMNS = (
    OperationColumn("operation", 9, lambda row: str(row["op"])),
    OperationColumn("MiB", 9, value=_divided("size", 2**20), unit="MiB", source="as asked for", digits="{:g}"),
    OperationColumn("framework", 9, lambda row: FRAMEWORKS.get(str(row["framework"]), str(row["framework"]))),
    OperationColumn("on", 6, lambda row: str(row["on"])),
    OperationColumn("µs", 9, value=_divided("time", 1e3), unit="µs", source="measured"),
    OperationColumn("counted MFLOP", 8, value=_divided("counted", 1e6), unit="MFLOP", source="counted"),
    OperationColumn("of nominal", 4, value=_ratio, unit="1", digits="{:.3g}"),
    OperationColumn("GFLOP/s", 8, value=_divided("rate", 1e9), unit="GFLOP/s"),
    OperationColumn(
        "of peak", 7, value=_divided("of_peak", 0.01), unit="%", digits="{:.3g} %", reason="of_peak_reason"
    ),
    OperationColumn(
        "of theory", 5, value=_divided("of_theory", 0.01), unit="%", digits="{:.3g} %", reason="of_theory_reason"
    ),
    OperationColumn("DRAM MB", 6, value=_divided("dram", 1e6), unit="MB", source="counted"),
    OperationColumn("GB/s", 7, value=_divided("bandwidth", 1e9), unit="GB/s"),
    OperationColumn(
        "of DRAM", 7, value=_divided("of_memory", 0.01), unit="%", digits="{:.3g} %", reason="of_memory_reason"
    ),
    OperationColumn("warps wait for", 7, _stalls),
    OperationColumn("published MFLOP/s", 6, _published),
)
