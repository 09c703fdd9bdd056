"""Top-Down tables: for each microarchitecture the events to count, the groups that fit its counters, and the formulas.

`topdown/` has one file for each microarchitecture. `record/conventions/topdown.py` says what the categories are. A
table adds `events` (the parts of each code, and the code itself), `groups`, `fixed` (events that take no programmable
counter) and `cpus` (the processors that it is for).
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from sonda.probes.machine.processor import ProcessorIdentity
from sonda.record.conventions.expression import parse
from sonda.record.conventions.topdown import TopDownDefinition, read_definition
from sonda.record.errors import SondaError
from sonda.record.readings import CountedTopDown

DIRECTORY = Path(__file__).parent / "topdown"
JOINT = ("cycles", "instructions")
"""Events of every group: by these, groups that take turns can be compared."""


class TableEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An event as its source spells it; `config` is what the kernel is given."""

    config: int
    title: str
    event: int = 0
    umask: int = 0
    cmask: int = 0
    edge: bool = False
    sysfs: str = ""
    """Its name in `/sys/bus/event_source/devices/cpu/events`; what the kernel says there goes before `config`."""


class Processors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Processors by what `/proc/cpuinfo` says; on Arm `family` is the architecture and a model the part number."""

    vendor: str
    family: int
    models: list[tuple[int, int]]
    """First and last of each range."""


class _TableFile(msgspec.Struct, frozen=True):
    encoding: str
    counters: int
    fixed: list[str]
    groups: list[list[str]]
    events: dict[str, TableEvent]
    cpus: list[Processors] = []
    kept: list[str] = []
    smt: str = ""
    guest: str = ""


@dataclass(frozen=True)
class TopDownTable:
    """One microarchitecture."""

    key: str
    """Name of its file."""
    definition: TopDownDefinition
    counters: int
    """Programmable counters of a thread, with simultaneous multithreading on."""
    fixed: frozenset[str]
    groups: tuple[tuple[str, ...], ...]
    events: dict[str, TableEvent]
    encoding: str
    cpus: tuple[Processors, ...]
    kept: tuple[str, ...]
    """Events that are counted for their own sake and are in no formula."""
    smt: str
    """What simultaneous multithreading does to the fractions; '' for nothing."""
    guest: str
    """The table that takes its place where the kernel does not have all of its events."""

    def matches(self, vendor: str, family: int, model: int) -> bool:
        return any(
            processors.vendor == vendor
            and processors.family == family
            and any(low <= model <= high for low, high in processors.models)
            for processors in self.cpus
        )

    def fit_groups(self, counters: int) -> tuple[tuple[str, ...], ...]:
        """The groups, split into smaller ones where there are fewer programmable counters than the table expects."""
        return tuple(piece for group in self.groups for piece in self.split_group(group, counters))

    def split_group(self, group: tuple[str, ...], counters: int) -> list[tuple[str, ...]]:
        """One group in as many pieces as it takes to fit. Raises SondaError where not even one event fits."""
        free = [name for name in group if name not in self.fixed]
        if len(free) <= counters:
            return [group]
        base = [name for name in group if name in self.fixed or name in JOINT]
        room = counters - sum(name not in self.fixed for name in base)
        if room < 1:
            raise SondaError(f"{counters} counters are too few to count {self.definition.name}", "stop other profilers")
        rest = [name for name in group if name not in base]
        return [(*base, *rest[at : at + room]) for at in range(0, len(rest), room)]

    def counted_definition(self) -> CountedTopDown:
        """The definition as `run.json` keeps it, with the name of the table and the codes of its events."""
        events = {name: f"{event.title} ({event.config:#x})" for name, event in self.events.items()}
        return CountedTopDown(**msgspec.structs.asdict(self.definition), table=self.key, events=events)


@cache
def load_tables() -> dict[str, TopDownTable]:
    """All tables by the name of their file. Raises SondaError for one that is wrong."""
    return {path.stem: read_table(path) for path in sorted(DIRECTORY.glob("*.toml"))}


def read_table(path: Path) -> TopDownTable:
    """Read and check one table. Raises SondaError that names the file and its first mistake."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        file = msgspec.convert(data, _TableFile)
        table = TopDownTable(
            key=path.stem,
            definition=read_definition(data),
            counters=file.counters,
            fixed=frozenset(file.fixed),
            groups=tuple(tuple(group) for group in file.groups),
            events=file.events,
            encoding=file.encoding,
            cpus=tuple(file.cpus),
            kept=tuple(file.kept),
            smt=file.smt,
            guest=file.guest,
        )
    except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise SondaError(
            f"{path.name} is not a Top-Down table: {error}", "see the tables that come with Sonda"
        ) from None
    mistakes = check_table(table)
    if mistakes:
        raise SondaError(f"{path.name}: {mistakes[0]}", "see the tables that come with Sonda")
    return table


