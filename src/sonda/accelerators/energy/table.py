"""Energies, powers and areas of components, each with its node, source and uncertainty, read from a TOML file.

name = "mine"
unit = "pJ"                      # of every energy
area_unit = "um2"
buffer_bytes = 131072            # the global buffer, where a run does not say how big it is
implausible = "why"              # optional
[sources]
key = "who published it, where"
[[entry]]
component = "MULTIPLIER"         # as in the counters of a result
operation = "MULTIPLICATION"     # as there; or STATIC (per cycle, or mW) or AREA
value = 3.7
unit = "pJ"
node = "45 nm"
source = "key"
status = "checked"               # read in the source or run with it; or derived; or recalled, never verified
uncertainty = 2                  # the truth is thought to lie between value / 2 and value * 2
bytes = 4096                     # only where it depends on the size of a memory
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources

from sonda.accelerators.description.fields import DescriptionMistakes, Fields, parse_toml, read_text
from sonda.record.errors import SondaError, nearest

STATUSES = ("checked", "derived", "recalled")
STATIC, AREA = "STATIC", "AREA"
POWER = "mW"
"""Unit of a static power; a static energy is per cycle, in the unit of all energies."""
LARGEST_BYTES = 1 << 50
"""Of a memory on a chip."""
FOLDER = "tables"
DRAM = "dram"
"""The file of energies per bit of memories outside the accelerator; no table for counters."""
PATTERNS = ("-random", "-stream")
"""Ends of the names of energies in it that depend on where accesses go."""
JOULES = {"fJ": 1e-15, "pJ": 1e-12, "nJ": 1e-9, "uJ": 1e-6, "µJ": 1e-6, "mJ": 1e-3, "J": 1.0}
"""Units of energy that a table may state, in joules."""
SQUARE_MILLIMETRES = {"um2": 1e-6, "µm2": 1e-6, "mm2": 1.0}
"""Units of area."""


@dataclass(frozen=True)
class Entry:
    """One number and where it comes from."""

    component: str
    operation: str
    value: float
    unit: str
    node: str
    source: str
    """In full, not the key."""
    status: str
    uncertainty: float
    """A factor of at least 1: the truth is thought to lie between value / uncertainty and value * uncertainty."""
    bytes: int | None = None
    """Size of the memory that it holds for; nothing where that does not matter."""


@dataclass(frozen=True)
class EnergyTable:
    """All entries of a file."""

    name: str
    unit: str
    area_unit: str
    entries: tuple[Entry, ...]
    buffer_bytes: int | None = None
    implausible: str = ""
    """Why its numbers are not to be believed, where they are not."""
    notes: tuple[str, ...] = ()

    def find(self, component: str, operation: str, buffer_bytes: int | None = None) -> Entry | None:
        """The entry for an operation: of those that depend on a size, the smallest that is big enough.

        Nothing where the table has none. Raises SondaError where the buffer is bigger than any it knows.
        """
        fitting = self._by_operation.get((component, operation))
        if fitting is None:
            return None
        wanted = self.buffer_bytes if buffer_bytes is None else buffer_bytes
        for entry in fitting:
            if entry.bytes is None or wanted is None or entry.bytes >= wanted:
                return entry
        raise SondaError(
            f"energy table {self.name} knows buffers of up to {fitting[-1].bytes} bytes, not of {wanted}",
            "give a smaller buffer or another table",
        )

    @cached_property
    def _by_operation(self) -> dict[tuple[str, str], list[Entry]]:
        """Entries of each operation, by growing size."""
        by_operation: dict[tuple[str, str], list[Entry]] = {}
        for entry in sorted(self.entries, key=lambda entry: entry.bytes or 0):
            by_operation.setdefault((entry.component, entry.operation), []).append(entry)
        return by_operation


def energy_tables() -> tuple[str, ...]:
    """Names of the tables that Sonda brings."""
    names = (file.name for file in (resources.files("sonda.accelerators.energy") / FOLDER).iterdir())
    return tuple(
        sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml") and name != f"{DRAM}.toml")
    )


def load_energy_table(reference: str) -> EnergyTable:
    """A table that Sonda brings, by its name, or one of your own, by the path of its `.toml`."""
    if reference.endswith(".toml"):
        return parse_energy_table(read_text(reference), reference)
    if reference not in energy_tables():
        raise SondaError(
            f"energy table {reference!r} is unknown", nearest(reference, energy_tables(), "Your own: a .toml file")
        )
    return _load_own_table(reference)


def dram_presets() -> dict[str, Entry]:
    """Energy per bit moved, by name of memory and pattern."""
    return {entry.operation: entry for entry in _load_own_table(DRAM).entries}


def parse_energy_table(text: str, file: str) -> EnergyTable:
    """The table that a TOML text holds; raises DescriptionMistakes, naming `file`."""
    mistakes: list[str] = []
    document = parse_toml(text, file)
    top = Fields(document, "", mistakes)
    top.note_unknown(("name", "unit", "area_unit", "buffer_bytes", "implausible", "notes", "sources", "entry"))
    name, unit, area_unit = (top.text(key) for key in ("name", "unit", "area_unit"))
    buffer_bytes, implausible = top.count("buffer_bytes", 1, LARGEST_BYTES, None), top.text("implausible", "")
    sources = top.table("sources")
    cited = {} if sources is None else {key: sources.text(key) for key in sources.keys()}  # noqa: SIM118
    given = document.get("entry", [])
    if not isinstance(given, list) or not given or not all(isinstance(table, dict) for table in given):
        top.note_mistake("entry", "missing; give at least one [[entry]]")
        given = []
    entries = [
        _entry(Fields(table, f"entry {place}: ", mistakes), cited, {AREA: (area_unit,), STATIC: (unit, POWER)}, unit)
        for place, table in enumerate(given, start=1)
    ]
    _note_duplicates([entry for entry in entries if entry is not None], top)
    if mistakes:
        raise DescriptionMistakes(file, mistakes)
    valid = tuple(entry for entry in entries if entry is not None)
    return EnergyTable(name, unit, area_unit, valid, buffer_bytes, implausible, top.texts("notes"))


@cache
def _load_own_table(name: str) -> EnergyTable:
    file = resources.files("sonda.accelerators.energy") / FOLDER / f"{name}.toml"
    return parse_energy_table(file.read_text(encoding="utf-8"), f"{name}.toml")


def _entry(
    given: Fields, cited: dict[str, str], units: dict[str, tuple[str | None, ...]], unit: str | None
) -> Entry | None:
    """An entry whose unit is the table's, or one of `units` for its operation: sums do not convert."""
    given.note_unknown(Entry.__dataclass_fields__)
    texts = {key: given.text(key) for key in ("component", "operation", "unit", "node")}
    source, status = given.one_of("source", cited), given.one_of("status", STATUSES)
    value, uncertainty = given.number("value", 0, 1e12), given.number("uncertainty", 1, 1e6)
    size = given.count("bytes", 1, LARGEST_BYTES, None)
    if None in (*texts.values(), source, status, value, uncertainty):
        return None
    allowed = units.get(str(texts["operation"]), (unit,))
    if texts["unit"] not in allowed and None not in allowed:
        given.note_mistake(
            "unit", f"{texts['unit']!r} is not {' or '.join(repr(allowed_unit) for allowed_unit in allowed)}"
        )
        return None
    return Entry(**texts, value=value, source=cited[source], status=status, uncertainty=uncertainty, bytes=size)


