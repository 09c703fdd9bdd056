"""Tables of Nsight Compute: launches from `ncu --csv`, in both of its shapes.

`--page raw` is wide: a heading, a row of units, a row per launch. `--page details` is long: a row per launch and
metric. What else stands between the rows (ncu's own lines, the program's output) is passed over; a row that output ran
into is taken from where it begins. A row that is not whole is left out and counted, never taken in part: `1,048` may be
the beginning of `1,048,576`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache

from sonda.record.errors import SondaError

HEADING = '"ID",'
WHOLE_HEADING = '"ID","Process ID",'
ROW = re.compile(r'"[0-9]+","[0-9]+","')
UNITS_ROW = re.compile(r'(?:"",){5}')
BEGUN = re.compile(r'"(?:[0-9]+(?:"(?:,.*)?)?)?$', re.DOTALL)
"""The rest of a file that was cut in the first fields of a row."""
QUOTED = re.compile(r'"[^"]*(?:""[^"]*)*"(?:,"[^"]*(?:""[^"]*)*")*')
BETWEEN = '","'
LONGEST_ID = 9
"""Digits."""
LEADING = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size",
           "Grid Size", "Device", "CC")  # fmt: skip
ABOUT = ("device__", "launch__", "nvlink__", "c2clink__", "numa__", "Kernel Time")
"""How columns begin that say something about the device and the launch, some 250 in every table: not read."""
METRIC = ("Metric Name", "Metric Unit", "Metric Value")
REMEDY = "print it with: ncu --csv --page raw"
MISSING = ("", "n/a", "nan", "no data", "inf", "-nan", "-inf")
NUMBER = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d{1,3})?", re.ASCII)
PREFIXES = {"": 0, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15}
UNITS = {
    **{f"{prefix}{word}": (unit, 10**power) for prefix, power in PREFIXES.items()
       for word, unit in (("byte", "byte"), ("inst", "inst"), ("cycle", "cycle"), ("hz", "hz"), ("Hz", "hz"),
                          ("byte/s", "byte/s"), ("byte/second", "byte/s"))},
    **{word: (unit, Decimal(10) ** power) for unit, words in (
        ("ns", (("ns", 0), ("nsecond", 0), ("us", 3), ("usecond", 3), ("ms", 6), ("msecond", 6), ("s", 9),
                ("second", 9))),
        ("hz", (("cycle/nsecond", 9), ("cycle/ns", 9), ("cycle/usecond", 6), ("cycle/us", 6), ("cycle/msecond", 3),
                ("cycle/ms", 3), ("cycle/second", 0), ("cycle/s", 0)))) for word, power in words},
}  # fmt: skip
"""Spellings of units in ncu's versions: the unit they are brought to, and how many of it they stand for."""
EXPECTED = {
    "byte": re.compile(r"(?:dram|lts|l1tex)__\w*bytes\w*\.sum"),
    "inst": re.compile(r"smsp__\w*thread_inst_executed\w*\.sum"),
    "ns": re.compile(r"gpu__time_duration\.sum|Duration"),
    "hz": re.compile(r"\w+\.avg\.per_second|SM Frequency"),
    "cycle": re.compile(r"sm__cycles_elapsed\.max|Elapsed Cycles"),
    "%": re.compile(r"smsp__warp_issue_stalled_\w+\.pct"),
}
"""Units that values are needed in, by the names of metrics: a number in another would be taken for something else."""
LARGEST = Decimal(10) ** 24
"""No count, time or rate of a launch is as large."""


