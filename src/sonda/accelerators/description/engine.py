"""One engine of a described accelerator: its kind, its hardware, and how it maps operations where that is given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from sonda.accelerators.description.fields import Fields
from sonda.accelerators.description.hardware import REDUCTIONS, Hardware
from sonda.accelerators.engines.registry import OWN, blame_package, engine_kinds, engine_of
from sonda.record.errors import SondaError

if TYPE_CHECKING:
    from sonda.accelerators.engines.contract import Engine

OPERATIONS = ("linear", "gemm", "convolution", "attention", "embedding_bag")
"""Kinds of operation: a product with weights; any other product of two matrices (DLRM's interaction); a convolution;
the products of an attention; sums of rows of a table."""
SIDES = ("rows", "columns")
LONGEST_SIDE = 1 << 10
"""The longest side of a mesh, in processing elements."""
LARGEST_TILE = 1 << 20


@dataclass(frozen=True)
class EngineDescription:
    """One engine. `check` says whether it can be built."""

    name: str
    kind: str
    hardware: Hardware
    dataflow: dict[str, str] = field(default_factory=dict)
    """Kind of operation -> dataflow, for the kinds where it is given; empty where the engine has no choice."""
    tile: dict[str, int] = field(default_factory=dict)
    """Letter -> size, of a matrix product in the letters of the kind; empty where it is to be chosen."""
    convolution_tile: dict[str, int] = field(default_factory=dict)
    """Letter -> size, of a convolution; empty where it is to be chosen."""

    @property
    def simulator(self) -> Engine:
        """What simulates this kind of engine. Raises SondaError where the package that adds it cannot be used."""
        return engine_of(self.kind)

    @property
    def elements(self) -> int:
        """Multipliers that can work at the same time."""
        return self.hardware.rows * self.hardware.columns or self.hardware.multipliers

    def takes(self, operation: str) -> bool:
        """Whether this kind of engine can run this kind of operation."""
        return operation in self.simulator.operations

    def check(self) -> EngineDescription:
        """This engine; raises SondaError whose cause begins with the field that is wrong."""
        for problem in self.problems():
            raise problem
        return self

    def problems(self, unknown: Iterable[str] = ()) -> Iterator[SondaError]:
        """All reasons why it cannot be built, each cause beginning with the name of a field.

        What depends on a field that is wrong itself, or on one of the `unknown`, is not judged.
        """
        wrong = set(unknown)
        for problem in (*self._wrong_sides(), *self.hardware.problems(wrong)):
            field_name = problem.cause.partition(" ")[0]
            if field_name not in wrong:
                wrong.add(field_name)
                yield problem
        with blame_package(self.kind):
            yield from self.simulator.problems(self, wrong)

    def _wrong_sides(self) -> Iterator[SondaError]:
        for side in SIDES if self.simulator.has_mesh else ():
            value = getattr(self.hardware, side)
            if not 1 <= value <= LONGEST_SIDE:
                yield SondaError(f"{side} = {value} is not a size from 1 to {LONGEST_SIDE}", f"change {side}")


def read_engine(name: str, given: Fields) -> EngineDescription | None:
    """The engine that a table describes; nothing where it has mistakes, which are noted."""
    given.note_unknown(
        ("kind", "dataflow", "tile", "convolution_tile", *(hardware_field.name for hardware_field in fields(Hardware)))
    )
    # Looking for packages that add kinds takes longer than all else here; explorations read engines by the thousand.
    known = tuple(OWN) if given.has_word("kind", OWN) else engine_kinds()
    named = given.one_of("kind", known)
    # A misspelt kind is read as the one that was meant, so that the other fields are judged, too.
    kind = named or given.nearest_word("kind", known)
    if kind is None:
        return None
    simulator = engine_of(kind)
    values = _hardware(kind, simulator, given)
    unknown = [name for name, value in values.items() if value is None]
    tile = _tile(given, "tile", kind, simulator.product_tile, simulator.fully_connected_tile)
    convolution = _tile(given, "convolution_tile", kind, simulator.convolution_tile, {})
    dataflow = _dataflow(given, kind, simulator.dataflows)
    hardware = Hardware(**{key: value for key, value in values.items() if value is not None})
    engine = EngineDescription(name, kind, hardware, dataflow, tile, convolution)
    problems = list(engine.problems(unknown))
    for problem in problems:
        given.note_error(problem)
    return None if named is None or unknown or problems else engine


def _hardware(kind: str, simulator: Engine, given: Fields) -> dict[str, Any]:
    """The hardware's fields; None for one that is wrong or missing.

    What is not given follows from the kind; sizes and bandwidths, and what is a choice, must be given.
    """
    values = {"read_ports": given.whole("read_ports"), "write_ports": given.whole("write_ports")}
    if simulator.has_mesh:
        values |= {side: given.whole(side) for side in SIDES}
        elements = (values["rows"] or 0) * (values["columns"] or 0)
        values["multipliers"] = given.whole("multipliers", 1 << max(elements - 1, 0).bit_length())
    else:
        for side in SIDES:
            if side in given:
                given.note_mistake(side, f"{kind} has no mesh; leave it out")
        values["multipliers"] = given.whole("multipliers")
    values["reduction"] = given.one_of("reduction", REDUCTIONS, simulator.reduction)
    usual = () if simulator.accumulators is None else (simulator.accumulators,)
    values["accumulators"] = given.switch("accumulators", *usual)
    values["controller"] = given.one_of("controller", (simulator.controller,), simulator.controller)
    return values


def _tile(given: Fields, key: str, kind: str, letters: tuple[str, ...], others: Mapping[str, str]) -> dict[str, int]:
    """The tile in the letters of the engine; sizes of a convolution that are not given are 1."""
    if key in given and not letters:
        given.note_mistake(key, f"{kind} has none; leave it out")
        return {}
    table = given.table(key)
    if table is None:
        return {}
    names: Mapping[str, str] = {letter: letter for letter in letters}
    if any(letter in table for letter in others if letter not in letters):
        names = others
    table.note_unknown(names)
    usual = (1,) if key == "convolution_tile" else ()
    sizes = {}
    for name, letter in names.items():
        sizes[letter] = table.whole(name, *usual)
        if sizes[letter] is not None and not 1 <= sizes[letter] <= LARGEST_TILE:
            table.note_mistake(name, f"{sizes[letter]} is not a size from 1 to {LARGEST_TILE}")
            sizes[letter] = None
    return {} if None in sizes.values() else {letter: sizes[letter] for letter in letters}


def _dataflow(given: Fields, kind: str, dataflows: tuple[str, ...]) -> dict[str, str]:
    """One dataflow for all kinds of operation, or a table with one for each."""
    if "dataflow" not in given:
        return {}
    if not dataflows:
        given.note_mistake("dataflow", f"{kind} has no choice; leave it out")
        return {}
    if not given.is_table("dataflow"):
        chosen = given.one_of("dataflow", dataflows)
        return {} if chosen is None else dict.fromkeys(OPERATIONS, chosen)
    table = given.table("dataflow")
    if table is None:
        return {}
    table.note_unknown(OPERATIONS)
    named = {operation: table.one_of(operation, dataflows) for operation in OPERATIONS if operation in table}
    return {operation: chosen for operation, chosen in named.items() if chosen is not None}
