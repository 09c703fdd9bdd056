"""An operation on an engine whose time depends on shapes only: flexible dense, or a mesh."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators import buffer_reads, candidate_tiles, least_cycles
from sonda.accelerators import mapping as maps
from sonda.accelerators.engine_description import EngineDescription
from sonda.accelerators.engines import flexible_dense, mesh
from sonda.accelerators.layer import Layer, Tile
from sonda.accelerators.operation import Bags, Convolution, MatrixProduct
from sonda.accelerators.repeated import times
from sonda.accelerators.search import Choice, Listed, Options
from sonda.record.errors import SondaError

APART = {"samples": "sample by sample"}
"""What a mapping says where the samples of a layer are layers of their own."""


@dataclass(frozen=True)
class Form:
    """A way to give an operation to the flexible dense engine: a layer, and how many like it follow each other."""

    layer: Layer
    count: int = 1
    product: bool = False
    """Whether the layer is a product of matrices, and its tile is written so."""
    apart: bool = False

    def under(self, engine: EngineDescription, tile: Tile) -> Choice:
        """The operation in this form under a tile."""
        result = flexible_dense.simulate(engine.hardware, self.layer, tile)
        return Choice(self.words(tile), times(result, self.count))

    def words(self, tile: Tile) -> dict[str, Any]:
        """A tile of this form as a mapping."""
        return maps.tile_words(tile, self.product) | (APART if self.apart else {})

    def options(self, engine: EngineDescription, given: Tile | None = None) -> Options:
        """All tiles of this form that a search looks at; or one, which the machine need not be able to run."""
        hardware, layer = engine.hardware, self.layer.check()
        if given is None:
            tiles = candidate_tiles.candidates(hardware, layer)
            least = self.count * least_cycles.of_tiles(hardware, layer, tiles)
        else:
            tiles = np.array([given.sizes], np.int64)
            least = np.zeros(1, np.int64)
        letters = maps.PRODUCT_LETTERS if self.product else maps.CONVOLUTION_LETTERS
        sizes = {name: tiles[:, candidate_tiles.LETTERS.index(letter)] for name, letter in letters.items()}

        def tile(number: int) -> Tile:
            return Tile(*tiles[number].tolist())

        return Options(
            least=least,
            simulate=lambda number: self.under(engine, tile(number)),
            mapping=sizes | (APART if self.apart else {}),
            accesses=buffer_reads.times(buffer_reads.of_tiles(hardware, layer, tiles), self.count),
            cycles=lambda number: self.count * flexible_dense.cycles(hardware, layer, tile(number)),
        )


def choose(engine: EngineDescription, shape: MatrixProduct | Convolution | Bags, given: bool) -> Choice:
    """The operation under the tile that the description gives, where that is wanted and there is one, else a rule's."""
    if engine.kind == "mesh":
        mesh_forms = _OnMesh(engine, _as_product(engine, shape))
        return mesh_forms.under(mesh_forms.given if given else mesh_forms.whole)
    form, tile = by_rule(engine, _forms_of(engine, shape), given)
    return form.under(engine, tile)


def listed(engine: EngineDescription, shape: MatrixProduct | Convolution | Bags) -> Listed:
    """All mappings of the operation, a rule's and the description's first."""
    if engine.kind == "mesh":
        return _OnMesh(engine, _as_product(engine, shape)).listed()
    possible = _forms_of(engine, shape)
    starts: dict[tuple[Form, Tile], None] = {}
    for given in (False, True):
        # A tile that cannot run, or sums wrongly, is nothing to be measured against.
        with suppress(SondaError):
            form, tile = by_rule(engine, possible, given)
            if candidate_tiles.sums_rightly(form.layer, tile):
                starts[form, tile] = None
    return Listed([form.options(engine, tile) for form, tile in starts], [form.options(engine) for form in possible])


