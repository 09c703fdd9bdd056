"""A finite buffer: hand counts, and the best that any buffer could do, for dense operands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as some

from memory_examples import DENSE, MESH, memory, on_dense, on_mesh
from sonda.accelerators.description.accelerator import load_accelerator
from sonda.accelerators.engines import flexible_dense, mesh
from sonda.accelerators.engines.result import sum_results
from sonda.accelerators.mapping.placement import OnHost, Placed, Placement
from sonda.accelerators.memory.hierarchy import MemoryTraffic
from sonda.accelerators.memory.reuse import crossings, distinct_inputs, rereading
from sonda.accelerators.memory.traffic import traffic_of, with_memory
from sonda.accelerators.operations.layer import StonneLayer, Tile
from sonda.accelerators.operations.program import ConvolutionShape, MatrixProduct, ModelProgram, Operation

# ---- hand counts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resident", "read"),
    [
        # 8 x 4 by 4 x 8 in four tiles of 4 x 4. The mesh reads each operand twice: 64 + 64 elements.
        (0, 4 * 128),
        # The inputs of four rows (16 elements) save the second reading of all inputs, 32; the weights (32) save 32.
        (4 * 8, 4 * (128 - 16)),
        (4 * 16, 4 * (128 - 32)),
        (4 * 32, 4 * (128 - 32 - 16)),
        (4 * 48, 4 * 64),
        (4 * 1000, 4 * 64),
    ],
)
def test_what_a_mesh_reads_again(resident: int, read: int) -> None:
    shape, tile, result = on_mesh(8, 8, 4)
    for found in (
        traffic_of(MESH, shape, tile, result, memory(2 * resident)),
        traffic_of(MESH, shape, tile, result, memory(resident, double_buffering=False)),
    ):
        assert (found.read_bytes, found.write_bytes) == (read, 4 * 64)


def test_what_the_dense_engine_reads_again() -> None:
    # 4 x 6 by 6 x 8, four columns at a time: weights once (48), inputs for both blocks (2 x 24), 24 of them again.
    shape, tile, result = on_dense(4, 8, 6, (1, 4, 2))
    for kept, read in ((0, 96), (6, 90), (24, 72), (400, 72)):
        assert traffic_of(DENSE, shape, tile, result, memory(2 * 4 * kept)).read_bytes == 4 * read


def test_partial_sums_through_memory_stay_where_one_tile_of_them_fits() -> None:
    engine = replace(DENSE, hardware=replace(DENSE.hardware, accumulators=False))
    # Three folds of 2: every one of the 8 x 2 sums is written three times and read twice.
    result = flexible_dense.simulate(engine.hardware, StonneLayer.product(8, 2, 6), Tile.product(2, 2, 2))
    assert (result.psum_reads, result.writes) == (32, 48)
    shape, tile = MatrixProduct(8, 2, 6), {"T_M": 2, "T_N": 2, "T_K": 2}
    nothing, half, all_four = (
        traffic_of(engine, shape, tile, result, memory(size, double_buffering=False)) for size in (0, 8, 16)
    )
    assert (nothing.read_bytes, nothing.write_bytes) == (4 * result.reads, 4 * 48)
    assert (half.read_bytes, half.write_bytes) == (4 * (result.reads - 16), 4 * 32)
    assert (all_four.read_bytes, all_four.write_bytes) == (4 * (result.reads - 32), 4 * 16)


def test_stalls_by_hand() -> None:
    shape, tile, result = on_mesh(8, 8, 4)
    # 16 elements stay: inputs 128 bytes, weights 256, results 256: 160 accesses, 2 + 4 + 4 rows, 6 fillings of 64.
    busy = 160 + 10 * 10 + 6 * 5
    alone = traffic_of(MESH, shape, tile, result, memory(64, double_buffering=False))
    assert alone == MemoryTraffic(
        384, 256, row_hits=150, row_misses=10, stall_cycles=busy, moved_read_bytes=384, moved_write_bytes=256
    )
    overlapped = traffic_of(MESH, shape, tile, replace(result, cycles=100), memory(128))
    assert overlapped == replace(alone, stall_cycles=busy - 100)
    # A slow engine waits for its first 4 + 4 operands (32 bytes of one row, of which it takes 8 a cycle itself) and
    # its last 16 results (64 bytes, 4 a cycle), and for the latency.
    slow = traffic_of(MESH, shape, tile, replace(result, cycles=10_000), memory(128))
    assert slow.stall_cycles == 5 + (8 + 10 - 1) + (16 + 10 - 4)


def test_misses_in_several_banks_wait_together() -> None:
    shape, tile, result = on_mesh(8, 8, 4)
    one, ten = (traffic_of(MESH, shape, tile, result, memory(64, double_buffering=False, banks=n)) for n in (1, 10))
    assert one.stall_cycles - ten.stall_cycles == 100 - 10


def test_weights_that_the_buffer_cannot_hold_ahead_are_waited_for_at_every_block() -> None:
    shape, tile, result = on_dense(4, 8, 6, (1, 4, 2))
    result = replace(result, cycles=10_000)
    # First 4 x 6 weights and 1 x 2 inputs, 104 bytes; last 4 results, 16 bytes.
    first, last = 26 + 20 - 26 / 16, 4 + 10 - 4 / 16
    wide = traffic_of(DENSE, shape, tile, result, memory(2 * 104))
    assert wide.stall_cycles == np.ceil(5 + first + last)
    # With room for 64 of them, 40 bytes of the second block's come late: 10 accesses, one row, 10 of 16 elements.
    narrow = traffic_of(DENSE, shape, tile, result, memory(2 * 64))
    assert narrow.stall_cycles == np.ceil(5 + first + last + 10 + 10 - 10 / 16)


def test_a_burst_is_moved_whole() -> None:
    shape, tile, result = on_mesh(1, 1, 3, (1, 1))
    found = traffic_of(MESH, shape, tile, result, memory(1000, burst_bytes=64, double_buffering=False))
    # 12 bytes of weights, 12 of inputs, 4 of results: three bursts of 16 cycles, three rows, one latency.
    assert found == MemoryTraffic(
        24, 4, row_hits=0, row_misses=3, stall_cycles=3 * 16 + 30 + 5, moved_read_bytes=2 * 64, moved_write_bytes=64
    )


def test_an_image_crosses_once_where_its_rows_under_a_window_stay() -> None:
    # 5 x 5, a 3 x 3 filter, 3 x 3 windows; two filters, one at a time: two passes.
    shape = ConvolutionShape(3, 3, 1, 2, 1, 1, 5, 5)
    tile = Tile(3, 3, 1, 1, 1, 1, 1, 1)
    result = flexible_dense.simulate(DENSE.hardware, shape.layer() or pytest.fail("no layer"), tile)
    mapping = {"T_R": 3, "T_S": 3, "T_C": 1, "T_K": 1, "T_G": 1, "T_N": 1, "T_X_": 1, "T_Y_": 1}
    # Windows hand on what they share in a row: 9 + 3 + 3 for each of 3 rows, twice.
    assert (result.weight_reads, result.input_reads) == (18, 90)
    for kept, read in ((0, 90), (3, 90 - 8), (15, 50), (20, 50 - 12.5), (25, 25), (99, 25)):
        found = traffic_of(DENSE, shape, mapping, result, memory(2 * 4 * kept))
        assert found.read_bytes == 4 * (18 + np.ceil(read))


def test_only_mixtures_that_save_most_are_kept() -> None:
    operand = rereading(100, (10, 95), (20, 20), (40, 10), (40, 30))
    assert [tuple(one) for one in operand.savings if one.kept] == [(20, 80, 0), (20, 10, 0)]
    assert [crossings([operand], room)[0][0].reads for room in (0, 5, 20, 30, 40, 99)] == [100, 80, 20, 15, 10, 10]
    assert crossings([operand], 99)[1] == 59


# ---- nothing can do better than the best ---------------------------------------------------------------------------


def fewest_fetches(reads: list[object], room: int) -> int:
    """Fetches of a buffer that knows the future and keeps what it will need soonest (Belady), or keeps nothing."""
    following: list[float] = [0.0] * len(reads)
    seen: dict[object, int] = {}
    for place in range(len(reads) - 1, -1, -1):
        following[place] = seen.get(reads[place], np.inf)
        seen[reads[place]] = place
    held: dict[object, float] = {}
    fetched = 0
    for element, after in zip(reads, following, strict=True):
        if element not in held:
            fetched += 1
            if len(held) >= room:
                farthest = max(held, key=held.__getitem__, default=None)
                if farthest is None or held[farthest] <= after:
                    continue
                del held[farthest]
        held[element] = after
    return fetched


def mesh_reads(m: int, n: int, k: int, rows: int, columns: int) -> Iterator[object]:
    for top in range(0, m, rows):
        for left in range(0, n, columns):
            for step in range(k):
                yield from (("w", step, one) for one in range(left, min(left + columns, n)))
                yield from (("x", one, step) for one in range(top, min(top + rows, m)))


def dense_reads(m: int, n: int, k: int, tile: tuple[int, int, int]) -> Iterator[object]:
    t_m, t_n, t_k = tile
    for left in range(0, n, t_n):
        yield from (("w", step, one) for step in range(k) for one in range(left, min(left + t_n, n)))
        for top in range(0, m, t_m):
            for begin in range(0, k, t_k):
                for one in range(top, top + t_m):
                    yield from (("x", one, step) for step in range(begin, min(begin + t_k, k)))


def direct_reads(shape: ConvolutionShape, handed: bool) -> Iterator[object]:
    """A whole window at a time, of one filter; where multipliers hand on inputs, only the last column of the next."""
    rows, columns = shape.outputs
    channels = shape.C // shape.G
    for image in range(shape.N):
        for group in range(shape.G):
            for one in range(shape.K // shape.G):
                yield from (("w", group, one, tap) for tap in range(channels * shape.R * shape.S))
                for row in range(rows):
                    for column in range(columns):
                        for channel in range(channels):
                            for r in range(shape.R):
                                for s in range(shape.S - 1 if handed and column else 0, shape.S):
                                    at = (row * shape.stride[0] + r, column * shape.stride[1] + s)
                                    yield ("x", image, group, channel, *at)


@settings(max_examples=60, deadline=None)
@given(*(some.integers(1, 9) for _ in range(3)), some.integers(1, 4), some.integers(1, 4), some.integers(0, 90))
def test_a_mesh_never_moves_less_than_the_best_buffer(
    m: int, n: int, k: int, rows: int, columns: int, room: int
) -> None:
    shape, tile, result = on_mesh(m, n, k, (rows, columns))
    reads = list(mesh_reads(m, n, k, rows, columns))
    assert len(reads) == result.reads
    found = traffic_of(MESH, shape, tile, result, memory(2 * 4 * room)).read_bytes
    assert 4 * fewest_fetches(reads, room) <= found <= 4 * len(reads)


@settings(max_examples=60, deadline=None)
@given(
    *(some.integers(1, 9) for _ in range(3)),
    some.sampled_from([(1, 1, 2), (1, 4, 2), (2, 2, 2), (2, 4, 2), (4, 1, 4), (1, 3, 5), (3, 1, 3)]),
    some.integers(0, 90),
)
def test_the_dense_engine_never_moves_less_than_the_best_buffer(
    m: int, n: int, k: int, tile: tuple[int, int, int], room: int
) -> None:
    shape, mapping, result = on_dense(m, n, k, tile)
    reads = list(dense_reads(m, n, k, tile))
    assert len(reads) == result.reads
    found = traffic_of(DENSE, shape, mapping, result, memory(2 * 4 * room)).read_bytes
    # Rows of a tile that the matrix does not have are read, and do not cross where a tile of inputs fits.
    real = [one for one in reads if one[0] == "w" or one[1] < m]  # type: ignore[index]
    assert 4 * fewest_fetches(real, room) <= found <= 4 * len(reads)


@settings(max_examples=60, deadline=None)
@given(
    some.integers(1, 3), some.integers(1, 3), some.integers(1, 2), some.integers(1, 3), some.integers(1, 2),
    some.integers(1, 2), some.integers(3, 6), some.integers(3, 6), some.integers(1, 2), some.integers(0, 120),
)  # fmt: skip
def test_a_convolution_never_moves_less_than_the_best_buffer(
    high: int, wide: int, channels: int, filters: int, groups: int, images: int, x: int, y: int, stride: int, room: int
) -> None:
    shape = ConvolutionShape(
        high, wide, channels * groups, filters * groups, groups, images, x, y, stride=(stride, stride)
    )
    layer = shape.layer()
    assume(layer is not None and high * wide * channels > 1)
    assert layer is not None
    tile = Tile(high, wide, channels, 1, 1, 1, 1, 1)
    hardware = replace(DENSE.hardware, multipliers=64)
    engine = replace(DENSE, hardware=hardware)
    result = flexible_dense.simulate(hardware, layer, tile)
    mapping = dict(zip(("T_R", "T_S", "T_C", "T_K", "T_G", "T_N", "T_X_", "T_Y_"), vars(tile).values(), strict=True))
    reads = list(direct_reads(shape, tile.hands_on(layer)))
    assert len(reads) == result.reads
    found = traffic_of(engine, shape, mapping, result, memory(2 * 4 * room)).read_bytes
    assert 4 * fewest_fetches(reads, room) <= found <= 4 * result.reads
    whole = traffic_of(engine, shape, mapping, result, memory(1 << 30)).read_bytes
    assert whole == 4 * len(set(reads))


@settings(max_examples=100, deadline=None)
@given(
    some.integers(1, 4), some.integers(1, 4), some.integers(1, 9), some.integers(1, 9), some.integers(1, 4),
    some.integers(1, 4), some.integers(0, 2), some.integers(0, 2), some.integers(1, 3), some.integers(1, 3),
)  # fmt: skip
def test_covered_elements_of_an_image(
    r: int, s: int, x: int, y: int, down: int, across: int, top: int, left: int, high: int, wide: int
) -> None:
    shape = ConvolutionShape(r, s, 3, 2, 1, 2, x, y, (down, across), (top, left), (high, wide))
    rows, columns = shape.outputs
    assume(rows > 0 and columns > 0)
    covered = {
        (row * down + one * high - top, column * across + two * wide - left)
        for row in range(rows)
        for column in range(columns)
        for one in range(r)
        for two in range(s)
    }
    inside = [at for at in covered if 0 <= at[0] < x and 0 <= at[1] < y]
    assert distinct_inputs(shape) == 2 * 3 * len(inside)
    # As products with and without dilation, on the mesh, each element comes once where all fits.
    product = shape.product()
    result = mesh.simulate(MESH.hardware, mesh.Product(product.m, product.n, product.k), mesh.MeshTile(1, 1))
    found = traffic_of(MESH, shape, {"T_M": 1, "T_N": 1}, result, memory(1 << 30))
    assert found.read_bytes == 4 * (len(inside) * 6 + product.n * product.k)


# ---- placed operations ---------------------------------------------------------------------------------------------


def test_an_unlimited_buffer_changes_nothing() -> None:
    accelerator = load_accelerator("maeri-256")
    placed = Placement(accelerator).place(
        ModelProgram((), (Operation("linear", "mm", -1, MatrixProduct(4, 4, 4)),), ("",))
    )
    assert accelerator.memory is None
    assert with_memory(placed, accelerator) is placed
    one = placed[0]
    assert isinstance(one, Placed)
    assert (one.traffic, one.cycles) == (None, one.result.cycles)


def test_traffic_is_filled_in_and_what_runs_on_the_host_stays() -> None:
    accelerator = replace(load_accelerator("tpu-16x16"), memory=memory(1 << 20))
    linear = Operation("linear", "mm", -1, MatrixProduct(20, 30, 40))
    bags = OnHost(Operation("embedding_bag", "bags", -1, MatrixProduct(1, 1, 1)), "no engine")
    placed = [*Placement(accelerator).place(ModelProgram((), (linear,), ("",))), bags]
    first, host = with_memory(placed, accelerator)
    assert host is bags
    assert isinstance(first, Placed)
    assert isinstance(placed[0], Placed)
    assert first.result is placed[0].result
    assert first.traffic is not None
    assert first.traffic.read_bytes == 4 * (20 * 40 + 30 * 40)
    assert first.traffic.write_bytes == 4 * 20 * 30
    assert first.cycles == first.result.cycles + first.traffic.stall_cycles


def test_products_of_one_operation_follow_each_other() -> None:
    shape, tile, result = on_mesh(8, 8, 4)
    twice = sum_results([result, result])
    for size in (0, 64, 128, 300, 10_000):
        one = traffic_of(MESH, shape, tile, result, memory(size))
        two = traffic_of(MESH, replace(shape, count=2), tile, twice, memory(size))
        assert (two.read_bytes, two.write_bytes) == (2 * one.read_bytes, 2 * one.write_bytes)
