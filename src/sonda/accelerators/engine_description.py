"""One engine of a described accelerator: its kind, its hardware, and how it maps operations where that is given."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields

from sonda.accelerators.hardware import REDUCTIONS, Hardware
from sonda.accelerators.mistake import Fields
from sonda.record.errors import SondaError

OPERATIONS = ("linear", "gemm", "convolution", "attention", "embedding_bag")
"""Kinds of operation: a product with weights; any other product of two matrices (DLRM's interaction); a convolution;
the products of an attention; sums of rows of a table."""
CONTROLLERS = {
    "flexible_dense": "MAERI_DENSE_WORKLOAD",
    "bitmap_sparse": "SIGMA_SPARSE_GEMM",
    "compressed_row": "MAGMA_SPARSE_DENSE",
    "mesh": "TPU_OS_DENSE",
    # Only in a variant of STONNE, in which no controller of these four selects them.
    "outer_product": "SIGMA_SPARSE_GEMM",
    "gustavson": "SIGMA_SPARSE_GEMM",
}
KINDS = tuple(CONTROLLERS)
DATAFLOWS = ("MK_STA_KN_STR", "MK_STR_KN_STA")
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
        """Whether this kind of engine can run this kind of operation; a dense one would read whole tables for a bag."""
        return operation != "embedding_bag" or self.kind not in ("flexible_dense", "mesh")

    def check(self) -> EngineDescription:
        """This engine; raises SondaError whose cause begins with the field that is wrong."""
        if self.kind == "mesh":
            for side in ("rows", "columns"):
                value = getattr(self.hardware, side)
                if not 1 <= value <= LONGEST_SIDE:
                    raise SondaError(f"{side} = {value} is not a size from 1 to {LONGEST_SIDE}", f"change {side}")
        self.hardware.check()
        {"mesh": self._check_mesh, "flexible_dense": self._check_dense}.get(self.kind, self._check_sparse)()
        self._check_tiles()
        return self

    def _check_mesh(self) -> None:
        hardware = self.hardware
        if hardware.reduction != "TEMPORALRN" or not hardware.accumulators:
            raise SondaError(
                f"reduction = {hardware.reduction!r} with accumulators = {hardware.accumulators} cannot sum on a mesh",
                "leave both out",
            )
        hardware.check_mesh_ports()
        if -(-self.elements // hardware.write_ports) > hardware.multipliers // hardware.write_ports + 1:
            raise SondaError(
                f"multipliers = {hardware.multipliers} is too few for {self.elements} processing elements",
                "leave it out",
            )

    def _check_dense(self) -> None:
        if self.hardware.reduction == "TEMPORALRN":
            if not self.hardware.accumulators:
                raise SondaError("accumulators = false leaves TEMPORALRN nothing to sum with", "set it to true")
        elif self.hardware.multipliers < 2:
            raise SondaError(f"multipliers = 1 leaves {self.hardware.reduction} without an adder", "give at least 2")

    def _check_sparse(self) -> None:
        hardware = self.hardware
        if hardware.reduction != "ASNETWORK":
            raise SondaError(
                f"reduction = {hardware.reduction!r} cannot sum what {self.kind} puts on the multipliers",
                "use ASNETWORK or leave it out",
            )
        if self.kind == "compressed_row":
            if not hardware.accumulators:
                raise SondaError(
                    "accumulators = false cannot sum the pieces of a row", "set it to true or leave it out"
                )
            if hardware.multipliers < 2:
                raise SondaError("multipliers = 1 leaves ASNETWORK without an adder", "give at least 2")
            return
        if hardware.multipliers < FEWEST_FOR_TREE:
            raise SondaError(
                f"multipliers = {hardware.multipliers} is too few for {self.kind}", f"give at least {FEWEST_FOR_TREE}"
            )
        if self.kind != "bitmap_sparse" and hardware.read_ports != hardware.multipliers:
            raise SondaError(
                f"read_ports = {hardware.read_ports} brings elements to the merging tree out of step",
                f"set it to multipliers = {hardware.multipliers}",
            )

    def _check_tiles(self) -> None:
        for name, tile in (("tile", self.tile), ("convolution_tile", self.convolution_tile)):
            if not tile:
                continue
            if self.kind == "mesh":
                for letter, side in (("T_M", self.hardware.rows), ("T_N", self.hardware.columns)):
                    if tile[letter] > side:
                        raise SondaError(
                            f"{name}.{letter} = {tile[letter]} is more than the mesh's {side}", "change it"
                        )
                continue
            used = math.prod(tile.values())
            if used > self.hardware.multipliers:
                raise SondaError(
                    f"{name} takes {used} multipliers ({' x '.join(tile)}), there are {self.hardware.multipliers}",
                    "make it smaller",
                )
            summed = tile["T_K"] if name == "tile" else tile["T_R"] * tile["T_S"] * tile["T_C"]
            letters = "T_K" if name == "tile" else "T_R x T_S x T_C"
            if self.hardware.reduction == "TEMPORALRN" and summed > 1:
                raise SondaError(f"{name}: {letters} = {summed}, but TEMPORALRN has no adders", "use 1")
            if summed == 1 and (self.kind == "compressed_row" or (self.hardware.reduction == "FENETWORK" and used > 1)):
                raise SondaError(f"{name}: {letters} = 1 puts two sums on one adder", "give at least 2")


def read_engine(name: str, given: Fields) -> EngineDescription | None:
    """The engine that a table describes; nothing where it has mistakes, which are noted."""
    given.only(("kind", "dataflow", "tile", "convolution_tile", *(one.name for one in fields(Hardware))))
    kind = given.one_of("kind", KINDS)
    if kind is None:
        return None
    hardware = _hardware(kind, given)
    tile = _tile(given, "tile", kind, PRODUCT_TILES.get(kind, ()))
    convolution = _tile(given, "convolution_tile", kind, CONVOLUTION_TILE if kind == "flexible_dense" else ())
    dataflow = _dataflow(given, kind)
    if hardware is None:
        return None
    try:
        return EngineDescription(name, kind, hardware, dataflow, tile, convolution).check()
    except SondaError as error:
        given.refused(error)
        return None


def _hardware(kind: str, given: Fields) -> Hardware | None:
    """What is not given follows from the kind; sizes and bandwidths, and what is a choice, must be given."""
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
    usual = () if kind == "flexible_dense" else (mesh or kind == "compressed_row",)
    values["accumulators"] = given.switch("accumulators", *usual)
    values["controller"] = given.one_of("controller", (CONTROLLERS[kind],), CONTROLLERS[kind])
    return None if None in values.values() else Hardware(**values)


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
