"""The flexible dense engine (MAERI) as a kind: forms of an operation, their tiles, and what it reads again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from sonda.accelerators.description.engine import EngineDescription
from sonda.accelerators.engines import flexible_dense
from sonda.accelerators.engines.contract import Engine
from sonda.accelerators.engines.kinds.dense import dense_shape
from sonda.accelerators.engines.kinds.limits import wrong_line_tiles
from sonda.accelerators.engines.result import Result, repeat_result
from sonda.accelerators.mapping import buffer_reads, candidate_tiles, least_cycles, rules
from sonda.accelerators.mapping.search import Choice, FormMappings, MappingSpace
from sonda.accelerators.memory.reuse import (
    Accesses,
    ProductSizes,
    Reuse,
    distinct_inputs,
    partial_sums,
    reread_operand,
)
from sonda.accelerators.operations.layer import StonneLayer, Tile
from sonda.accelerators.operations.program import Bags, ConvolutionShape, MatrixProduct, Operation
from sonda.record.errors import SondaError

if TYPE_CHECKING:
    from sonda.accelerators.designs.dense import FlexibleBatch

FULLY_CONNECTED = {"T_S": "T_K", "T_K": "T_N", "T_N": "T_M"}
"""STONNE's fully connected tiles (T_S inputs, T_K outputs, T_N rows of the batch) in the letters of a product."""
APART = {"samples": "sample by sample"}
"""What a mapping says where the samples of a layer are layers of their own."""


class FlexibleDense(Engine):
    """Virtual neurons of any size on a line of multipliers."""

    moves_memory = True
    accumulators = None
    controller = "MAERI_DENSE_WORKLOAD"
    product_tile = tuple(rules.PRODUCT_LETTERS)
    fully_connected_tile = FULLY_CONNECTED
    convolution_tile = ("T_R", "T_S", "T_C", "T_K", "T_G", "T_N", "T_X_", "T_Y_")

    def problems(self, description: EngineDescription, wrong: set[str]) -> Iterator[SondaError]:
        """Something that sums, and tiles that it can sum."""
        hardware = description.hardware
        if wrong.isdisjoint({"reduction", "accumulators", "multipliers"}):
            if hardware.reduction == "TEMPORALRN":
                if not hardware.accumulators:
                    yield SondaError("accumulators = false leaves TEMPORALRN nothing to sum with", "set it to true")
            elif hardware.multipliers < 2:
                yield SondaError(f"multipliers = 1 leaves {hardware.reduction} without an adder", "give at least 2")
        yield from wrong_line_tiles(description, wrong)

    def simulate(self, description: EngineDescription, operation: Operation, mapping: Mapping[str, Any]) -> Result:
        """Simulate the form whose letters the mapping has."""
        possible = forms_of(dense_shape(description.kind, operation.shape))
        product, apart = "T_M" in mapping, APART.keys() <= mapping.keys()
        form = next(form for form in possible if (form.product, form.apart) == (product, apart))
        return form.simulate_tile(description, form.tile(mapping)).result

    def choose_mapping(self, description: EngineDescription, operation: Operation, given: bool) -> dict[str, Any]:
        """The usual form under the description's tile or a rule's."""
        form, tile = tile_by_rule(description, forms_of(dense_shape(description.kind, operation.shape)), given)
        return form.words(tile)

    def mappings(self, description: EngineDescription, operation: Operation) -> MappingSpace:
        """All tiles of all forms."""
        possible = forms_of(dense_shape(description.kind, operation.shape))
        starts: dict[tuple[Form, Tile], None] = {}
        for given in (False, True):
            # A tile that cannot run, or sums wrongly, is nothing to be measured against.
            with suppress(SondaError):
                form, tile = tile_by_rule(description, possible, given)
                if candidate_tiles.tile_sums_rightly(form.layer, tile):
                    starts[form, tile] = None
        return MappingSpace(
            [form.options(description, tile) for form, tile in starts],
            [form.options(description) for form in possible],
        )

    def batch(self, operations: Sequence[Operation]) -> FlexibleBatch:
        """Many machines at once, each with all operations."""
        from sonda.accelerators.designs.dense import FlexibleBatch

        return FlexibleBatch([dense_shape("flexible_dense", operation.shape) for operation in operations])

    def useful_products(self, operation: Operation, mapping: Mapping[str, Any], result: Result) -> int:
        """All of the operation's: zeros are fetched like any other element."""
        return operation.shape.multiplications

    def reuse(
        self,
        description: EngineDescription,
        shape: MatrixProduct | ConvolutionShape | Bags,
        mapping: Mapping[str, Any],
        counted: Result | Accesses,
        operation: Operation | None,
    ) -> Reuse:
        """The reuse of the form whose letters the mapping has."""
        shape = dense_shape(description.kind, shape)
        if isinstance(shape, ConvolutionShape) and "T_R" in mapping:
            return _reuse_of_windows(shape, mapping, counted)
        return _reuse_of_blocks(ProductSizes.from_shape(shape, None), mapping, counted)