def _forms_of(engine: EngineDescription, shape: MatrixProduct | Convolution | Bags) -> tuple[Form, ...]:
    return forms(_dense(engine, shape))


def _as_product(engine: EngineDescription, shape: MatrixProduct | Convolution | Bags) -> MatrixProduct:
    shape = _dense(engine, shape)
    return shape.product() if isinstance(shape, Convolution) else shape


def _dense(engine: EngineDescription, shape: MatrixProduct | Convolution | Bags) -> MatrixProduct | Convolution:
    if isinstance(shape, Bags):
        raise SondaError(f"{engine.kind} cannot sum the rows of a bag", "route embedding_bag to a sparse engine")
    return shape


@lru_cache(maxsize=1 << 10)
def forms(shape: MatrixProduct | Convolution) -> tuple[Form, ...]:
    """Ways to compute it, the usual one first."""
    direct = []
    product = shape
    if isinstance(shape, Convolution):
        layer, product = shape.layer(), shape.product()
        if layer is not None:
            direct.append(Form(layer))
            if layer.N > 1:
                direct.append(Form(replace(layer, N=1), layer.N, apart=True))
    assert isinstance(product, MatrixProduct)
    return (*direct, Form(Layer.product(product.m, product.n, product.k), product.count, product=True))


def by_rule(engine: EngineDescription, forms: tuple[Form, ...], given: bool) -> tuple[Form, Tile]:
    """The first form of an operation under the description's tile, where that is wanted and there is one, else under a
    rule's."""
    form = forms[0]
    described = (engine.tile if form.product else engine.convolution_tile) if given else {}
    if described:
        tile = maps.tile_of(described, form.layer)
    else:
        ruled = maps.product_tile if form.product else maps.convolution_tile
        tile = ruled(engine.hardware, form.layer.check())
    layer = form.layer
    if layer.N > 1 and tile.hands_on(layer) and layer.columns > 1:
        # Neighbours hand activations on rightly only where one sample at a time is on the machine.
        return forms[1], replace(tile, N=1)
    return form, tile


class _OnMesh:
    """A product on the mesh: `whole` is as much of it as the product fills, `given` the description's tile."""

    def __init__(self, engine: EngineDescription, shape: MatrixProduct) -> None:
        self._hardware = engine.hardware
        self._shape = shape
        self.product = mesh.Product(shape.m, shape.n, shape.k)
        self.count = shape.count
        self.whole = self.given = maps.mesh_tile(engine.hardware, shape.m, shape.n)
        if engine.tile:
            self.given = mesh.MeshTile(min(engine.tile["T_M"], shape.m), min(engine.tile["T_N"], shape.n))

    def under(self, tile: mesh.MeshTile) -> Choice:
        result = mesh.simulate(self._hardware, self.product, tile)
        return Choice({"T_M": tile.rows, "T_N": tile.columns}, times(result, self.count))

    def listed(self) -> Listed:
        """The whole mesh, the given tile, and all others."""
        shape, largest = self._shape, (self.whole.rows, self.whole.columns)
        tiles = candidate_tiles.combinations(math.prod(largest), (shape.m, shape.n), largest)
        least = shape.count * least_cycles.of_mesh_tiles(self._hardware, self.product, *tiles.T)
        starts = np.array([(one.rows, one.columns) for one in dict.fromkeys((self.whole, self.given))], np.int64)
        return Listed([self._options(starts, np.zeros(len(starts), np.int64))], [self._options(tiles, least)])

    def _options(self, tiles: NDArray[np.int64], least: NDArray[np.int64]) -> Options:
        rows, columns = tiles.T
        accesses = buffer_reads.of_mesh_tiles(self.product, rows, columns)
        return Options(
            least=least,
            simulate=lambda number: self.under(mesh.MeshTile(*tiles[number].tolist())),
            mapping={"T_M": rows, "T_N": columns},
            accesses=buffer_reads.times(accesses, self.count),
        )
