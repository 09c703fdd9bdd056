"""An operation on an engine whose time depends on shapes only: flexible dense, or a mesh."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from sonda.accelerators import buffer_reads, candidate_tiles, least_cycles
from sonda.accelerators import mapping as maps
from sonda.accelerators.engine_description import EngineDescription
from sonda.accelerators.engines import flexible_dense, mesh
from sonda.accelerators.layer import Layer, Tile
from sonda.accelerators.operation import Bags, Convolution, MatrixProduct
from sonda.accelerators.repeated import times
from sonda.accelerators.search import Choice, Cost, Options, search
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
        words = maps.tile_words(tile, self.product) | (APART if self.apart else {})
        return Choice(words, times(flexible_dense.simulate(engine.hardware, self.layer, tile), self.count))

    def options(self, engine: EngineDescription) -> Options:
        """All tiles of this form that a search looks at."""
        tiles = candidate_tiles.candidates(engine.hardware, self.layer.check())
        least = self.count * least_cycles.of_tiles(engine.hardware, self.layer, tiles)
        reads = self.count * buffer_reads.of_tiles(self.layer, tiles)
        return Options(least, reads, lambda number: self.under(engine, Tile(*tiles[number].tolist())))


def choose(engine: EngineDescription, shape: MatrixProduct | Convolution | Bags, how: str, cost: Cost) -> Choice:
    """The operation under the tile that the description gives or a rule chooses (''), a rule ('stonne'), or the search
    ('best'); see `Placement`."""
    if isinstance(shape, Bags):
        raise SondaError(f"{engine.kind} cannot sum the rows of a bag", "route embedding_bag to a sparse engine")
    if engine.kind == "mesh":
        return _on_mesh(engine, shape.product() if isinstance(shape, Convolution) else shape, how, cost)
    forms = list(_forms(shape))
    if how != "best":
        return _by_rule(engine, forms, how == "")
    starts = []
    for given in (False, True):
        # A tile that cannot run, or sums wrongly, is nothing to be measured against.
        with suppress(SondaError):
            start = _by_rule(engine, forms, given)
            if _rightly(forms, start) and start not in starts:
                starts.append(start)
    return search(starts, [form.options(engine) for form in forms], cost)


def _forms(shape: MatrixProduct | Convolution) -> Iterator[Form]:
    """Ways to compute it, the usual one first."""
    if isinstance(shape, Convolution):
        layer = shape.layer()
        if layer is not None:
            yield Form(layer)
            if layer.N > 1:
                yield Form(replace(layer, N=1), layer.N, apart=True)
        shape = shape.product()
    yield Form(Layer.product(shape.m, shape.n, shape.k), shape.count, product=True)


def _by_rule(engine: EngineDescription, forms: list[Form], given: bool) -> Choice:
    """The first form under the description's tile, where that is wanted and there is one, else under a rule's."""
    form = forms[0]
    hardware, layer = engine.hardware, form.layer
    described = (engine.tile if form.product else engine.convolution_tile) if given else {}
    if form.product:
        tile = maps.tile_of(described, layer) if described else maps.product_tile(hardware, layer)
        return form.under(engine, tile)
    tile = maps.tile_of(described, layer) if described else maps.convolution_tile(hardware, layer.check())
    if layer.N > 1 and tile.hands_on(layer) and layer.columns > 1:
        # Neighbours hand activations on rightly only where one sample at a time is on the machine.
        form, tile = forms[1], replace(tile, N=1)
    return form.under(engine, tile)


def _rightly(forms: list[Form], choice: Choice) -> bool:
    """Whether the machine sums rightly under a tile that was given."""
    form = forms[1] if APART.items() <= choice.mapping.items() else forms[0]
    sizes = {name: size for name, size in choice.mapping.items() if name.startswith("T_")}
    return candidate_tiles.sums_rightly(form.layer, maps.tile_of(sizes, form.layer))


def _on_mesh(engine: EngineDescription, shape: MatrixProduct, how: str, cost: Cost) -> Choice:
    hardware = engine.hardware
    product = mesh.Product(shape.m, shape.n, shape.k)

    def under(tile: mesh.MeshTile) -> Choice:
        result = mesh.simulate(hardware, product, tile)
        return Choice({"T_M": tile.rows, "T_N": tile.columns}, times(result, shape.count))

    whole = maps.mesh_tile(hardware, shape.m, shape.n)
    given = mesh.MeshTile(min(engine.tile["T_M"], shape.m), min(engine.tile["T_N"], shape.n)) if engine.tile else whole
    if how != "best":
        return under(given if how == "" else whole)
    largest = (whole.rows, whole.columns)
    tiles = candidate_tiles.combinations(whole.rows * whole.columns, (shape.m, shape.n), largest)
    least = shape.count * least_cycles.of_mesh_tiles(hardware, product, tiles[:, 0], tiles[:, 1])
    reads = shape.count * buffer_reads.of_mesh_tiles(product, tiles[:, 0], tiles[:, 1])
    options = Options(least, reads, lambda number: under(mesh.MeshTile(*tiles[number].tolist())))
    return search([under(one) for one in dict.fromkeys((whole, given))], [options], cost)
