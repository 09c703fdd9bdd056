"""Many operations on engines whose time depends on shapes only, all at once, each as `dense_operation` has it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.dense_operation import Form, by_rules, forms
from sonda.accelerators.engine_description import EngineDescription
from sonda.accelerators.engines import flexible_dense, mesh
from sonda.accelerators.operation import Bags, Convolution, MatrixProduct
from sonda.accelerators.taken import Taken
from sonda.record.errors import SondaError

Whole = NDArray[np.int64]


class DenseOperations:
    """Operations of a program, made ready once for all engines that may take them."""

    def __init__(self, shapes: Sequence[MatrixProduct | Convolution | Bags]) -> None:
        self._shapes = [shape for shape in shapes if not isinstance(shape, Bags)]
        if len(self._shapes) < len(shapes):
            raise SondaError("a dense engine cannot sum the rows of a bag", "route embedding_bag to a sparse engine")

    def on(self, engine: EngineDescription, given: bool) -> Taken:
        """All of them under the tiles that the description gives, where that is wanted and there are any, else under a
        rule's. Raises SondaError where one cannot be; which, only one by one can say."""
        return self._on_mesh(engine, given) if engine.kind == "mesh" else self._on_dense(engine, given)

    def _on_mesh(self, engine: EngineDescription, given: bool) -> Taken:
        products, count = self._products
        tile = engine.tile if given and engine.tile else {"T_M": engine.hardware.rows, "T_N": engine.hardware.columns}
        sizes = np.minimum((tile["T_M"], tile["T_N"]), products[:, :2])
        result = mesh.simulate_all(engine.hardware, products, sizes)
        return Taken(
            range(len(count)),
            result,
            count,
            lambda place: dict(zip(("T_M", "T_N"), sizes[place].tolist(), strict=True)),
        )

    def _on_dense(self, engine: EngineDescription, given: bool) -> Taken:
        found = by_rules(engine, self._forms, given)
        tiles = np.array([tile.sizes for _, tile in found], np.int64)
        layers = np.array([form.layer.sizes for form, _ in found], np.int64)
        result = flexible_dense.simulate_all(engine.hardware, layers, tiles)
        count = np.array([form.count for form, _ in found])
        return Taken(range(len(count)), result, count, lambda place: found[place][0].words(found[place][1]))

    @cached_property
    def _products(self) -> tuple[Whole, Whole]:
        """M, N and K of each as products, a row each, and of how many."""
        found = [shape.product() if isinstance(shape, Convolution) else shape for shape in self._shapes]
        sizes = np.array([(one.m, one.n, one.k) for one in found], np.int64)
        return sizes, np.array([one.count for one in found], np.int64)

    @cached_property
    def _forms(self) -> list[tuple[Form, ...]]:
        return [forms(shape) for shape in self._shapes]
