"""Designs of an engine simulated all at once are those one by one, in every number that is kept."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from sonda.accelerators.description.accelerator import load_accelerator
from sonda.accelerators.description.engine import EngineDescription
from sonda.accelerators.description.settings import with_settings
from sonda.accelerators.designs.dense import AT_ONCE
from sonda.accelerators.designs.work import DesignWork, EngineWork
from sonda.accelerators.operations.program import Call, ConvolutionShape, MatrixProduct, ModelProgram, Operation
from sonda.record.errors import SondaError

MAERI = load_accelerator("maeri-256")
CONVOLUTION_TILE = "convolution_tile.T_S=3 convolution_tile.T_C=2 convolution_tile.T_K=2"


def program(*shapes: MatrixProduct | ConvolutionShape) -> ModelProgram:
    operations = tuple(
        Operation("convolution" if isinstance(shape, ConvolutionShape) else "linear", "op", 0, shape)
        for shape in shapes
    )
    return ModelProgram((Call("net", "Net", 0, -1, 0),), operations, ("forward",) * len(operations))


def convolution(n: int, c: int, k: int, side: int, filter_side: int, **other: Any) -> ConvolutionShape:
    return ConvolutionShape(N=n, C=c, K=k, G=other.pop("G", 1), R=filter_side, S=filter_side, X=side, Y=side, **other)


NETWORK = program(
    MatrixProduct(6, 33, 20),
    MatrixProduct(1, 10, 64, count=3),
    MatrixProduct(6, 33, 20),
    convolution(3, 8, 24, 8, 1),
    convolution(3, 8, 6, 9, 3),
    convolution(2, 4, 8, 9, 3, stride=(2, 2), padding=(1, 1)),
    convolution(2, 6, 6, 7, 3, G=3),
)


def designs(settings: str) -> list[EngineDescription]:
    """Machines of four families, some of which cannot run the network, in no order of their sizes."""
    (base,) = with_settings(MAERI, settings).engines.values()
    families = (("ASNETWORK", True), ("ASNETWORK", False), ("FENETWORK", True), ("TEMPORALRN", True))
    sizes = ((64, 16, 4), (8, 1, 8), (128, 128, 16), (16, 16, 1), (4, 2, 2), (2, 1, 1), (256, 32, 32))
    return [
        replace(base, hardware=replace(base.hardware, multipliers=multipliers, read_ports=reads, write_ports=writes,
                                       reduction=reduction, accumulators=accumulators))
        for (multipliers, reads, writes), (reduction, accumulators) in product(sizes, families)
    ]  # fmt: skip


def kept(work: DesignWork | SondaError) -> Any:
    """All that is kept of a work; of an error its words."""
    if isinstance(work, SondaError):
        return str(work)
    accesses = [
        (one.counted.weight_reads, one.counted.input_reads, one.counted.psum_reads, one.counted.writes)
        for one in work.parts()
    ]
    parts = [(id(one.operation), one.often, one.mapping, one.cycles) for one in work.parts()]
    return work.engine, work.cycles, work.counts, work.instances, parts, accesses


@pytest.mark.parametrize("mapping", ["", "stonne", "best"])
@pytest.mark.parametrize("settings", ["", CONVOLUTION_TILE, "tile.T_M=2 tile.T_N=3 tile.T_K=4"])
def test_designs_at_once_are_those_one_by_one(settings: str, mapping: str) -> None:
    some = designs(settings)[:: 5 if mapping == "best" else 1]  # a search one by one takes its time
    at_once, one_by_one = EngineWork(NETWORK), EngineWork(NETWORK)
    at_once.prepare(MAERI, some, mapping)
    ready = at_once.simulations
    found = [at_once.work_on(MAERI, engine, mapping, None) for engine in some]
    assert [kept(one) for one in found] == [kept(one_by_one.work_on(MAERI, engine, mapping, None)) for engine in some]
    # Six operations differ; those that could be were all simulated at once, and only those.
    assert ready == 6 * sum(isinstance(one, DesignWork) for one in found)
    # A rule has a tile for every machine; one that is given is too large for some, and others cannot sum so.
    assert ready > 0
    assert (ready == 6 * len(some)) == (not settings or mapping != "")


def test_designs_that_do_not_go_in_at_once_are_taken_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    some = designs("")[::4]
    whole, portions = EngineWork(NETWORK), EngineWork(NETWORK)
    whole.prepare(MAERI, some, "")
    assert 6 * 256 * len(some) <= AT_ONCE
    monkeypatch.setattr("sonda.accelerators.designs.dense.AT_ONCE", 6 * 2 * 64)
    monkeypatch.setattr("sonda.accelerators.mapping.fullest_tiles.AT_ONCE", 1)
    portions.prepare(MAERI, some, "")
    for engine in some:
        assert kept(portions.work_on(MAERI, engine, "", None)) == kept(whole.work_on(MAERI, engine, "", None))


def test_what_is_ready_is_not_simulated_again() -> None:
    work = EngineWork(NETWORK)
    some = designs("")[:1]
    for _ in range(2):
        work.prepare(MAERI, some, "")
        work.work_on(MAERI, some[0], "", None)
    assert work.simulations == 6
    work.prepare(MAERI, [], "")
    assert work.simulations == 6
    for _ in range(2):
        work.prepare(MAERI, some, "best")
        work.work_on(MAERI, some[0], "best", None)
    assert work.simulations == 12
