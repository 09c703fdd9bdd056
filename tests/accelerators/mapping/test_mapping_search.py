"""The search for mappings: nothing better among all there are, never worse than what it is measured against."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapping_examples import machines, simulated
from oracle.golden import runs as reference_runs
from sonda.accelerators.description.accelerator import Accelerator, load_accelerator, single_engine_accelerator
from sonda.accelerators.description.engine import EngineDescription
from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines import compressed_row, mesh
from sonda.accelerators.engines.result import Result
from sonda.accelerators.mapping.candidate_tiles import LETTERS, tile_sums_rightly
from sonda.accelerators.mapping.placement import Learnt, Placed, Placement
from sonda.accelerators.mapping.search import Choice, FormMappings, MappingCost, MappingSpace, search
from sonda.accelerators.memory.hierarchy import Memory
from sonda.accelerators.memory.traffic import traffic_of, with_memory
from sonda.accelerators.operations.layer import StonneLayer, Tile
from sonda.accelerators.operations.program import Bags, ConvolutionShape, MatrixProduct, Operation, ZeroPattern
from sonda.record.errors import SondaError

MEMORY = Memory(buffer_bytes=2048, bytes_per_cycle=4, latency_cycles=20, row_bytes=512, row_miss_cycles=10)


# ---- nothing better -----------------------------------------------------------------------------------------------


def placed(accelerator: Accelerator, operation: Operation, how: str) -> Placed:
    found = Placement(accelerator, how).place_operation(operation)
    assert isinstance(found, Placed)
    return found


@settings(max_examples=40, deadline=None)
@given(machines(largest=4), st.tuples(*[st.integers(1, 12)] * 3))
def test_no_tile_of_a_product_is_better(hardware: Hardware, sizes: tuple[int, int, int]) -> None:
    every = itertools.product(*(range(1, min(size, hardware.multipliers) + 1) for size in sizes))
    results = [simulated(hardware, StonneLayer.product(*sizes), Tile.product(*tile)) for tile in every]
    costs = [result.cycles for result in results if result is not None]
    found = placed(single_engine_accelerator("one", "flexible_dense", hardware), product(*sizes), "best")
    assert found.result.cycles == min(costs)
    assert found.proved


@settings(max_examples=30, deadline=None)
@given(
    hardware=machines(largest=4), sides=st.tuples(*[st.integers(1, 3)] * 2), channels=st.integers(1, 3),
    filters=st.integers(1, 3), groups=st.integers(1, 2), batch=st.integers(1, 2), image=st.integers(3, 6),
    stride=st.integers(1, 2),
)  # fmt: skip
def test_no_tile_of_a_convolution_is_better_in_any_form(
    hardware: Hardware, sides: tuple[int, int], channels: int, filters: int, groups: int, batch: int, image: int,
    stride: int,
) -> None:  # fmt: skip
    shape = ConvolutionShape(*sides, channels * groups, filters * groups, groups, batch, image, image, (stride, stride))
    as_product = shape.product()
    forms = [(StonneLayer.product(as_product.m, as_product.n, as_product.k), groups)]
    layer = shape.layer()
    if layer is not None:
        forms += [(layer, 1), (replace(layer, N=1), batch)]
    costs = []
    for one, count in forms:
        largest = (one.R, one.S, one.C // one.G, one.K // one.G, one.G, one.N, one.rows, one.columns)
        for sizes in itertools.product(*(range(1, min(size, hardware.multipliers) + 1) for size in largest)):
            if np.prod(sizes) > hardware.multipliers or not tile_sums_rightly(one, Tile(*sizes)):
                continue
            result = simulated(hardware, one, Tile(*sizes))
            costs += [] if result is None else [count * result.cycles]
    operation = Operation("convolution", "convolution", -1, shape)
    found = placed(single_engine_accelerator("one", "flexible_dense", hardware), operation, "best")
    assert found.result.cycles == min(costs)


@settings(max_examples=30, deadline=None)
@given(
    entries=st.lists(st.integers(0, 20), min_size=1, max_size=5),
    columns=st.integers(1, 20),
    ports=st.tuples(*[st.integers(0, 4)] * 2),
)
def test_no_tile_of_bags_is_better(entries: list[int], columns: int, ports: tuple[int, int]) -> None:
    hardware = Hardware(16, 0, 0, 1 << ports[0], 1 << ports[1], "ASNETWORK", True, "MAGMA_SPARSE_DENSE")
    rows = compressed_row.RowsByDense(np.array(entries, np.int64), columns)
    costs = [
        compressed_row.simulate(hardware, rows, compressed_row.RowTile(wide, summed)).cycles
        for wide in range(1, min(columns, 8) + 1)
        for summed in range(2, 16 // wide + 1)
    ]
    shape = Bags(rows.entries, np.zeros(sum(entries), np.int64), 100, columns)
    operation = Operation("embedding_bag", "embedding_bag", -1, shape)
    found = placed(single_engine_accelerator("one", "compressed_row", hardware), operation, "best")
    assert found.result.cycles == min(costs)


@settings(max_examples=30, deadline=None)
@given(sizes=st.tuples(*[st.integers(1, 30)] * 3), shared=st.integers(0, 3), lines=st.integers(0, 4))
def test_no_tile_of_the_mesh_is_better(sizes: tuple[int, int, int], shared: int, lines: int) -> None:
    hardware = Hardware(16, 4, 4, 8 >> shared, 1 << lines, "TEMPORALRN", True, "TPU_OS_DENSE")
    tiles = itertools.product(range(1, 5), range(1, 5))
    costs = [mesh.simulate(hardware, mesh.Product(*sizes), mesh.MeshTile(*tile)).cycles for tile in tiles]
    assert placed(single_engine_accelerator("one", "mesh", hardware), product(*sizes), "best").result.cycles == min(
        costs
    )


# ---- never worse --------------------------------------------------------------------------------------------------


def product(m: int, n: int, k: int, count: int = 1) -> Operation:
    return Operation("linear", "addmm", -1, MatrixProduct(m, n, k, count))


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.tuples(*[st.integers(1, 100)] * 3),
    name=st.sampled_from(("maeri-256", "dlrm-hybrid", "tpu-16x16")),
    finite=st.booleans(),
)
def test_never_worse_than_the_rule_or_the_given_tile(sizes: tuple[int, int, int], name: str, finite: bool) -> None:
    memory = MEMORY if finite else None
    accelerator = replace(load_accelerator(name), memory=memory)

    def cost(how: str) -> int:
        found = placed(accelerator, product(*sizes), how)
        if memory is None:
            return found.result.cycles
        traffic = traffic_of(found.engine, found.operation.shape, found.mapping, found.result, memory)
        return found.result.cycles + traffic.stall_cycles

    assert cost("best") <= min(cost(""), cost("stonne"))


def test_the_rule_where_the_description_gives_a_tile() -> None:
    """T_S = 4, T_K = 2, T_N = 1 is given; STONNE's mapper takes T_M = 1, T_N = 64, T_K = 4 for this layer."""
    hybrid = load_accelerator("dlrm-hybrid")
    assert placed(hybrid, product(20, 64, 128), "").mapping == {"T_M": 1, "T_N": 2, "T_K": 4}
    assert placed(hybrid, product(20, 64, 128), "stonne").mapping == {"T_M": 1, "T_N": 64, "T_K": 4}


