"""The mesh against SCALE-Sim's closed formulas, layer by layer: what both count must be equal, and what one of them
leaves out is counted and named.

SCALE-Sim takes K + rows + columns - 2 cycles for every fold, whether it fills the array or not, and one less in all.
The mesh takes as long until the last product of a tile that fills it, less where the tile is cut at a border, and
beyond that configures the tile, sums and writes back:

    mesh = SCALE-Sim + 1 - borders + configuration + reduction + writeback

SCALE-Sim writes rows + columns elements too many in every fold; its reads are the mesh's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sonda.accelerators.description.accelerator import Accelerator
from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines.result import Result
from sonda.accelerators.mapping.placement import Placed, Placement
from sonda.accelerators.operations.program import Bags, Call, ConvolutionShape, MatrixProduct, ModelProgram, Operation
from sonda.record.errors import SondaError, nearest

# ---- SCALE-Sim's closed formulas for dense systolic arrays: a second opinion on the mesh ----------------------------

DATAFLOWS = {"os": "output stationary", "ws": "weight stationary", "is": "input stationary"}
LARGEST = 1 << 40


@dataclass(frozen=True)
class ScaleSim:
    """What SCALE-Sim prints for one layer."""

    cycles: int
    input_reads: int
    """From on-chip memory, in elements; so the other two."""
    filter_reads: int
    output_writes: int
    mapping_efficiency: float
    """Share of the array that has something to do, over folds."""
    utilisation: float
    """Products over what the array could do in these cycles."""


def scale_sim(dataflow: str, rows: int, columns: int, m: int, n: int, k: int) -> ScaleSim:
    """An m x k by k x n product on an array of rows x columns.

    A convolution is the product with m output positions, n filters and k = filter height x width x channels.
    """
    if dataflow not in DATAFLOWS:
        raise SondaError(f"dataflow {dataflow!r} is unknown", nearest(dataflow, DATAFLOWS))
    for name, size in (("rows", rows), ("columns", columns), ("M", m), ("N", n), ("K", k)):
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= LARGEST:
            raise SondaError(f"{name} = {size!r} is not a whole number from 1 to 2^40", f"change {name}")
    # What is unrolled over rows and over columns of the array, and what streams through it.
    down, across, streamed = {"os": (m, n, k), "ws": (k, n, m), "is": (k, m, n)}[dataflow]
    down_folds, across_folds = -(-down // rows), -(-across // columns)
    folds = down_folds * across_folds
    filling = rows + columns - 2 if dataflow == "os" else 2 * rows + columns - 2
    cycles = folds * (streamed + filling) - 1
    reads = {
        "os": (m * k * across_folds, k * n * down_folds, m * n + (rows + columns) * folds),
        "ws": (m * k * across_folds, k * n, m * n * down_folds),
        "is": (m * k, k * n * across_folds, m * n * down_folds),
    }[dataflow]
    return ScaleSim(
        cycles,
        *reads,
        mapping_efficiency=down * across / (folds * rows * columns),
        # One element and one product take 1 + 1 + 1 - 2 - 1 = 0 cycles: the missing last one.
        utilisation=m * n * k / (rows * columns * max(cycles, 1)),
    )


# ----------------------------------------------------------------------------------------------------------------------

PRODUCTS = (
    ("square 64", 64, 64, 64), ("square 128", 128, 128, 128), ("square 256", 256, 256, 256),
    ("square 512", 512, 512, 512), ("one row", 1, 1000, 2048), ("one column", 3136, 1, 576),
    ("one step", 300, 70, 1), ("borders", 197, 67, 131), ("long sum", 5, 9, 100_000),
)  # fmt: skip
"""Name, M, N and K of the products that are compared when no model is given."""


@dataclass(frozen=True)
class LayerCheck:
    """One product on both; terms are those of the module's formula. Cycles are of all `times` products."""

    layer: str
    M: int
    N: int
    K: int
    times: int
    """How often the model computes this product."""
    cycles: int
    scalesim_cycles: int
    last_cycles: int
    """The one cycle that SCALE-Sim leaves out, once for every product."""
    borders: int
    configuration: int
    reduction: int
    writeback: int
    differences: dict[str, tuple[int, int]]
    """What is not equal: SCALE-Sim's number with the named terms, and the mesh's."""

    def to_document(self) -> dict[str, Any]:
        differing = {name: {"expected": pair[0], "found": pair[1]} for name, pair in self.differences.items()}
        return {**vars(self), "differences": differing}


@dataclass(frozen=True)
class ScaleSimReport:
    """All distinct products of a program that a mesh takes."""

    accelerator: str
    rows: int
    columns: int
    layers: tuple[LayerCheck, ...]
    elsewhere: int
    """Operations that no mesh takes, which are not compared."""

    @property
    def exact(self) -> int:
        return sum(not layer.differences for layer in self.layers)

    @property
    def exit_status(self) -> int:
        """1 where any layer differs, else 0."""
        return 0 if self.exact == len(self.layers) else 1

    def to_document(self) -> dict[str, Any]:
        """The report as plain data for JSON."""
        return {
            "accelerator": self.accelerator,
            "rows": self.rows,
            "columns": self.columns,
            "total": len(self.layers),
            "exact": self.exact,
            "elsewhere": self.elsewhere,
            "layers": [layer.to_document() for layer in self.layers],
        }


