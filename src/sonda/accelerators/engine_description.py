"""One engine of a described accelerator: its kind, its hardware, and how it maps operations where that is given."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from sonda.accelerators.hardware import DATAFLOWS, REDUCTIONS, Hardware
from sonda.accelerators.mistake import Fields
from sonda.record.added import ENGINES, added
from sonda.record.errors import SondaError

OPERATIONS = ("linear", "gemm", "convolution", "attention", "embedding_bag")
"""Kinds of operation: a product with weights; any other product of two matrices (DLRM's interaction); a convolution;
the products of an attention; sums of rows of a table."""
CONTROLLER_OF = {
    "flexible_dense": "MAERI_DENSE_WORKLOAD",
    "bitmap_sparse": "SIGMA_SPARSE_GEMM",
    "compressed_row": "MAGMA_SPARSE_DENSE",
    "mesh": "TPU_OS_DENSE",
    # Only in a variant of STONNE, in which no controller of these four selects them.
    "outer_product": "SIGMA_SPARSE_GEMM",
    "gustavson": "SIGMA_SPARSE_GEMM",
}
"""Kinds of engine that are Sonda's, and STONNE's controller of each."""
DENSE = ("flexible_dense", "mesh")
"""Kinds of engine that fetch zeros like any other element, and whose time depends on shapes only."""
SPARSE = tuple(kind for kind in CONTROLLER_OF if kind not in DENSE)
"""Kinds of engine whose time depends on where operands are zero."""
PRODUCT_TILES = {"flexible_dense": ("T_M", "T_N", "T_K"), "mesh": ("T_M", "T_N"), "compressed_row": ("T_N", "T_K")}
"""Letters of a matrix product's tile; the other kinds of engine have none."""
FULLY_CONNECTED = {"T_S": "T_K", "T_K": "T_N", "T_N": "T_M"}
"""STONNE's fully connected tiles (T_S inputs, T_K outputs, T_N rows of the batch) in the letters of a product."""
CONVOLUTION_TILE = ("T_R", "T_S", "T_C", "T_K", "T_G", "T_N", "T_X_", "T_Y_")
LONGEST_SIDE = 1 << 10
"""Of a mesh, in processing elements."""
LARGEST_TILE = 1 << 20
FEWEST_FOR_TREE = 4
"""Multipliers that bitmaps (vectors of at least three ones) and merging trees need."""


@dataclass(frozen=True)
class EngineDescription:
    """One engine. `check` says whether it can be built."""

    name: str
    kind: str
    hardware: Hardware
    dataflow: dict[str, str] = field(default_factory=dict)
    """Kind of operation -> dataflow, for the kinds where it is given; only of bitmap_sparse."""
    tile: dict[str, int] = field(default_factory=dict)
    """T_M, T_N, T_K of a matrix product (mesh: T_M, T_N; compressed_row: T_N, T_K); empty where it is to be chosen."""
    convolution_tile: dict[str, int] = field(default_factory=dict)
    """All of T_R, T_S, T_C, T_K, T_G, T_N, T_X_, T_Y_; empty where it is to be chosen. Only of flexible_dense."""

    @property
    def elements(self) -> int:
        """Multipliers that can work at the same time."""
        return self.hardware.rows * self.hardware.columns or self.hardware.multipliers

    def takes(self, operation: str) -> bool:
        """Whether this kind of engine can run this kind of operation."""
        return takes(self.kind, operation)

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
        of_kind = {"mesh": self._wrong_for_mesh, "flexible_dense": self._wrong_for_dense}
        if not is_own(self.kind):
            yield from of_kind.get(self.kind, self._wrong_for_sparse)(wrong)
        for name, tile in (("tile", self.tile), ("convolution_tile", self.convolution_tile)):
            if tile:
                yield from self._wrong_tile(name, tile, wrong)

    def _wrong_sides(self) -> Iterator[SondaError]:
        for side in ("rows", "columns") if self.kind == "mesh" else ():
            value = getattr(self.hardware, side)
            if not 1 <= value <= LONGEST_SIDE:
                yield SondaError(f"{side} = {value} is not a size from 1 to {LONGEST_SIDE}", f"change {side}")

    def _wrong_for_mesh(self, wrong: set[str]) -> Iterator[SondaError]:
        hardware = self.hardware
        if wrong.isdisjoint({"reduction", "accumulators"}) and (
            hardware.reduction != "TEMPORALRN" or not hardware.accumulators
        ):
            yield SondaError(
                f"reduction = {hardware.reduction!r} with accumulators = {hardware.accumulators} cannot sum on a mesh",
                "leave both out",
            )
        if wrong.isdisjoint({"rows", "columns", "read_ports"}):
            try:
                hardware.check_mesh_ports()
            except SondaError as error:
                yield error
        if wrong.isdisjoint({"rows", "columns", "write_ports", "multipliers"}):
            per_line = hardware.multipliers // hardware.write_ports + 1
            if -(-self.elements // hardware.write_ports) > per_line:
                yield SondaError(
                    f"multipliers = {hardware.multipliers} is too few for {self.elements} processing elements",
                    "leave it out",
                )

    def _wrong_for_dense(self, wrong: set[str]) -> Iterator[SondaError]:
        hardware = self.hardware
        if not wrong.isdisjoint({"reduction", "accumulators", "multipliers"}):
            return
        if hardware.reduction == "TEMPORALRN":
            if not hardware.accumulators:
                yield SondaError("accumulators = false leaves TEMPORALRN nothing to sum with", "set it to true")
        elif hardware.multipliers < 2:
            yield SondaError(f"multipliers = 1 leaves {hardware.reduction} without an adder", "give at least 2")

    def _wrong_for_sparse(self, wrong: set[str]) -> Iterator[SondaError]:
        hardware, kind = self.hardware, self.kind
        if "reduction" not in wrong and hardware.reduction != "ASNETWORK":
            yield SondaError(
                f"reduction = {hardware.reduction!r} cannot sum what {kind} puts on the multipliers",
                "use ASNETWORK or leave it out",
            )
        by_rows = kind == "compressed_row"
        if by_rows and "accumulators" not in wrong and not hardware.accumulators:
            yield SondaError("accumulators = false cannot sum the pieces of a row", "set it to true or leave it out")
        if "multipliers" in wrong:
            return
        if by_rows and hardware.multipliers < 2:
            yield SondaError("multipliers = 1 leaves ASNETWORK without an adder", "give at least 2")
        elif not by_rows and hardware.multipliers < FEWEST_FOR_TREE:
            yield SondaError(
                f"multipliers = {hardware.multipliers} is too few for {kind}", f"give at least {FEWEST_FOR_TREE}"
            )
        merging = kind in ("outer_product", "gustavson")
        if merging and "read_ports" not in wrong and hardware.read_ports != hardware.multipliers:
            yield SondaError(
                f"read_ports = {hardware.read_ports} brings elements to the merging tree out of step",
                f"set it to multipliers = {hardware.multipliers}",
            )

    def _wrong_tile(self, name: str, tile: dict[str, int], wrong: set[str]) -> Iterator[SondaError]:
        hardware = self.hardware
        if self.kind == "mesh":
            for letter, side in (("T_M", "rows"), ("T_N", "columns")):
                size = getattr(hardware, side)
                if side not in wrong and tile[letter] > size:
                    yield SondaError(f"{name}.{letter} = {tile[letter]} is more than the mesh's {size}", "change it")
            return
        used = math.prod(tile.values())
        if "multipliers" not in wrong and used > hardware.multipliers:
            yield SondaError(
                f"{name} takes {used} multipliers ({' x '.join(tile)}), there are {hardware.multipliers}",
                "make it smaller",
            )
        summed = tile["T_K"] if name == "tile" else tile["T_R"] * tile["T_S"] * tile["T_C"]
        letters = "T_K" if name == "tile" else "T_R x T_S x T_C"
        if "reduction" in wrong:
            return
        if hardware.reduction == "TEMPORALRN" and summed > 1:
            yield SondaError(f"{name}: {letters} = {summed}, but TEMPORALRN has no adders", "use 1")
        if summed == 1 and (self.kind == "compressed_row" or (hardware.reduction == "FENETWORK" and used > 1)):
            yield SondaError(f"{name}: {letters} = 1 puts two sums on one adder", "give at least 2")


def kinds() -> tuple[str, ...]:
    """Kinds of engine: Sonda's, then those that other packages add."""
    return (*CONTROLLER_OF, *(name for name in added(ENGINES) if name not in CONTROLLER_OF))


def is_own(kind: str) -> bool:
    """Whether a kind of engine is somebody's own, none of Sonda's."""
    return kind not in CONTROLLER_OF


def takes(kind: str, operation: str) -> bool:
    """Whether this kind of engine can run this kind of operation; a dense one would read whole tables for a bag."""
    if is_own(kind):
        from sonda.accelerators import own_engine

        return own_engine.takes(kind, operation)
    return operation != "embedding_bag" or kind not in DENSE


def read_engine(name: str, given: Fields) -> EngineDescription | None:
    """The engine that a table describes; nothing where it has mistakes, which are noted."""
    given.only(("kind", "dataflow", "tile", "convolution_tile", *(one.name for one in fields(Hardware))))
    # Looking for packages that add kinds takes longer than all else here; explorations read engines by the thousand.
    known = tuple(CONTROLLER_OF) if given.has("kind", CONTROLLER_OF) else kinds()
    named = given.one_of("kind", known)
    # A misspelt kind is read as the one that was meant, so that the other fields are judged, too.
    kind = named or given.meant("kind", known)
    if kind is None:
        return None
    values = _hardware(kind, given)
    unknown = [name for name, value in values.items() if value is None]
    tile = _tile(given, "tile", kind, PRODUCT_TILES.get(kind, ()))
    convolution = _tile(given, "convolution_tile", kind, CONVOLUTION_TILE if kind == "flexible_dense" else ())
    dataflow = _dataflow(given, kind)
    hardware = Hardware(**{key: value for key, value in values.items() if value is not None})
    found = EngineDescription(name, kind, hardware, dataflow, tile, convolution)
    problems = list(found.problems(unknown))
    for problem in problems:
        given.refused(problem)
    return None if named is None or unknown or problems else found


def _hardware(kind: str, given: Fields) -> dict[str, Any]:
    """The hardware's fields; None for one that is wrong or missing.

    What is not given follows from the kind; sizes and bandwidths, and what is a choice, must be given.
    """
    mesh = kind == "mesh"
    values = {"read_ports": given.whole("read_ports"), "write_ports": given.whole("write_ports")}
    if mesh:
        values |= {side: given.whole(side) for side in ("rows", "columns")}
        elements = (values["rows"] or 0) * (values["columns"] or 0)
        values["multipliers"] = given.whole("multipliers", 1 << max(elements - 1, 0).bit_length())
    else:
        for side in ("rows", "columns"):
            if side in given:
                given.mistaken(side, f"{kind} has no mesh; leave it out")
        values["multipliers"] = given.whole("multipliers")
    values["reduction"] = given.one_of("reduction", REDUCTIONS, "TEMPORALRN" if mesh else "ASNETWORK")
    # An engine of one's own may have accumulators, and need not say.
    usual = () if kind == "flexible_dense" else (mesh or kind == "compressed_row" or is_own(kind),)
    values["accumulators"] = given.switch("accumulators", *usual)
    controller = CONTROLLER_OF.get(kind, Hardware.controller)
    values["controller"] = given.one_of("controller", (controller,), controller)
    return values


def _tile(given: Fields, key: str, kind: str, letters: tuple[str, ...]) -> dict[str, int]:
    """The tile in the letters of the engine; sizes of a convolution that are not given are 1."""
    if key in given and not letters:
        given.mistaken(key, f"{kind} has none; leave it out")
        return {}
    table = given.table(key)
    if table is None:
        return {}
    names = {one: one for one in letters}
    if key == "tile" and kind == "flexible_dense" and "T_S" in table:
        names = FULLY_CONNECTED
    table.only(names)
    usual = (1,) if key == "convolution_tile" else ()
    sizes = {}
    for name, letter in names.items():
        sizes[letter] = table.whole(name, *usual)
        if sizes[letter] is not None and not 1 <= sizes[letter] <= LARGEST_TILE:
            table.mistaken(name, f"{sizes[letter]} is not a size from 1 to {LARGEST_TILE}")
            sizes[letter] = None
    return {} if None in sizes.values() else {letter: sizes[letter] for letter in letters}


def _dataflow(given: Fields, kind: str) -> dict[str, str]:
    """One dataflow for all kinds of operation, or a table with one for each."""
    if "dataflow" not in given:
        return {}
    if kind != "bitmap_sparse":
        given.mistaken("dataflow", f"{kind} has no choice; leave it out")
        return {}
    if not given.is_table("dataflow"):
        chosen = given.one_of("dataflow", DATAFLOWS)
        return {} if chosen is None else dict.fromkeys(OPERATIONS, chosen)
    table = given.table("dataflow")
    if table is None:
        return {}
    table.only(OPERATIONS)
    named = {one: table.one_of(one, DATAFLOWS) for one in OPERATIONS if one in table}
    return {one: chosen for one, chosen in named.items() if chosen is not None}
