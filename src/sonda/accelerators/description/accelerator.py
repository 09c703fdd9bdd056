"""An accelerator as its description gives it: engines, and which of them takes which kind of operation.

A description is a TOML file:

    name = "mine"
    clock_GHz = 1.0                        # optional; without it there are cycles and no times
    energy_table = "45nm"                  # optional
    notes = ["why it is as it is"]         # optional
    [engines.dense]                        # one or more engines, under names of your own
    kind = "flexible_dense"
    multipliers = 256
    read_ports = 128
    write_ports = 128
    accumulators = true
    tile = { T_M = 1, T_N = 2, T_K = 4 }   # optional; else a tile is chosen for every operation
    [route]                                # kinds of operation that are not named run on the host
    linear = "dense"
    [memory]                               # optional; without it the global buffer is unlimited
    buffer_KiB = 512
    double_buffering = true                # optional, as are the next three; here with what they are if left out
    element_bytes = 4
    burst_bytes = 64                       # of one access
    banks = 1                              # rows that can be opened at the same time
    bytes_per_cycle = 16                   # this and the next three, burst_bytes and banks: or a preset,
    latency_cycles = 50                    # dram = "ddr4-2400", "hbm2" or "lpddr4-2400", which needs clock_GHz
    row_bytes = 8192
    row_miss_cycles = 27

STONNE's own `.cfg` files describe an accelerator with one engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from sonda.accelerators.description.engine import OPERATIONS, EngineDescription, read_engine
from sonda.accelerators.description.fields import DescriptionMistakes, Fields, parse_toml, read_text
from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.description.memory import read_memory
from sonda.accelerators.energy.table import energy_tables
from sonda.accelerators.engines.registry import OWN, engine_kinds, engine_of
from sonda.accelerators.formats.stonne.files import read_configuration
from sonda.accelerators.memory.hierarchy import Memory
from sonda.record.errors import SondaError, nearest
from sonda.record.jit import require_compiler
from sonda.record.plugins import ACCELERATORS, call_entry, import_entry, plugin_entries

DEFAULT_ENERGY = "45nm"


@dataclass(frozen=True)
class Accelerator:
    """A described accelerator, checked."""

    name: str
    clock_hz: float | None
    """Nothing where no source gives a clock: then there are cycles and no times."""
    engines: dict[str, EngineDescription]
    route: dict[str, str]
    """Kind of operation -> name of the engine that takes it; other kinds run on the host."""
    energy_table: str
    notes: tuple[str, ...] = ()
    memory: Memory | None = None
    """Nothing where the global buffer is unlimited."""

    def engine_for(self, operation: str) -> EngineDescription | None:
        """The engine that takes this kind of operation; nothing where it runs on the host."""
        if operation not in OPERATIONS:
            raise SondaError(f"kind of operation {operation!r} is unknown", nearest(operation, OPERATIONS))
        return self.engines.get(self.route.get(operation, ""))

    def require_kernels(self) -> None:
        """Raise MissingExtraError where it has an engine of Sonda's own and nothing here compiles its kernels."""
        if any(engine.kind in OWN for engine in self.engines.values()):
            require_compiler()