def products_program(products: Sequence[tuple[str, int, int, int]] = PRODUCTS) -> ModelProgram:
    """Named products (M, N, K of each) as a program."""
    calls = tuple(Call(name, "Linear", 0, -1, place) for place, (name, *_) in enumerate(products))
    operations = tuple(
        Operation("linear", "addmm", place, MatrixProduct(m, n, k)) for place, (_, m, n, k) in enumerate(products)
    )
    return ModelProgram(calls, operations, ("forward",) * len(operations))


def verify_scalesim(accelerator: Accelerator, program: ModelProgram) -> ScaleSimReport:
    """Every distinct product that a mesh of this accelerator takes, filling it, beside SCALE-Sim's formulas.

    Raises SondaError where it has no mesh, where its ports do not feed all inputs of the mesh in a cycle, as SCALE-Sim
    supposes, or where no operation is for it.
    """
    meshes = {name: engine for name, engine in accelerator.engines.items() if engine.kind == "mesh"}
    if not meshes:
        raise SondaError(f"{accelerator.name} has no mesh", "SCALE-Sim's formulas are of meshes: --on sim:tpu-16x16")
    for name, engine in meshes.items():
        inputs = engine.hardware.rows + engine.hardware.columns
        if engine.hardware.read_ports != inputs:
            raise SondaError(
                f"{name}.read_ports = {engine.hardware.read_ports} do not feed the {inputs} inputs of the mesh in a "
                "cycle, as SCALE-Sim supposes",
                f"give --set {name}.read_ports={inputs}",
            )
    placement = Placement(accelerator, "stonne")
    times: dict[Any, int] = {}
    placed: dict[Any, tuple[str, Placed]] = {}
    elsewhere = 0
    for operation in program.operations:
        taker = accelerator.engine_for(operation.kind)
        if taker is None or taker.name not in meshes:
            elsewhere += 1
            continue
        product = _product(operation.shape)
        key = (taker.name, product)
        times[key] = times.get(key, 0) + 1
        if key not in placed:
            on_mesh = placement.place_operation(operation, program.path(operation))
            assert isinstance(on_mesh, Placed)
            placed[key] = (program.path(operation) or operation.name, on_mesh)
    if not placed:
        raise SondaError(f"no operation is for a mesh of {accelerator.name}", "route linear or convolution to it")
    layers = [
        _check(path, on_mesh.engine.hardware, product, times[name, product], on_mesh.result)
        for (name, product), (path, on_mesh) in placed.items()
    ]
    first = next(iter(meshes.values())).hardware
    return ScaleSimReport(accelerator.name, first.rows, first.columns, tuple(layers), elsewhere)


def _product(shape: MatrixProduct | ConvolutionShape | Bags) -> MatrixProduct:
    assert not isinstance(shape, Bags), "no mesh takes bags"
    return shape.product() if isinstance(shape, ConvolutionShape) else shape


def _check(layer: str, hardware: Hardware, product: MatrixProduct, times: int, result: Result) -> LayerCheck:
    m, n, k, count = product.m, product.n, product.k, product.count
    theirs = scale_sim("os", hardware.rows, hardware.columns, m, n, k)
    down, across = -(-m // hardware.rows), -(-n // hardware.columns)
    # Over all folds, rows and columns of the array beyond the borders of the product.
    borders = count * (across * (down * hardware.rows - m) + down * (across * hardware.columns - n))
    stack = result.stack
    left_out = stack["configuration"] + stack["reduction"] + stack["writeback"]
    expected = {
        "cycles until the last product": count * (theirs.cycles + 1) - borders,
        "configuration": count * down * across,
        "cycles": count * (theirs.cycles + 1) - borders + left_out,
        "input reads": count * theirs.input_reads,
        "weight reads": count * theirs.filter_reads,
        "writes": count * _writes(theirs, hardware, down * across),
    }
    counted = {
        "cycles until the last product": stack["compute"] + stack["distribution"],
        "configuration": stack["configuration"],
        "cycles": result.cycles,
        "input reads": result.input_reads,
        "weight reads": result.weight_reads,
        "writes": result.writes,
    }
    return LayerCheck(
        layer=layer, M=m, N=n, K=k, times=times * count,
        cycles=times * result.cycles,
        scalesim_cycles=times * count * theirs.cycles,
        last_cycles=times * count,
        borders=times * borders,
        configuration=times * stack["configuration"],
        reduction=times * stack["reduction"],
        writeback=times * stack["writeback"],
        differences={name: (expected[name], counted[name]) for name in expected if expected[name] != counted[name]},
    )  # fmt: skip


def _writes(theirs: ScaleSim, hardware: Hardware, folds: int) -> int:
    """SCALE-Sim's writes without those that are too many."""
    return theirs.output_writes - (hardware.rows + hardware.columns) * folds