@pytest.mark.parametrize(
    "run",
    [
        run
        for run in reference_runs()
        if "generated_tile" in run and run["status"] == "ok" and run["mode"] != "SparseDense"
    ],
    ids=lambda run: f"{run['id']}-{run['mode']}",
)
def test_never_worse_than_what_the_reference_chose_and_took(run: dict[str, Any]) -> None:
    """Tiles of STONNE's mapper, and of mRNA, which it calls for convolutions."""
    config, dims = run["config"], run["dims"]
    reduction, accumulators = config["rn_type"], bool(config["accumulation_buffer"])
    hardware = Hardware(config["num_ms"], 0, 0, config["dn_bw"], config["rn_bw"], reduction, accumulators)
    if run["mode"] == "CONV":
        sizes = [dims[letter] for letter in LETTERS]
        operation = Operation("convolution", "convolution", -1, ConvolutionShape(*sizes, (dims["strides"],) * 2))
    else:
        operation = product(dims["M"], dims["N"], dims["K"])
    found = placed(single_engine_accelerator("one", "flexible_dense", hardware), operation, "best")
    assert found.result.cycles <= run["cycles"]


def test_the_shorter_operand_stays_on_sigma() -> None:
    """One row by 100 columns of 64 at 128 multipliers. Weights stay: 50 iterations of two vectors, each a streaming
    vector, six adders, four cycles around and one more to write two results. The row stays: one iteration of 100."""
    patterns = ZeroPattern.from_array(np.ones((1, 1, 64), bool)), ZeroPattern.from_array(np.ones((1, 100, 64), bool))
    operation = Operation("linear", "addmm", -1, MatrixProduct(1, 100, 64), *patterns)
    sigma = load_accelerator("sigma-128")
    given, best = (placed(sigma, operation, how) for how in ("", "best"))
    assert (given.mapping["dataflow"], given.result.cycles) == ("MK_STR_KN_STA", 50 * (1 + 6 + 4 + 1))
    assert (best.mapping["dataflow"], best.result.cycles) == ("MK_STA_KN_STR", 100 + 6 + 4)
    assert (best.tried, best.proved) == (2, True)


