"""Tables of Nsight Compute: launches from `ncu --csv`, in both of its shapes.

`--page raw` is wide: a heading, a row of units, a row per launch. `--page details` is long: a row per launch and
metric. What else stands between the rows (ncu's own lines, the program's output) is passed over; a row that output ran
into is taken from where it begins.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from sonda.record.errors import SondaError

HEADING = '"ID",'
ROW = re.compile(r'"\d+","\d+","')
LEADING = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size",
           "Grid Size", "Device", "CC")  # fmt: skip
METRIC = ("Metric Name", "Metric Unit", "Metric Value")
MISSING = ("", "n/a", "nan", "no data", "inf", "-nan", "-inf")
NUMBER = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d{1,3})?")
PREFIXES = {"": 0, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15}
UNITS = {
    **{f"{prefix}{word}": (unit, 10**power) for prefix, power in PREFIXES.items()
       for word, unit in (("byte", "byte"), ("hz", "hz"), ("Hz", "hz"), ("byte/s", "byte/s"),
                          ("byte/second", "byte/s"))},
    **{word: (unit, Decimal(10) ** power) for unit, words in (
        ("ns", (("ns", 0), ("nsecond", 0), ("us", 3), ("usecond", 3), ("ms", 6), ("msecond", 6), ("s", 9),
                ("second", 9))),
        ("hz", (("cycle/nsecond", 9), ("cycle/ns", 9), ("cycle/usecond", 6), ("cycle/us", 6), ("cycle/msecond", 3),
                ("cycle/ms", 3), ("cycle/second", 0), ("cycle/s", 0)))) for word, power in words},
}  # fmt: skip
"""Spellings of units in ncu's versions: the unit they are brought to, and how many of it they stand for."""


@dataclass
class Launch:
    """One launch of a kernel. Values are exact; `missing` names the metrics that ncu could not say."""

    number: int
    kernel: str
    process: str
    device: int
    stream: int
    grid: str
    block: str
    values: dict[str, Decimal] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)

    def take(self, name: str, text: str, unit: str) -> None:
        """Keep a value: `Mbyte` becomes `byte`, `us` becomes `ns`; what is no number is missing."""
        if name in self.values:
            return
        value = parse_number(text)
        if value is None:
            self.missing.add(name)
            return
        base, factor = UNITS.get(unit, (unit, 1))
        self.values[name], self.units[name] = value * factor, base
        self.missing.discard(name)


def parse_number(text: str) -> Decimal | None:
    """`"4,194,304.00"` is 4194304; None for what is no number, a comma in a wrong place included."""
    text = text.strip()
    if text.lower() in MISSING or not NUMBER.fullmatch(text):
        return None
    return Decimal(text.replace(",", ""))


def read_launches(lines: Iterable[str]) -> Iterator[Launch]:
    """Launches in the order of the table. Raises SondaError when there is none, quoting the last line that says why."""
    columns: list[str] = []
    units: dict[str, str] = {}
    current: Launch | None = None
    last = ""
    for line in lines:
        if line.startswith(HEADING):
            columns, units = next(csv.reader([line])), {}
            if missing := [name for name in LEADING[:5] if name not in columns]:
                raise SondaError(f"the table has no column {missing[0]!r}", "print it with: ncu --csv --page raw")
            continue
        if not columns:
            last = line.strip() or last
            continue
        begin = 0 if line.startswith('"') else (found.start() if (found := ROW.search(line)) else -1)
        fields = next(csv.reader([line[begin:]]), []) if begin >= 0 else []
        if len(fields) < min(len(columns), len(LEADING)) or len(fields) > len(columns):
            last = line.strip() or last
            continue
        row = dict(zip(columns, fields, strict=False))
        if not row["ID"]:
            units = row
        elif row["ID"].isdigit():
            if current is None or current.number != int(row["ID"]) or METRIC[0] not in columns:
                if current is not None:
                    yield current
                current = _launch(row)
            _take_row(current, row, units)
    if current is None:
        raise SondaError(
            f"it holds no launch{f': {last[:200]}' if last else ''}", "print it with: ncu --csv --page raw"
        )
    yield current


def _launch(row: dict[str, str]) -> Launch:
    def number(name: str) -> int:
        text = row.get(name, "")
        return int(text) if text.isdigit() and len(text) < 9 else 0

    return Launch(
        int(row["ID"]), row["Kernel Name"], row["Process ID"], number("Device"), number("Stream"),
        row.get("Grid Size", ""), row.get("Block Size", ""),
    )  # fmt: skip


def _take_row(launch: Launch, row: dict[str, str], units: dict[str, str]) -> None:
    if METRIC[0] in row:
        if row[METRIC[0]]:
            launch.take(row[METRIC[0]], row.get(METRIC[2], ""), row.get(METRIC[1], ""))
        return
    for name, text in row.items():
        if name not in LEADING:
            launch.take(name, text, units.get(name, ""))
