"""Operations of a study one by one: time, FLOPs that were counted, rates beside ceilings, what their warps wait for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sonda.analysis.wording import FRAMEWORKS
from sonda.report import quantities
from sonda.report.output import whole_file
from sonda.report.table import Cell, Column, Table, build

Row = Mapping[str, Any]


def operations_table(rows: Sequence[Row]) -> Table:
    """For a terminal."""
    columns = []
    for title, right, keep, show in COLUMNS:
        shown = [(row, show(row)) for row in rows]
        cells = [Cell(text, _order(text, right), missing=_missing(row, text)) for row, text in shown]
        columns.append((Column(title, right=right, keep=keep), cells))
    return build(columns)


def write_recording(path: Path, recording: Row) -> None:
    """As JSON, or as a table where the name ends in .md. Raises SondaError where it cannot be written."""
    if path.suffix == ".md":
        text = operations_markdown(recording)
    else:
        text = msgspec.json.format(msgspec.json.encode(recording), indent=1).decode() + "\n"
    with whole_file(path) as stream:
        stream.write(text.encode("utf-8"))


def _order(text: str, number: bool) -> float | str | None:
    """What a field sorts by: the number that it shows, or its words."""
    if text == quantities.MISSING:
        return None
    return float(text.removesuffix(" %").replace(",", "")) if number else text


def _missing(row: Row, text: str) -> str:
    return str(row.get("missing", "")) if text == quantities.MISSING else ""


def operations_markdown(recording: Row) -> str:
    """A recorded result as a page's table, with where it comes from in front and what is out of line below."""
    about = recording["provenance"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    lines = [f"{', '.join(about['devices'])}, {', '.join(about['recorded'])}; {versions}.", ""]
    lines += [f"Kernels {note}." for note in about["counted"]]
    lines += ["", f"| {' | '.join(title for title, *_ in COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    for row in recording["operations"]:
        lines.append(f"| {' | '.join(show(row) for _, _, _, show in COLUMNS)} |")
    if recording["verdicts"]:
        lines += ["", "Out of line:", "", *(f"* {sentence}" for sentence in recording["verdicts"])]
    return "\n".join(lines) + "\n"


def _amount(key: str, factor: float = 1.0) -> Callable[[Row], str]:
    def show(row: Row) -> str:
        value = row[key]
        return quantities.MISSING if value is None else quantities.number(value / factor)

    return show


def _percent(key: str) -> Callable[[Row], str]:
    def show(row: Row) -> str:
        value = row[key]
        return quantities.MISSING if value is None else f"{100 * value:.3g} %"

    return show


def _ratio(row: Row) -> str:
    if row["counted"] is None or not row["nominal"]:
        return quantities.MISSING
    return f"{row['counted'] / row['nominal']:.3g}"


def _stalls(row: Row) -> str:
    stalls = row["stalls"] or {}
    return (
        ", ".join(f"{reason} {100 * share:.0f} %" for reason, share in list(stalls.items())[:2]) or quantities.MISSING
    )


def _published(row: Row) -> str:
    printed = (f"{one['hardware']} {one['mflops']:,.0f}" for one in row["published"])
    return "; ".join(printed) or quantities.MISSING


COLUMNS: tuple[tuple[str, bool, int, Callable[[Row], str]], ...] = (
    ("operation", False, 9, lambda row: str(row["op"])),
    ("MiB", True, 9, lambda row: f"{row['size'] / 2**20:g}"),
    ("framework", False, 9, lambda row: FRAMEWORKS.get(str(row["framework"]), str(row["framework"]))),
    ("on", False, 6, lambda row: str(row["on"])),
    ("µs", True, 9, _amount("time", 1e3)),
    ("counted MFLOP", True, 8, _amount("counted", 1e6)),
    ("of nominal", True, 4, _ratio),
    ("GFLOP/s", True, 8, _amount("rate", 1e9)),
    ("of peak", True, 7, _percent("of_peak")),
    ("of theory", True, 5, _percent("of_theory")),
    ("DRAM MB", True, 6, _amount("dram", 1e6)),
    ("GB/s", True, 7, _amount("bandwidth", 1e9)),
    ("of DRAM", True, 7, _percent("of_memory")),
    ("warps wait for", False, 7, _stalls),
    ("published MFLOP/s", False, 6, _published),
)
"""Title, whether numbers, how dear the column is where there is little room, and what stands in it."""