@dataclass
class Launch:
    """One launch of a kernel. Values are exact; `missing` names the metrics that ncu could not say.

    `table` counts the headings before it: numbers of launches begin anew behind each. `whole` is False where a row of
    it may have been lost, so that nobody knows what else was counted.
    """

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
    table: int = 0
    whole: bool = True
    capability: str = ""
    """Of the device, `9.0`; '' where the table does not say."""

    def take(self, name: str, text: str, unit: str) -> None:
        """Keep a value: `Mbyte` becomes `byte`, `us` becomes `ns`.

        What is no number from 0, or is in a unit that means nothing here, is missing.
        """
        if name in self.values:
            return
        value = parse_number(text)
        base, factor = UNITS.get(unit, (unit, 1))
        if value is None or not 0 <= value < LARGEST or base not in ("", _expected_unit(name) or base):
            self.missing.add(name)
            return
        self.values[name], self.units[name] = value * factor, base
        self.missing.discard(name)


@lru_cache(maxsize=4096)
def _expected_unit(name: str) -> str | None:
    return next((unit for unit, names in EXPECTED.items() if names.fullmatch(name)), None)


def parse_number(text: str) -> Decimal | None:
    """`"4,194,304.00"` is 4194304; None for what is no number, a comma in a wrong place included."""
    text = text.strip()
    if text.lower() in MISSING or not NUMBER.fullmatch(text):
        return None
    return Decimal(text.replace(",", ""))


@dataclass
class Damage:
    """What of a table could not be read."""

    rows: int = 0
    """Lines that look like rows and are none, or not whole."""
    cut: bool = False
    """The table ends in the middle of a row."""

    def notes(self) -> list[str]:
        """Sentences, none where all was read."""
        notes = ["the table ends in the middle of a row: left out"] if self.cut else []
        return notes + ([f"{self.rows:,} rows of the table cannot be read: left out"] if self.rows else [])


def read_launches(lines: Iterable[str], damage: Damage | None = None) -> Iterator[Launch]:
    """Launches in the order of the table; `damage` is told what could not be read of it.

    Raises SondaError when there is no launch, quoting the last line that says why, and when a heading or the units
    under it cannot be read: numbers without them mean nothing.
    """
    reading = _TableReader(Damage() if damage is None else damage)
    any_launch = False
    for line, last in _mark_last(lines):
        for launch in reading.take(line, last):
            any_launch = True
            yield launch
    if not any_launch:
        quote = f": {reading.passed_over[:200]}" if reading.passed_over else ""
        raise SondaError(f"it holds no launch{quote}", REMEDY)


