"""A finite buffer behind every kind of engine: what may never happen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as some

from memory_examples import DENSE, MESH, memory
from sonda.accelerators.description.accelerator import Accelerator
from sonda.accelerators.description.engine import EngineDescription
from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines.registry import engine_kinds
from sonda.accelerators.mapping.placement import Placed, Placement
from sonda.accelerators.memory.hierarchy import Memory, MemoryTraffic
from sonda.accelerators.memory.reuse import distinct_inputs
from sonda.accelerators.memory.traffic import traffic_of
from sonda.accelerators.operations.program import ConvolutionShape, MatrixProduct, Operation, ZeroPattern
from sonda.record.errors import SondaError

SPARSE = {
    "bitmap_sparse": Hardware(16, read_ports=8, write_ports=8),
    "compressed_row": Hardware(16, read_ports=8, write_ports=8, accumulators=True),
    "outer_product": Hardware(16, read_ports=16, write_ports=8),
    "gustavson": Hardware(16, read_ports=16, write_ports=8),
}
FOLDING = replace(DENSE, hardware=replace(DENSE.hardware, accumulators=False))
ENGINES = [
    MESH, DENSE, FOLDING, *(EngineDescription(kind, kind, hardware) for kind, hardware in SPARSE.items()),
    EngineDescription(
        "columns", "bitmap_sparse", SPARSE["bitmap_sparse"], dict.fromkeys(("linear", "convolution"), "MK_STR_KN_STA")
    ),
]  # fmt: skip


def test_every_kind_of_engine_is_tried() -> None:
    assert {engine.kind for engine in ENGINES} == set(engine_kinds())


def alone(engine: EngineDescription, behind: Memory | None = None) -> Accelerator:
    route = dict.fromkeys(("linear", "convolution"), engine.name)
    return Accelerator("test", None, {engine.name: engine}, route, "45nm", memory=behind)


@some.composite
def placements(draw: some.DrawFn) -> Placed:
    """A product or a convolution with zeros on one of the engines."""
    engine = draw(some.sampled_from(ENGINES))
    draws = np.random.RandomState(draw(some.integers(0, 1 << 31)))
    density = draw(some.sampled_from([0.1, 0.5, 1.0]))

    def pattern(*shape: int) -> ZeroPattern:
        bits = draws.random_sample(shape) < density
        bits.ravel()[0] = True
        return ZeroPattern.from_array(bits)

    if draw(some.booleans()):
        m, n, k = (draw(some.integers(1, 30)) for _ in range(3))
        count = draw(some.integers(1, 2))
        product = MatrixProduct(m, n, k, count)
        operation = Operation("linear", "mm", -1, product, pattern(count, m, k), pattern(count, n, k))
    else:
        r, s = draw(some.integers(1, 3)), draw(some.integers(1, 3))
        channels, filters, groups = draw(some.integers(1, 3)), draw(some.integers(1, 3)), draw(some.integers(1, 2))
        images, x, y = draw(some.integers(1, 2)), draw(some.integers(3, 7)), draw(some.integers(3, 7))
        sides = [(draw(some.integers(1, 2)), draw(some.integers(0, 1))) for _ in range(2)]
        shape = ConvolutionShape(
            r, s, channels * groups, filters * groups, groups, images, x, y, (sides[0][0], sides[1][0]),
            (sides[0][1], sides[1][1]), (1, draw(some.integers(1, 2)) if s < 3 else 1),
        )  # fmt: skip
        inputs, weights = pattern(images, channels * groups, x, y), pattern(filters * groups, channels, r, s)
        operation = Operation("convolution", "convolution", -1, shape, inputs, weights)
    try:
        found = Placement(alone(engine)).place_operation(operation)
    except SondaError:
        assume(False)
    assert isinstance(found, Placed)
    return found


memories = some.builds(
    Memory,
    buffer_bytes=some.integers(1, 20_000),
    bytes_per_cycle=some.sampled_from([0.3, 1.0, 7.5, 64.0]),
    latency_cycles=some.integers(0, 200),
    row_bytes=some.sampled_from([64, 1024, 8192]),
    row_miss_cycles=some.integers(0, 50),
    element_bytes=some.sampled_from([1, 2, 4]),
    double_buffering=some.booleans(),
    burst_bytes=some.sampled_from([4, 32, 64]),
    banks=some.sampled_from([1, 16]),
)


def traffic(placed: Placed, behind: Memory) -> MemoryTraffic:
    return traffic_of(placed.engine, placed.operation.shape, placed.mapping, placed.result, behind, placed.operation)


@settings(max_examples=300, deadline=None)
@given(placements(), memories)
def test_no_operand_crosses_more_often_than_it_is_read_or_less_than_once(placed: Placed, behind: Memory) -> None:
    found = traffic(placed, behind)
    size = behind.element_bytes
    shape = placed.operation.shape
    product = shape.product() if isinstance(shape, ConvolutionShape) else shape
    assert isinstance(product, MatrixProduct)
    results = product.m * product.n * product.count
    merging = placed.engine.kind in ("outer_product", "gustavson")
    # Engines that merge write finished rows past the buffer; these are at most all elements.
    assert found.read_bytes <= size * placed.result.reads
    assert found.write_bytes <= size * (placed.result.writes + merging * results)
    assert found.write_bytes >= 0 if merging else found.write_bytes >= size * results
    everything = traffic(placed, replace(behind, buffer_bytes=1 << 40))
    assert everything.read_bytes <= found.read_bytes
    assert everything.write_bytes <= found.write_bytes
    if placed.engine.kind in ("mesh", "flexible_dense"):
        inputs = (
            distinct_inputs(shape) if isinstance(shape, ConvolutionShape) else product.m * product.k * product.count
        )
        assert everything.read_bytes == size * (inputs + product.n * product.k * product.count)
        assert everything.write_bytes == size * results


@settings(max_examples=300, deadline=None)
@given(placements(), memories, some.integers(0, 20_000), some.sampled_from([1.5, 100.0]), some.integers(1, 100))
def test_more_of_anything_never_costs(
    placed: Placed, behind: Memory, bytes_more: int, wider: float, sooner: int
) -> None:
    found = traffic(placed, behind)
    larger = traffic(placed, replace(behind, buffer_bytes=behind.buffer_bytes + bytes_more))
    assert larger.read_bytes <= found.read_bytes
    assert larger.write_bytes <= found.write_bytes
    assert larger.moved_read_bytes <= found.moved_read_bytes
    assert larger.moved_write_bytes <= found.moved_write_bytes
    assert larger.stall_cycles <= found.stall_cycles
    faster = traffic(placed, replace(behind, bytes_per_cycle=behind.bytes_per_cycle * wider))
    assert faster == replace(found, stall_cycles=faster.stall_cycles)
    assert faster.stall_cycles <= found.stall_cycles
    nearer = traffic(placed, replace(behind, latency_cycles=max(0, behind.latency_cycles - sooner)))
    assert nearer.stall_cycles <= found.stall_cycles
    kept_open = traffic(placed, replace(behind, row_bytes=behind.row_bytes * 8))
    assert kept_open.row_misses <= found.row_misses
    assert kept_open.stall_cycles <= found.stall_cycles


@settings(max_examples=300, deadline=None)
@given(placements(), memories)
def test_stalls_are_the_memorys_time_and_no_more(placed: Placed, behind: Memory) -> None:
    found = traffic(placed, behind)
    moved = found.read_bytes + found.write_bytes
    assert found.row_hits >= 0
    assert found.row_misses >= 0
    in_bursts = (found.row_hits + found.row_misses) * behind.burst_bytes
    assert in_bursts == found.moved_read_bytes + found.moved_write_bytes >= moved
    assert found.moved_read_bytes >= found.read_bytes
    assert found.moved_write_bytes >= found.write_bytes
    # Engine and memory together are never faster than the memory alone, nor slower than one after the other.
    least = moved / behind.bytes_per_cycle + (behind.latency_cycles if found.read_bytes else 0)
    cycles = placed.result.cycles
    assert found.stall_cycles >= 0
    assert cycles + found.stall_cycles >= least
    apart = traffic(placed, replace(behind, buffer_bytes=behind.resident_bytes, double_buffering=False))
    assert replace(apart, stall_cycles=0) == replace(found, stall_cycles=0)
    assert found.stall_cycles <= apart.stall_cycles
    free = replace(behind, bytes_per_cycle=1e18, latency_cycles=0, row_miss_cycles=0)
    assert traffic(placed, free).stall_cycles <= 1


@settings(max_examples=60, deadline=None)
@given(placements())
def test_nonzeros_are_counted_where_the_operation_is_known(placed: Placed) -> None:
    assume(placed.engine.kind in SPARSE)
    large = memory(1 << 40)
    full = traffic_of(placed.engine, placed.operation.shape, placed.mapping, placed.result, large)
    assert traffic(placed, large).read_bytes <= full.read_bytes


def test_by_rows_the_other_matrix_comes_whole() -> None:
    # The sparser matrix is taken by its rows; what these name of the other is read for each of them.
    engine = EngineDescription("rows", "compressed_row", SPARSE["compressed_row"])
    inputs, weights = np.ones((1, 3, 8), bool), np.zeros((1, 5, 8), bool)
    weights[0, :, 2:4] = True
    patterns = ZeroPattern.from_array(inputs), ZeroPattern.from_array(weights)
    for swapped in (False, True):
        first, second = patterns[::-1] if swapped else patterns
        shape = MatrixProduct(first.shape[1], second.shape[1], 8)
        placed = Placement(alone(engine)).place_operation(Operation("linear", "mm", -1, shape, first, second))
        assert isinstance(placed, Placed)
        assert placed.mapping["rows"] == ("inputs by rows" if swapped else "weights by rows")
        # 10 entries of 5 rows, each with 3 elements of the full matrix of 24.
        assert (placed.result.weight_reads, placed.result.input_reads) == (10, 30)
        for room, read in ((0, 40), (12, 37), (24, 34), (99, 34)):
            assert traffic(placed, memory(4 * room, double_buffering=False)).read_bytes == 4 * read


def full(engine: EngineDescription, m: int, n: int, k: int) -> Placed:
    patterns = ZeroPattern.from_array(np.ones((1, m, k), bool)), ZeroPattern.from_array(np.ones((1, n, k), bool))
    placed = Placement(alone(engine)).place_operation(Operation("linear", "mm", -1, MatrixProduct(m, n, k), *patterns))
    assert isinstance(placed, Placed)
    return placed


def moved(placed: Placed, room: int) -> tuple[int, int]:
    """Elements read and written with room for so many."""
    found = traffic(placed, memory(4 * room, double_buffering=False))
    return found.read_bytes // 4, found.write_bytes // 4


def test_sums_of_a_vector_that_is_too_long_wait_for_its_next_piece() -> None:
    # Three columns of 20 on 16 multipliers: 16 and 4. Two rows stream: 40 elements for each column, a sum of each row.
    placed = full(EngineDescription("bitmaps", "bitmap_sparse", SPARSE["bitmap_sparse"]), 2, 3, 20)
    result = placed.result
    assert (result.weight_reads, result.input_reads, result.psum_reads, result.writes) == (60, 120, 6, 12)
    assert moved(placed, 0) == (186, 12)
    assert moved(placed, 1) == (183, 9)
    assert moved(placed, 2) == (180, 6)
    assert moved(placed, 2 + 10) == (160, 6)
    assert moved(placed, 2 + 40) == (100, 6)


def test_gustavsons_order_keeps_what_a_row_leaves_and_the_second_matrix() -> None:
    # Three rows of 40 in pieces of 16: three pieces leave 2 elements each, which are merged again.
    placed = full(EngineDescription("rows", "gustavson", SPARSE["gustavson"]), 3, 2, 40)
    result = placed.result
    assert (result.weight_reads, result.input_reads, result.psum_reads, result.writes) == (120, 240, 18, 18)
    assert moved(placed, 0) == (378, 18 + 6)
    assert moved(placed, 6) == (360, 6)
    assert moved(placed, 6 + 40) == (280, 6)
    assert moved(placed, 6 + 80) == (200, 6)


def test_the_outer_product_keeps_the_rows_that_its_multipliers_meet_and_all_products() -> None:
    placed = full(EngineDescription("outer", "outer_product", SPARSE["outer_product"]), 3, 2, 40)
    result = placed.result
    # 240 products, and 18 elements that the first merging leaves to the second.
    assert (result.weight_reads, result.input_reads, result.psum_reads, result.writes) == (120, 240, 258, 258)
    assert moved(placed, 0) == (618, 258 + 6)
    # 16 multipliers meet 16 rows of 2 at most.
    assert moved(placed, 32) == (618 - 160, 264)
    assert moved(placed, 32 + 129) == (618 - 160 - 129, 264 - 129)
    assert moved(placed, 32 + 258) == (200, 6)