def built_in_accelerators() -> tuple[str, ...]:
    """Names of the accelerators that Sonda describes."""
    folder = resources.files("sonda.accelerators.description") / "built_in"
    return tuple(sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml")))


def known_accelerators() -> tuple[str, ...]:
    """Names that `load_accelerator` knows: Sonda's own, then those of other packages."""
    own = built_in_accelerators()
    return (*own, *(name for name in plugin_entries(ACCELERATORS) if name not in own))


def load_accelerator(reference: str) -> Accelerator:
    """A built-in name, one that another package adds, the path of a `.toml` description or of a `.cfg` of STONNE.

    An entry of the group `sonda.accelerators` names the path of a `.toml` description, or a function that gives it.

    Raises SondaError where there is no such thing, and DescriptionMistakes with one line for each mistake in it.
    """
    if reference.endswith(".cfg"):
        return single_engine_accelerator(Path(reference).stem, *read_configuration(read_text(reference), reference))
    if reference.endswith(".toml"):
        return parse_accelerator(read_text(reference), reference)
    if reference in built_in_accelerators():
        folder = resources.files("sonda.accelerators.description") / "built_in"
        return parse_accelerator((folder / f"{reference}.toml").read_text(encoding="utf-8"), f"{reference}.toml")
    others = plugin_entries(ACCELERATORS)
    if reference in others:
        path = import_entry(others[reference])
        path = str(call_entry(others[reference]) if callable(path) else path)
        return parse_accelerator(read_text(path), path)
    raise SondaError(
        f"accelerator {reference!r} is unknown",
        nearest(reference, known_accelerators(), "A .toml description or a .cfg of STONNE can be given by its path"),
    )


def parse_accelerator(text: str, file: str) -> Accelerator:
    """The accelerator that a TOML text describes; raises DescriptionMistakes, naming `file`."""
    return read_accelerator(parse_toml(text, file), file)


def read_accelerator(table: dict[str, Any], file: str) -> Accelerator:
    """The accelerator that a description's tables give; raises DescriptionMistakes, naming `file`."""
    mistakes: list[str] = []
    top = Fields(table, "", mistakes)
    top.note_unknown(("name", "clock_GHz", "energy_table", "notes", "engines", "route", "memory"))
    name = top.text("name")
    clock = top.number("clock_GHz", 1e-6, 1000, None)
    energy_table = top.text("energy_table", DEFAULT_ENERGY)
    if energy_table is not None and not energy_table.endswith(".toml"):
        energy_table = top.one_of("energy_table", energy_tables(), DEFAULT_ENERGY)
    notes = top.texts("notes")
    engines, kind_of = _engines(top)
    route = _route(top, engines, kind_of)
    clock_hz = None if clock is None else clock * 1e9
    described_memory = top.table("memory")
    memory = None if described_memory is None else read_memory(described_memory, clock_hz)
    silent = [kind for kind in kind_of.values() if not engine_of(kind).moves_memory]
    if memory is not None and silent:
        top.note_mistake("memory", f"an engine of the kind {silent[0]} says nothing of what moves; leave [memory] out")
    if mistakes:
        raise DescriptionMistakes(file, mistakes)
    return Accelerator(
        name=name,
        clock_hz=clock_hz,
        engines={key: engine for key, engine in engines.items() if engine is not None},
        route=route,
        energy_table=energy_table,
        notes=notes,
        memory=memory,
    )


def single_engine_accelerator(name: str, kind: str, hardware: Hardware) -> Accelerator:
    """An accelerator with one engine, which takes every kind of operation that it can; without a clock."""
    engine = EngineDescription(name, kind, hardware).check()
    route = {operation: name for operation in OPERATIONS if engine.takes(operation)}
    return Accelerator(name, None, {name: engine}, route, DEFAULT_ENERGY)


def _engines(top: Fields) -> tuple[dict[str, EngineDescription | None], dict[str, str]]:
    """Engines by name, None for one with mistakes; and the kind of every engine whose kind can be read."""
    described = top.table("engines")
    names = () if described is None else described.keys()
    if not names and ("engines" not in top or described is not None):
        top.note_mistake("engines", "missing; give at least one [engines.NAME]")
    engines: dict[str, EngineDescription | None] = {}
    known, by_name = engine_kinds(), dict[str, str]()
    for name in names:
        given = None if described is None else described.table(name)
        engines[name] = None if given is None else read_engine(name, given)
        kind = None if given is None else given.nearest_word("kind", known)
        if kind is not None:
            by_name[name] = kind
    return engines, by_name


def _route(top: Fields, engines: Iterable[str], kind_of: dict[str, str]) -> dict[str, str]:
    table = top.table("route")
    if table is None:
        if "route" not in top:
            top.note_mistake("route", f"missing; say which engine takes which of {', '.join(OPERATIONS)}")
        return {}
    table.note_unknown(OPERATIONS)
    route = {}
    for operation in OPERATIONS:
        name = table.one_of(operation, engines, None)
        if name is not None and name in kind_of and operation not in engine_of(kind_of[name]).operations:
            table.note_mistake(operation, f"{kind_of[name]} does not take it; leave it out, then it runs on the host")
        elif name is not None:
            route[operation] = name
    return route