def _note_duplicates(entries: list[Entry], top: Fields) -> None:
    seen = set()
    for entry in entries:
        key = (entry.component, entry.operation, entry.bytes)
        if key in seen:
            top.note_mistake("entry", f"{entry.component} {entry.operation} is given twice")
        seen.add(key)


# ---- What an energy table charges at one clock, entry by entry, in the table's own units ----------------------------


class Prices:
    """Looks entries up and notes what the table lacks, and which of the entries used nobody has verified."""

    def __init__(self, table: EnergyTable, clock_hz: float | None) -> None:
        self._table = table
        self._clock_hz = clock_hz
        self.missing: dict[str, None] = {}
        """`COMPONENT OPERATION`, sometimes with a reason, in the order met."""
        self.recalled: dict[str, None] = {}

    def find(self, component: str, operation: str, buffer_bytes: int | None) -> tuple[Entry, float] | None:
        """An entry, and by what its value is multiplied to be charged once: per operation, per instance for AREA, per
        instance and cycle for STATIC. Nothing where the table has none, or where a power needs a clock."""
        entry = self._table.find(component, operation, buffer_bytes)
        if entry is None:
            self.missing[f"{component} {operation}"] = None
            return None
        factor = self._cycle_factor(entry) if operation == STATIC else 1.0
        if factor is None:
            return None
        if entry.status == "recalled":
            self.recalled[f"{component} {operation}"] = None
        return entry, factor

    def _cycle_factor(self, entry: Entry) -> float | None:
        if entry.unit != POWER:
            return 1.0
        joules = JOULES.get(self._table.unit)
        if self._clock_hz is None or joules is None:
            lacking = "a clock" if self._clock_hz is None else "the unit of the table's energies"
            self.missing[f"{entry.component} {STATIC} (needs {lacking})"] = None
            return None
        # 1 mW is 1e-3 J in a second.
        return 1e-3 / self._clock_hz / joules
