"""A finite buffer: hand counts, the best that any buffer could do, and what may never happen, for dense operands."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as some

from sonda.accelerators import description
from sonda.accelerators.behind import traffic_of, with_memory
from sonda.accelerators.description import Accelerator, load_accelerator, parse_accelerator
from sonda.accelerators.engine_description import EngineDescription
from sonda.accelerators.engines import flexible_dense, mesh
from sonda.accelerators.hardware import Hardware
from sonda.accelerators.layer import Layer, Tile
from sonda.accelerators.memory import Memory, Traffic
from sonda.accelerators.memory_description import FIELDS, memory_presets, memory_table
from sonda.accelerators.mistake import DescriptionMistakes
from sonda.accelerators.operation import Convolution, MatrixProduct, Operation, Program, ZeroPattern
from sonda.accelerators.placement import OnHost, Placed, Placement, total
from sonda.accelerators.result import Result
from sonda.accelerators.reuse import crossings, distinct_inputs, rereading
from sonda.record.errors import SondaError

MESH = EngineDescription(
    "mesh", "mesh", Hardware(16, 4, 4, read_ports=8, write_ports=4, reduction="TEMPORALRN", accumulators=True)
)
DENSE = EngineDescription("dense", "flexible_dense", Hardware(16, read_ports=16, write_ports=16, accumulators=True))


def memory(buffer_bytes: int, **changes: object) -> Memory:
    """4 bytes per cycle in bursts of 4, rows of 64 bytes, 5 cycles of latency, 10 for a row miss."""
    plain = Memory(buffer_bytes, 4.0, latency_cycles=5, row_bytes=64, row_miss_cycles=10, burst_bytes=4)
    return replace(plain, **changes)  # type: ignore[arg-type]


def on_mesh(m: int, n: int, k: int, tile: tuple[int, int] = (4, 4)) -> tuple[MatrixProduct, dict[str, int], Result]:
    result = mesh.simulate(MESH.hardware, mesh.Product(m, n, k), mesh.MeshTile(*tile))
    return MatrixProduct(m, n, k), {"T_M": tile[0], "T_N": tile[1]}, result


def on_dense(m: int, n: int, k: int, tile: tuple[int, int, int]) -> tuple[MatrixProduct, dict[str, int], Result]:
    result = flexible_dense.simulate(DENSE.hardware, Layer.product(m, n, k), Tile.product(*tile))
    return MatrixProduct(m, n, k), dict(zip(("T_M", "T_N", "T_K"), tile, strict=True)), result


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
    result = flexible_dense.simulate(engine.hardware, Layer.product(8, 2, 6), Tile.product(2, 2, 2))
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
    assert alone == Traffic(
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
    assert found == Traffic(
        24, 4, row_hits=0, row_misses=3, stall_cycles=3 * 16 + 30 + 5, moved_read_bytes=2 * 64, moved_write_bytes=64
    )


def test_an_image_crosses_once_where_its_rows_under_a_window_stay() -> None:
    # 5 x 5, a 3 x 3 filter, 3 x 3 windows; two filters, one at a time: two passes.
    shape = Convolution(3, 3, 1, 2, 1, 1, 5, 5)
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


def direct_reads(shape: Convolution, handed: bool) -> Iterator[object]:
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
    shape = Convolution(high, wide, channels * groups, filters * groups, groups, images, x, y, stride=(stride, stride))
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
    shape = Convolution(r, s, 3, 2, 1, 2, x, y, (down, across), (top, left), (high, wide))
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


# ---- what may never happen, on all engines -------------------------------------------------------------------------

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
        return ZeroPattern.of(bits)

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
        shape = Convolution(
            r, s, channels * groups, filters * groups, groups, images, x, y, (sides[0][0], sides[1][0]),
            (sides[0][1], sides[1][1]), (1, draw(some.integers(1, 2)) if s < 3 else 1),
        )  # fmt: skip
        inputs, weights = pattern(images, channels * groups, x, y), pattern(filters * groups, channels, r, s)
        operation = Operation("convolution", "convolution", -1, shape, inputs, weights)
    try:
        found = Placement(alone(engine)).place_one(operation)
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


def traffic(placed: Placed, behind: Memory) -> Traffic:
    return traffic_of(placed.engine, placed.operation.shape, placed.mapping, placed.result, behind, placed.operation)


@settings(max_examples=300, deadline=None)
@given(placements(), memories)
def test_no_operand_crosses_more_often_than_it_is_read_or_less_than_once(placed: Placed, behind: Memory) -> None:
    found = traffic(placed, behind)
    size = behind.element_bytes
    shape = placed.operation.shape
    product = shape.product() if isinstance(shape, Convolution) else shape
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
        inputs = distinct_inputs(shape) if isinstance(shape, Convolution) else product.m * product.k * product.count
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
    patterns = ZeroPattern.of(inputs), ZeroPattern.of(weights)
    for swapped in (False, True):
        first, second = patterns[::-1] if swapped else patterns
        shape = MatrixProduct(first.shape[1], second.shape[1], 8)
        placed = Placement(alone(engine)).place_one(Operation("linear", "mm", -1, shape, first, second))
        assert isinstance(placed, Placed)
        assert placed.mapping["rows"] == ("inputs by rows" if swapped else "weights by rows")
        # 10 entries of 5 rows, each with 3 elements of the full matrix of 24.
        assert (placed.result.weight_reads, placed.result.input_reads) == (10, 30)
        for room, read in ((0, 40), (12, 37), (24, 34), (99, 34)):
            assert traffic(placed, memory(4 * room, double_buffering=False)).read_bytes == 4 * read


def full(engine: EngineDescription, m: int, n: int, k: int) -> Placed:
    patterns = ZeroPattern.of(np.ones((1, m, k), bool)), ZeroPattern.of(np.ones((1, n, k), bool))
    placed = Placement(alone(engine)).place_one(Operation("linear", "mm", -1, MatrixProduct(m, n, k), *patterns))
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


# ---- placed operations ---------------------------------------------------------------------------------------------


def test_an_unlimited_buffer_changes_nothing() -> None:
    accelerator = load_accelerator("maeri-256")
    placed = Placement(accelerator).place(Program((), (Operation("linear", "mm", -1, MatrixProduct(4, 4, 4)),), ("",)))
    assert accelerator.memory is None
    assert with_memory(placed, accelerator) is placed
    one = placed[0]
    assert isinstance(one, Placed)
    assert (one.traffic, one.cycles) == (None, one.result.cycles)


def test_traffic_is_filled_in_and_what_runs_on_the_host_stays() -> None:
    accelerator = replace(load_accelerator("tpu-16x16"), memory=memory(1 << 20))
    linear = Operation("linear", "mm", -1, MatrixProduct(20, 30, 40))
    bags = OnHost(Operation("embedding_bag", "bags", -1, MatrixProduct(1, 1, 1)), "no engine")
    placed = [*Placement(accelerator).place(Program((), (linear,), ("",))), bags]
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
    twice = total([result, result])
    for size in (0, 64, 128, 300, 10_000):
        one = traffic_of(MESH, shape, tile, result, memory(size))
        two = traffic_of(MESH, replace(shape, count=2), tile, twice, memory(size))
        assert (two.read_bytes, two.write_bytes) == (2 * one.read_bytes, 2 * one.write_bytes)


# ---- descriptions --------------------------------------------------------------------------------------------------

PLAIN = """
name = "mine"
clock_GHz = 2.0
[engines.dense]
kind = "flexible_dense"
multipliers = 256
read_ports = 128
write_ports = 128
accumulators = true
[route]
linear = "dense"
[memory]
"""
GIVEN = {"buffer_KiB": "64", "bytes_per_cycle": "16", "latency_cycles": "50", "row_bytes": "2048",
         "row_miss_cycles": "30"}  # fmt: skip


def described(fields: dict[str, str], clock: bool = True) -> Accelerator:
    text = PLAIN if clock else PLAIN.replace("clock_GHz = 2.0", "")
    return parse_accelerator(text + "\n".join(f"{key} = {value}" for key, value in fields.items()), "mine.toml")


def test_a_memory_is_read() -> None:
    assert described(GIVEN, clock=False).memory == Memory(65536, 16, 50, 2048, 30)
    more = GIVEN | {"buffer_KiB": "0.5e1", "double_buffering": "false", "element_bytes": "2", "burst_bytes": "32",
                    "banks": "8", "dram": '"hbm3"'}  # fmt: skip
    assert described(more).memory == Memory(5120, 16, 50, 2048, 30, 2, False, "hbm3", 32, 8)
    assert parse_accelerator(PLAIN.removesuffix("[memory]\n"), "mine.toml").memory is None


def test_the_example_of_the_descriptions_docstring_is_complete_and_true() -> None:
    example = textwrap.dedent((description.__doc__ or "").split("TOML file:\n")[1].split("STONNE's own")[0])
    found = parse_accelerator(example, "example.toml").memory
    assert found == Memory(512 * 1024, 16, 50, 8192, 27)
    for name in FIELDS:
        assert f"{name} = " in example


def test_a_preset_is_in_cycles_of_the_clock() -> None:
    # 256 GB/s at 2 GHz; 44 and 28 ns.
    hbm = Memory(65536, 128.0, 88, 2048, 56, dram="hbm2", burst_bytes=64, banks=128)
    assert described({"buffer_KiB": "64", "dram": '"hbm2"'}).memory == hbm
    stream = described({"buffer_KiB": "64", "dram": '"hbm2-stream"', "banks": "4"}).memory
    assert stream == replace(hbm, dram="hbm2-stream", banks=4)


def test_every_preset_has_an_energy_and_could_be_built() -> None:
    for name, preset in memory_presets().items():
        found = described({"buffer_KiB": "64", "dram": f'"{name}"'}).memory
        assert found is not None
        assert found.bytes_per_cycle == pytest.approx(preset.GB_per_s / 2)
        assert found.row_bytes % found.burst_bytes == 0
        assert preset.source
        assert preset.status in ("checked", "derived", "recalled")


@pytest.mark.parametrize(
    ("changes", "clock", "mistake"),
    [
        ({"buffer_KB": "1"}, True, "memory.buffer_KB: unknown; did you mean 'buffer_KiB'?"),
        ({"buffer_KiB": "0"}, True, "memory.buffer_KiB: 0 is not a number from 1 to"),
        ({"buffer_KiB": "nan"}, True, "memory.buffer_KiB: nan is not a number"),
        ({"buffer_KiB": "true"}, True, "memory.buffer_KiB: True is not a number"),
        ({"bytes_per_cycle": "0"}, True, "memory.bytes_per_cycle: 0 is not a number from 1e-06"),
        ({"latency_cycles": "-1"}, True, "memory.latency_cycles: -1 is not a whole number from 0"),
        ({"latency_cycles": "1.5"}, True, "memory.latency_cycles: 1.5 is not a whole number"),
        ({"row_bytes": "1000"}, True, "memory.row_bytes: 1000 is not a multiple of burst_bytes = 64"),
        ({"banks": "0"}, True, "memory.banks: 0 is not a whole number from 1 to"),
        ({"element_bytes": "64"}, True, "memory.element_bytes: 64 is not a whole number from 1 to 16"),
        ({"double_buffering": "1"}, True, "memory.double_buffering: 1 is not true or false"),
        ({"dram": '"hmb2"'}, True, "memory.dram: 'hmb2' is unknown; did you mean 'hbm2'?"),
        ({"dram": '"hbm2"', "row_miss_cycles": ""}, False, "memory.dram: 'hbm2' is in GB/s and ns; give clock_GHz, or"),
        ({"row_bytes": ""}, True, "memory.row_bytes: missing; give a whole number"),
        ({"dram": '"hbm3"', "row_bytes": ""}, True, "memory.row_bytes: missing; give a whole number"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_field(changes: dict[str, str], clock: bool, mistake: str) -> None:
    fields = {key: value for key, value in (GIVEN | changes).items() if value}
    with pytest.raises(DescriptionMistakes) as raised:
        described(fields, clock)
    assert len(raised.value.mistakes) == 1
    assert mistake in str(raised.value)


def test_a_memory_that_is_no_table_is_a_mistake() -> None:
    with pytest.raises(DescriptionMistakes, match="memory: 5 is not a table"):
        parse_accelerator("memory = 5\n" + PLAIN.removesuffix("[memory]\n"), "mine.toml")


@pytest.mark.parametrize("clock", [True, False])
@pytest.mark.parametrize(
    "fields", [GIVEN, GIVEN | {"dram": '"ddr4-2400"', "banks": "3"}, GIVEN | {"buffer_KiB": "1.5"}]
)
def test_a_memory_reads_back_from_its_table(fields: dict[str, str], clock: bool) -> None:
    accelerator = described(fields, clock)
    assert accelerator.memory is not None
    table = {key: str(value).lower() for key, value in memory_table(accelerator.memory, accelerator.clock_hz).items()}
    table = {key: f'"{value}"' if key == "dram" else value for key, value in table.items()}
    assert described(table, clock).memory == accelerator.memory


def test_what_a_preset_gives_follows_another_clock() -> None:
    accelerator = described({"buffer_KiB": "64", "dram": '"hbm2"', "banks": "4"})
    assert accelerator.memory is not None
    table = memory_table(accelerator.memory, accelerator.clock_hz)
    assert {"bytes_per_cycle", "latency_cycles"}.isdisjoint(table)
    assert (table["banks"], table["dram"], table["buffer_KiB"]) == (4, "hbm2", 64)