def _mark_last(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Every line, and whether it is the last."""
    before: str | None = None
    for line in lines:
        if before is not None:
            yield before, False
        before = line
    if before is not None:
        yield before, True


class _TableReader:
    """A table on its way: the heading that holds, and the launch whose rows are being read."""

    def __init__(self, damage: Damage) -> None:
        self.damage = damage
        self.passed_over = ""
        """The last line that is no row."""
        self._tables = 0
        self._columns: list[str] = []
        self._long = False
        self._units: list[str] | None = None
        self._counted: list[int] = []
        """Columns that are counts."""
        self._names: set[str] = set()
        """Metrics that launches of this table have."""
        self._current: Launch | None = None
        self._before: Launch | None = None
        self._torn = False
        """A row was lost that may be of the launch that comes next."""

    def take(self, line: str, last: bool) -> Iterator[Launch]:
        """Read a line; launches that end with it or before it."""
        cut = last and not line.endswith("\n")
        if (at := line.find(WHOLE_HEADING)) >= 0 or (not self._columns and line.startswith(HEADING)):
            yield from self._end(table=True)
            self._head(line[max(0, at) :], cut)
        elif not self._columns:
            self.passed_over = line.strip() or self.passed_over
        elif row := ROW.search(line):
            yield from self._take_row(line[row.start() :], cut)
        elif not self._long and self._units is None and (row := UNITS_ROW.search(line)):
            fields = _fields(line[row.start() :])
            self._units = fields if len(fields) == len(self._columns) else None
        else:
            self.passed_over = line.strip() or self.passed_over
            if line.count(BETWEEN) >= len(LEADING) - 3 or (cut and BEGUN.match(line)):
                self._lose(cut)
        if last:
            yield from self._end(table=True)

    def _head(self, line: str, cut: bool) -> None:
        self._columns = _fields(line)
        self._units, self._names, self._torn = None, set(), False
        self._tables += 1
        self._counted = [
            place for place, name in enumerate(self._columns) if name not in LEADING and not name.startswith(ABOUT)
        ]
        self.damage.cut = self.damage.cut or cut
        if missing := [name for name in LEADING[:5] if name not in self._columns]:
            raise SondaError(f"the table has no column {missing[0]!r}", REMEDY)
        self._long = METRIC[0] in self._columns
        if self._long and (missing := [name for name in METRIC if name not in self._columns]):
            raise SondaError(f"the table has no column {missing[0]!r}", REMEDY)

    def _take_row(self, line: str, cut: bool) -> Iterator[Launch]:
        fields = _fields(line)
        # Behind a value the long shape has all further columns, which are those of advice, or none.
        least = 1 + max(self._columns.index(name) for name in METRIC) if self._long else len(self._columns)
        if len(fields) not in (least, len(self._columns)) or len(fields[0]) > LONGEST_ID:
            if cut or not (self._long and self._is_rule(line)):
                self._lose(cut)
            return
        row = dict(zip(self._columns, fields, strict=False))
        key = int(row["ID"]), row["Process ID"]
        if self._current is None or not self._long or (self._current.number, self._current.process) != key:
            yield from self._end()
            self._current = _make_launch(row, self._tables, not self._torn)
            self._torn = False
        if self._long:
            if row[METRIC[0]]:
                self._current.take(row[METRIC[0]], row[METRIC[2]], row[METRIC[1]])
            if cut and len(fields) < len(self._columns) and not line.endswith(","):
                self._lose(cut)  # its end, and whatever came behind it
            return
        if self._units is None:
            raise SondaError("the row of units under the heading is missing, or damaged", REMEDY)
        for place in self._counted:
            self._current.take(self._columns[place], fields[place], self._units[place])

    def _is_rule(self, line: str) -> bool:
        """Whether a row that cannot be read is advice of ncu's, with quotes or new lines in it, and holds no number."""
        place = self._columns.index(METRIC[0])
        fields = line.split(BETWEEN)
        return len(fields) > place and fields[place] == ""

    def _lose(self, cut: bool) -> None:
        if cut:
            self.damage.cut = True
        else:
            self.damage.rows += 1
        self._torn = self._long
        if self._long and self._current is not None:
            self._current.whole = False

    def _end(self, table: bool = False) -> Iterator[Launch]:
        """The launch before the one that ends here, and that one too where the table ends.

        In the long shape a row that is lost shows by nothing but what other launches have.
        """
        current, before = self._current, self._before
        if current is not None:
            if self._long:
                current.missing |= self._names - current.values.keys()
                self._names |= current.values.keys()
            if before is not None:
                before.missing |= self._names - before.values.keys() if self._long else set()
                yield before
            self._before = current
        if table and self._before is not None:
            yield self._before
            self._before = None
        self._current = None


def _fields(line: str) -> list[str]:
    """The fields of a row, with or without a comma behind it; [] where one is not in quotes, as all of ncu's are."""
    text = line.rstrip("\r\n").removesuffix(",")
    try:
        return next(csv.reader([text]), []) if QUOTED.fullmatch(text) else []
    except csv.Error:  # a field of more than 128 KiB
        return []


def _make_launch(row: dict[str, str], table: int, whole: bool) -> Launch:
    def number(name: str) -> int:
        text = row.get(name, "")
        return int(text) if text.isdecimal() and len(text) < LONGEST_ID else 0

    return Launch(
        int(row["ID"]), row["Kernel Name"], row["Process ID"], number("Device"), number("Stream"),
        row.get("Grid Size", ""), row.get("Block Size", ""), table=table, whole=whole,
        capability=row.get("CC", ""),
    )  # fmt: skip