def test_a_strided_convolution_becomes_a_product() -> None:
    """Directly one window at a time sums rightly, so that 2 x 2 taps of one channel leave most multipliers idle."""
    shape = ConvolutionShape(2, 2, 1, 1, 1, 1, 64, 64, stride=(2, 2))
    operation = Operation("convolution", "convolution", -1, shape)
    direct, best = (placed(load_accelerator("maeri-256"), operation, how) for how in ("stonne", "best"))
    assert "T_X_" in direct.mapping
    assert set(best.mapping) == {"T_M", "T_N", "T_K"}
    # 1024 windows one by one of two elements a port, against 64 at a time.
    assert direct.result.cycles > 2 * 1024
    assert best.result.cycles < direct.result.cycles / 10


# ---- the search itself --------------------------------------------------------------------------------------------


def made(cycles: int) -> Choice:
    return Choice({"cycles": cycles}, Result(cycles, 0, 0, 0, 0, 0))


MAERI = load_accelerator("maeri-256").engines["maeri"]
PLAIN = MappingCost(MAERI, product(1, 1, 1), None)


def start(*cycles: int) -> FormMappings:
    return FormMappings(np.zeros(len(cycles), np.int64), lambda number: made(cycles[number]))


def test_what_cannot_be_better_is_not_tried() -> None:
    cycles, seen = [50, 30, 35, 90], []

    def simulate(number: int) -> Choice:
        seen.append(number)
        return made(cycles[number])

    options = FormMappings(np.array([40, 20, 30, 10]), simulate)
    found = search(MappingSpace([start(60)], [options]), PLAIN)
    assert seen == [3, 1]  # then the next needs 30 at least, which is reached
    assert (found.mapping, found.tried, found.proved) == ({"cycles": 30}, 3, True)
    search(MappingSpace([start(60)], [options]), PLAIN)
    assert seen == [3, 1], "what was simulated once is known"


def test_a_limit_is_said() -> None:
    options = FormMappings(np.arange(10), lambda number: made(50 - number))
    found = search(MappingSpace([start(60)], [options]), PLAIN, most=4)
    assert (found.result.cycles, found.tried, found.proved) == (47, 5, False)


def test_the_start_is_kept_where_nothing_is_better() -> None:
    first = FormMappings(np.zeros(1, np.int64), lambda number: Choice({"start": 1}, made(7).result))
    options = FormMappings(np.array([1, 1]), lambda number: made(7))
    assert search(MappingSpace([first, start(7)], [options]), PLAIN).mapping == {"start": 1}


def test_what_an_engine_cannot_follow_is_passed_over() -> None:
    def simulate(number: int) -> Choice:
        if number == 0:
            raise SondaError("too many blocks overlap", "")
        return made(9)

    found = search(MappingSpace([], [FormMappings(np.array([1, 2]), simulate)]), PLAIN)
    assert (found.result.cycles, found.tried, found.proved) == (9, 1, True)


def test_nothing_to_choose_from() -> None:
    def refused(number: int) -> Choice:
        raise SondaError("M = 0 is not a size", "")

    for listed in (MappingSpace([], []), MappingSpace([], [FormMappings(np.zeros(0, np.int64), made)])):
        with pytest.raises(SondaError, match="no mapping"):
            search(listed, PLAIN)
    with pytest.raises(SondaError, match="M = 0"):
        search(MappingSpace([FormMappings(np.zeros(1, np.int64), refused)], []), PLAIN)


# ---- with memory behind the buffer --------------------------------------------------------------------------------

MEMORIES = st.builds(
    Memory,
    buffer_bytes=st.integers(0, 4096),
    bytes_per_cycle=st.floats(0.5, 64),
    latency_cycles=st.integers(0, 100),
    row_bytes=st.sampled_from((64, 512)),
    row_miss_cycles=st.integers(0, 40),
    double_buffering=st.booleans(),
    burst_bytes=st.sampled_from((4, 64)),
    banks=st.integers(1, 4),
)
DENSE_SHAPES = st.one_of(
    st.builds(MatrixProduct, *[st.integers(1, 30)] * 3, st.integers(1, 2)),
    st.builds(
        lambda sides, image, channels, filters, batch, stride: ConvolutionShape(
            *sides, channels, filters, 1, batch, *image, (stride, stride)
        ),
        st.tuples(*[st.integers(1, 3)] * 2), st.tuples(*[st.integers(3, 7)] * 2), st.integers(1, 4), st.integers(1, 4),
        st.integers(1, 2), st.integers(1, 2),
    ),
)  # fmt: skip