def check_table(table: TopDownTable) -> list[str]:
    """Mistakes in a table, sorted: formulas and groups may use defined events only, and every event must be used."""
    definition = table.definition
    mistakes: list[str] = []
    needed: set[str] = set()
    known = {*JOINT, *table.events, "width"}
    formulas = [
        *definition.formulas.items(),
        *((category.name, category.formula) for category in definition.categories),
    ]
    for name, text in formulas:
        names = set(parse(text).names)
        mistakes += [
            f"{name} needs {unknown!r}, which is no event and no formula before it" for unknown in names - known
        ]
        needed |= names
        known.add(name)
    counted = {name for group in table.groups for name in group}
    unused = table.events.keys() - needed - set(table.kept) - {"slots"}
    mistakes += [f"{name!r} is counted and not defined" for name in counted - {*JOINT, *table.events}]
    mistakes += [f"{name!r} is defined and in no group" for name in table.events.keys() - counted]
    mistakes += [f"{name!r} is in no formula" for name in unused]
    for group in table.groups:
        if not set(JOINT) <= set(group):
            mistakes.append(f"a group lacks cycles or instructions: {', '.join(group)}")
        if len([name for name in group if name not in table.fixed]) > table.counters:
            mistakes.append(f"a group needs more than {table.counters} counters: {', '.join(group)}")
        if "slots" in group and group[0] != "slots":
            mistakes.append(f"slots must lead its group: {', '.join(group)}")
    for name, event in table.events.items():
        if not event.sysfs and event.config != encode_event(table.encoding, event):
            mistakes.append(f"{name}: config {event.config:#x} is not what event and umask give")
    return sorted(mistakes)


def encode_event(encoding: str, event: TableEvent) -> int:
    """The raw code of an event. Raises SondaError for an unknown encoding.

    Sources: Intel SDM volume 3, IA32_PERFEVTSELx; AMD APM volume 2, PerfEvtSel; Arm's event number.
    """
    if encoding == "intel":
        return event.event | event.umask << 8 | event.edge << 18 | event.cmask << 24
    if encoding == "amd":
        low, high = event.event & 0xFF, event.event >> 8
        return low | event.umask << 8 | event.edge << 18 | event.cmask << 24 | high << 32
    if encoding == "arm":
        return event.event
    raise SondaError(f"unknown encoding {encoding!r}", "use intel, amd or arm")


def find_table(identity: ProcessorIdentity) -> TopDownTable:
    """The table of a processor. Raises SondaError where no table is for it."""
    if identity.family is not None and identity.model is not None:
        for table in load_tables().values():
            if table.matches(identity.vendor or "", identity.family, identity.model):
                return table
    name = identity.processor or identity.vendor or "this processor"
    raise SondaError(
        f"no Top-Down table for {name} (family {identity.family}, model {identity.model})",
        "cycles and instructions are counted all the same, and events by name: --probe pmu:EVENT",
    )