@dataclass(frozen=True)
class Form:
    """A way to give an operation to the flexible dense engine: a layer, and how many like it follow each other."""

    layer: StonneLayer
    count: int = 1
    product: bool = False
    """Whether the layer is a product of matrices, and its tile is written so."""
    apart: bool = False

    def simulate_tile(self, description: EngineDescription, tile: Tile) -> Choice:
        """The operation in this form under a tile."""
        result = flexible_dense.simulate(description.hardware, self.layer, tile)
        return Choice(self.words(tile), repeat_result(result, self.count))

    def words(self, tile: Tile) -> dict[str, Any]:
        """A tile of this form as a mapping."""
        return rules.tile_words(tile, self.product) | (APART if self.apart else {})

    def tile(self, mapping: Mapping[str, Any]) -> Tile:
        """The tile of a mapping of this form."""
        sizes = {letter: mapping[name] for name, letter in self._letters.items()}
        return Tile(**(dict.fromkeys("RSCKGNXY", 1) | sizes))

    def options(self, description: EngineDescription, given: Tile | None = None) -> FormMappings:
        """All tiles of this form that a search looks at; or one, which the machine need not be able to run."""
        hardware, layer = description.hardware, self.layer.check()
        if given is None:
            tiles = candidate_tiles.candidates(hardware, layer)
            least = self.count * least_cycles.tile_cycles(hardware, layer, tiles)
        else:
            tiles = np.array([given.sizes], np.int64)
            least = np.zeros(1, np.int64)
        sizes = {name: tiles[:, candidate_tiles.LETTERS.index(letter)] for name, letter in self._letters.items()}

        def tile(number: int) -> Tile:
            return Tile(*tiles[number].tolist())

        return FormMappings(
            least=least,
            simulate=lambda number: self.simulate_tile(description, tile(number)),
            mapping=sizes | (APART if self.apart else {}),
            accesses=buffer_reads.scale_accesses(buffer_reads.tile_accesses(hardware, layer, tiles), self.count),
            cycles=lambda number: self.count * flexible_dense.cycles(hardware, layer, tile(number)),
        )

    @property
    def _letters(self) -> dict[str, str]:
        return rules.PRODUCT_LETTERS if self.product else rules.CONVOLUTION_LETTERS


@lru_cache(maxsize=1 << 10)
def forms_of(shape: MatrixProduct | ConvolutionShape) -> tuple[Form, ...]:
    """Ways to compute it, the usual one first."""
    direct = []
    product = shape
    if isinstance(shape, ConvolutionShape):
        layer, product = shape.layer(), shape.product()
        if layer is not None:
            direct.append(Form(layer))
            if layer.N > 1:
                direct.append(Form(replace(layer, N=1), layer.N, apart=True))
    assert isinstance(product, MatrixProduct)
    return (*direct, Form(StonneLayer.product(product.m, product.n, product.k), product.count, product=True))


def tile_by_rule(description: EngineDescription, forms: tuple[Form, ...], given: bool) -> tuple[Form, Tile]:
    """The first form of an operation under the description's tile, where that is wanted and there is one, else under a
    rule's."""
    form = forms[0]
    described = (description.tile if form.product else description.convolution_tile) if given else {}
    if described:
        tile = rules.tile_of(described, form.layer)
    else:
        ruled = rules.product_tile if form.product else rules.convolution_tile
        tile = ruled(description.hardware, form.layer.check())
    layer = form.layer
    if layer.N > 1 and tile.hands_on(layer) and layer.columns > 1:
        # Neighbours hand activations on rightly only where one sample at a time is on the machine.
        return forms[1], replace(tile, N=1)
    return form, tile


def _reuse_of_windows(shape: ConvolutionShape, tile: Mapping[str, Any], counted: Result | Accesses) -> Reuse:
    """A convolution itself. Batches outside, then groups, filters, windows: weights come again for every batch, inputs
    for every block of filters, and where windows overlap."""
    images, groups = -(-shape.N // tile["T_N"]), -(-shape.G // tile["T_G"])
    blocks = -(-(shape.K // shape.G) // tile["T_K"])
    channels, taps = shape.C // shape.G, shape.R * shape.S
    weights, inputs = shape.K * channels * taps, distinct_inputs(shape)
    high = np.minimum(shape.X, (tile["T_X_"] - 1) * shape.stride[0] + shape.R)
    lines = high * shape.Y * channels * tile["T_G"] * tile["T_N"]
    rows, columns = shape.outputs
    outputs = shape.N * shape.K * rows * columns
    windows = tile["T_N"] * tile["T_G"] * tile["T_X_"] * tile["T_Y_"]
    neurons = windows * tile["T_K"]
    filled = tile["T_K"] * tile["T_G"] * channels * taps + windows * tile["T_R"] * tile["T_S"] * tile["T_C"]
    image = -(-inputs // (images * groups))
    operands = (
        reread_operand(counted.weight_reads, weights, (weights, weights)),
        reread_operand(counted.input_reads, inputs, (lines, inputs * blocks), (image, inputs)),
        partial_sums(counted.psum_reads, counted.writes - outputs, neurons),
    )
    return Reuse(operands, outputs, filled, neurons, images * groups * blocks)


def _reuse_of_blocks(sizes: ProductSizes, tile: Mapping[str, Any], counted: Result | Accesses) -> Reuse:
    """A product. Blocks of T_N columns outside, all rows for each: inputs come again for every block, weights once."""
    blocks = -(-sizes.n // tile["T_N"])
    neurons = tile["T_M"] * tile["T_N"]
    operands = (
        reread_operand(counted.weight_reads, sizes.weights, (sizes.share_of_one(sizes.weights), sizes.weights)),
        reread_operand(
            counted.input_reads,
            sizes.inputs,
            (tile["T_M"] * sizes.k, sizes.m * sizes.k * sizes.products * blocks),
            (sizes.lines(tile["T_M"]), sizes.inputs * blocks),
            (sizes.share_of_one(sizes.inputs), sizes.inputs),
        ),
        partial_sums(counted.psum_reads, counted.writes - sizes.outputs, neurons),
    )
    filled = tile["T_N"] * sizes.k + tile["T_M"] * tile["T_K"]
    return Reuse(operands, sizes.outputs, filled, neurons, blocks * sizes.products)