def check_options(engine: EngineDescription, operation: Operation, memory: Memory, data: st.DataObject) -> None:
    """What an option costs is exactly what its simulation moves and takes; its bound is never more than that."""
    listed = engine.simulator.mappings(engine, operation)
    assert listed is not None
    cost = MappingCost(engine, operation, memory)
    for options in (*listed.starts, *listed.options):
        if not len(options.least):
            continue
        least = cost.least(options)
        for number in data.draw(st.lists(st.integers(0, len(least) - 1), min_size=1, max_size=6)):
            if isinstance(options.engine_cycles(number), SondaError):
                continue
            found = options.choice(number)
            traffic = traffic_of(engine, operation.shape, found.mapping, found.result, memory, operation)
            assert cost.total(options, number) == found.result.cycles + traffic.stall_cycles
            assert least[number] <= found.result.cycles + traffic.stall_cycles
            moved = options.movement(engine, operation, memory.sizes)
            assert moved is not None
            assert moved.at(number).reads == traffic.read_bytes
            # All operands that there are must cross: not less than that is ever waited for.
            assert found.result.cycles + traffic.stall_cycles >= traffic.read_bytes / memory.bytes_per_cycle


@settings(max_examples=100, deadline=None)
@given(machines(), DENSE_SHAPES, MEMORIES, st.data())
def test_bounds_with_memory_behind_the_dense_engine(
    hardware: Hardware, shape: MatrixProduct | ConvolutionShape, memory: Memory, data: st.DataObject
) -> None:
    engine = single_engine_accelerator("one", "flexible_dense", hardware).engines["one"]
    operation = Operation("convolution" if isinstance(shape, ConvolutionShape) else "linear", "", -1, shape)
    check_options(engine, operation, memory, data)


@settings(max_examples=60, deadline=None)
@given(DENSE_SHAPES, st.integers(0, 3), st.integers(0, 4), MEMORIES, st.data())
def test_bounds_with_memory_behind_the_mesh(
    shape: MatrixProduct | ConvolutionShape, shared: int, lines: int, memory: Memory, data: st.DataObject
) -> None:
    hardware = Hardware(16, 4, 4, 8 >> shared, 1 << lines, "TEMPORALRN", True, "TPU_OS_DENSE")
    engine = single_engine_accelerator("one", "mesh", hardware).engines["one"]
    operation = Operation("linear", "", -1, shape)
    check_options(engine, operation, memory, data)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(1, 20), MEMORIES, st.data())
def test_bounds_with_memory_behind_bags(sizes: list[int], columns: int, memory: Memory, data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 50))
    indices = data.draw(st.lists(st.integers(0, rows - 1), min_size=sum(sizes), max_size=sum(sizes)))
    bags = Bags(np.array(sizes, np.int64), np.array(indices, np.int64), rows, columns)
    engine = load_accelerator("dlrm-hybrid").engines["embeddings"]
    operation = Operation("embedding_bag", "", -1, bags)
    check_options(engine, operation, memory, data)


@settings(max_examples=25, deadline=None)
@given(machines(largest=3), st.tuples(*[st.integers(1, 10)] * 3), MEMORIES)
def test_no_tile_is_better_with_memory(hardware: Hardware, sizes: tuple[int, int, int], memory: Memory) -> None:
    accelerator = replace(single_engine_accelerator("one", "flexible_dense", hardware), memory=memory)
    engine, operation = accelerator.engines["one"], product(*sizes)
    costs = []
    for tile in itertools.product(*(range(1, min(size, hardware.multipliers) + 1) for size in sizes)):
        result = simulated(hardware, StonneLayer.product(*sizes), Tile.product(*tile))
        if result is not None:
            mapping = dict(zip(("T_M", "T_N", "T_K"), tile, strict=True))
            traffic = traffic_of(engine, operation.shape, mapping, result, memory, operation)
            costs.append(result.cycles + traffic.stall_cycles)
    (found,) = with_memory([placed(accelerator, operation, "best")], accelerator)
    assert isinstance(found, Placed)
    assert found.cycles == min(costs)
    assert found.proved


def test_what_is_learnt_with_one_memory_holds_for_another() -> None:
    shared, operation = Learnt(), product(20, 64, 128)
    for size in (512, 4096, 65536):
        accelerator = replace(load_accelerator("dlrm-hybrid"), memory=replace(MEMORY, buffer_bytes=size))
        assert Placement(accelerator, "best", shared).place_operation(operation) == placed(
            accelerator, operation, "best"
        )
