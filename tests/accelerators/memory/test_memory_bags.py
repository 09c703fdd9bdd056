"""Embedding tables behind a finite buffer: real streams against a buffer that is simulated lookup by lookup."""

from __future__ import annotations

import gc
from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as some

from sonda.accelerators.description.accelerator import Accelerator, load_accelerator
from sonda.accelerators.description.engine import EngineDescription
from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines.kinds import compressed_row
from sonda.accelerators.mapping.placement import Placed, Placement
from sonda.accelerators.memory import lookups as streams
from sonda.accelerators.memory.hierarchy import Memory, MemoryTraffic, Sizes
from sonda.accelerators.memory.lookups import RowStream
from sonda.accelerators.memory.reuse import Accesses
from sonda.accelerators.memory.traffic import traffic_of
from sonda.accelerators.operations.program import Bags, Operation
from sonda.record.errors import SondaError
from sonda.workloads.networks.dlrm_draws import DlrmStream

ROWS = EngineDescription(
    "rows", "compressed_row", Hardware(16, read_ports=16, write_ports=16, accumulators=True), tile={"T_N": 8, "T_K": 2}
)
KINDS = {
    "by columns": replace(ROWS, tile={"T_N": 1, "T_K": 4}),
    "whole rows": ROWS,
    "bitmaps": EngineDescription("bitmaps", "bitmap_sparse", Hardware(16, read_ports=8, write_ports=8)),
    "table stays": EngineDescription(
        "stays", "bitmap_sparse", Hardware(16, read_ports=8, write_ports=8), {"embedding_bag": "MK_STR_KN_STA"}
    ),
    "outer": EngineDescription("outer", "outer_product", Hardware(16, read_ports=16, write_ports=8)),
    "gustavson": EngineDescription("gustavson", "gustavson", Hardware(16, read_ports=16, write_ports=8)),
}


def memory(buffer_bytes: int, **changes: object) -> Memory:
    """4 bytes per cycle in bursts of 4, rows of 64 bytes, 5 cycles of latency, 10 for a row miss; nothing overlaps."""
    plain = Memory(buffer_bytes, 4.0, 5, 64, 10, burst_bytes=4, double_buffering=False)
    return replace(plain, **changes)  # type: ignore[arg-type]


def placed(engine: EngineDescription, bags: Bags) -> Placed:
    accelerator = Accelerator("test", None, {engine.name: engine}, {"embedding_bag": engine.name}, "45nm")
    found = Placement(accelerator).place_operation(Operation("embedding_bag", "_embedding_bag", -1, bags))
    assert isinstance(found, Placed)
    return found


def traffic(one: Placed, behind: Memory) -> MemoryTraffic:
    return traffic_of(one.engine, one.operation.shape, one.mapping, one.result, behind)


def bags_of(*lists: list[int], rows: int = 100, columns: int = 8) -> Bags:
    sizes = np.array([len(one) for one in lists])
    return Bags(sizes, np.array([row for one in lists for row in one], np.int64), rows, columns)


def lookups(draws: np.random.RandomState, count: int, rows: int, skewed: bool) -> np.ndarray:
    """Uniform, as DLRM draws them, or by Zipf's law, as people click."""
    if skewed:
        return (draws.zipf(1.3, count) - 1) % rows
    return draws.randint(0, rows, count)


# ---- an independent buffer -----------------------------------------------------------------------------------------


def walked(rows: list[int], held: int) -> list[bool]:
    """Whether each lookup misses a buffer that drops what was used longest ago."""
    buffer: OrderedDict[int, None] = OrderedDict()
    missed = []
    for row in rows:
        missed.append(row not in buffer)
        buffer.pop(row, None)
        buffer[row] = None
        if len(buffer) > held:
            buffer.popitem(last=False)
    return missed


def bursts(rows: list[int], size: int, behind: Memory) -> tuple[int, int]:
    """Accesses and row misses of fetching these rows of `size` bytes, burst by burst."""
    accesses = misses = 0
    opened = None
    for row in rows:
        first, last = row * size // behind.burst_bytes, (row * size + size - 1) // behind.burst_bytes
        for burst in range(first, last + 1):
            accesses += 1
            at = burst * behind.burst_bytes // behind.row_bytes
            misses += at != opened
            opened = at
    return accesses, misses


@settings(max_examples=150, deadline=None)
@given(
    some.integers(0, 1 << 31), some.integers(1, 300), some.sampled_from([3, 40, 10**12]), some.booleans(),
    some.integers(0, 60),
)  # fmt: skip
def test_distances_tell_what_a_buffer_of_any_size_misses(
    seed: int, count: int, rows: int, skewed: bool, held: int
) -> None:
    drawn = lookups(np.random.RandomState(seed), count, rows, skewed)
    stream = RowStream(drawn, np.ones(count, np.int64))
    one_byte = Sizes(1, 1, 1, 1)
    found = stream.fetches(one_byte, held, 1, 1)
    assert found.cold + found.again == sum(walked(drawn.tolist(), held))
    assert stream.fetches(one_byte, 1 << 60, 1, 1)[:2] == (len(set(drawn.tolist())), 0)


@settings(max_examples=150, deadline=None)
@given(
    some.integers(0, 1 << 31), some.integers(1, 200), some.sampled_from([5, 60, 10**9]), some.booleans(),
    some.integers(1, 40), some.sampled_from([(4, 64), (32, 128), (64, 256), (64, 8192)]), some.integers(0, 8000),
    some.sampled_from([1, 2, 4]),
)  # fmt: skip
def test_accesses_and_open_rows_burst_by_burst(
    seed: int, count: int, rows: int, skewed: bool, columns: int, sizes: tuple[int, int], room: int, element: int
) -> None:
    drawn = lookups(np.random.RandomState(seed), count, rows, skewed)
    behind = memory(0, burst_bytes=sizes[0], row_bytes=sizes[1], element_bytes=element)
    found = RowStream(drawn, np.full(count, count)).fetches(behind.sizes, room, columns, columns)
    missed = walked(drawn.tolist(), room // (columns * element))
    fetched = [row for row, miss in zip(drawn.tolist(), missed, strict=True) if miss]
    assert (found.cold, found.again) == (len(set(fetched)), len(fetched) - len(set(fetched)))
    assert (found.accesses, found.row_misses) == bursts(fetched, columns * element, behind)


# ---- hand counts -------------------------------------------------------------------------------------------------


def test_a_stream_by_hand() -> None:
    # Rows of 32 bytes, two to a row of the memory. 1 and 2 come again, with one and with two others between.
    bags = bags_of([1, 2], [1, 3], [2, 4])
    one = placed(ROWS, bags)
    assert (one.result.weight_reads, one.result.input_reads, one.result.writes) == (6, 48, 24)
    # Nothing stays: six rows of 8 accesses, of which only 2 after 3 finds its neighbour's row of the memory open.
    none = traffic(one, memory(0))
    assert (none.cold_misses, none.capacity_misses) == (4, 2)
    assert (none.read_bytes, none.write_bytes) == (4 * (6 + 48), 4 * 24)
    # 1, 2, 1, 3, 2, 4 lie in rows 0, 1, 0, 1, 1, 2; beside them 24 bytes of indices and 96 of results: 1 + 2 rows.
    assert none.row_misses == 5 + 1 + 2
    assert none.row_hits == 6 * 8 + 6 + 24 - none.row_misses
    two = traffic(one, memory(2 * 32))
    assert (two.cold_misses, two.capacity_misses, two.read_bytes) == (4, 1, 4 * (6 + 40))
    # 1, 2, 3, 2, 4: rows 0, 1, 1, 1, 2. 184 bytes fill 64 three times.
    assert two.row_misses == 3 + 1 + 2
    assert two.stall_cycles == 3 * 5 + (5 * 8 + 6 + 24) + 10 * two.row_misses
    three = traffic(one, memory(3 * 32))
    assert (three.cold_misses, three.capacity_misses, three.read_bytes) == (4, 0, 4 * (6 + 32))


def test_rows_taken_column_by_column_come_in_pieces_where_a_bag_does_not_fit() -> None:
    engine = replace(ROWS, tile={"T_N": 2, "T_K": 4})
    bags = bags_of([0, 9, 20], [40])
    behind = memory(2 * 32, burst_bytes=16)
    found = traffic(placed(engine, bags), behind)
    # Three rows in four pieces of 8 bytes, each a burst; the fourth, alone in its bag, whole: two bursts. All in other
    # rows of the memory. Indices (16 bytes) and results (64) are 1 + 4 bursts in 1 + 1 rows.
    assert found.row_hits + found.row_misses == 12 + 2 + 5
    assert found.row_misses == 12 + 1 + 2
    assert found.read_bytes == 4 * (4 + 32)
    fits = traffic(placed(engine, bags), memory(3 * 32, burst_bytes=16))
    assert fits.row_hits + fits.row_misses == 8 + 5
    assert fits.read_bytes == found.read_bytes


@settings(max_examples=100, deadline=None)
@given(
    some.lists(some.integers(0, 500), min_size=1, max_size=30), some.integers(2, 70), some.integers(1, 40),
    some.sampled_from([(4, 64), (32, 128), (64, 256), (64, 8192)]),
)  # fmt: skip
def test_pieces_burst_by_burst(rows: list[int], columns: int, at_once: int, sizes: tuple[int, int]) -> None:
    behind = memory(0, burst_bytes=sizes[0], row_bytes=sizes[1])
    found = RowStream(np.array(rows, np.int64), np.full(len(rows), 100)).fetches(behind.sizes, 0, columns, at_once)
    moved = 0
    for row in rows:
        for first in range(0, columns, at_once):
            begin = 4 * (row * columns + first)
            end = 4 * (row * columns + min(first + at_once, columns))
            moved += len({place // sizes[0] for place in range(begin, end)})
    assert found.accesses == moved


def test_rows_that_come_whole_never_move_more_than_rows_in_pieces() -> None:
    # A row of 63 elements that begins 4 bytes before the end of a burst touches five bursts; of four pieces of 16
    # elements or less, each touches two.
    engine = replace(ROWS, hardware=replace(ROWS.hardware, multipliers=32), tile={"T_N": 16, "T_K": 2})
    bags = bags_of([1, 17], columns=63)
    one = placed(engine, bags)
    pieces, whole = (traffic(one, memory(size, burst_bytes=64, row_bytes=8192)) for size in (0, 1 << 20))
    # And two indices, in one burst.
    assert whole.moved_read_bytes == 64 * (5 + 5 + 1)
    assert pieces.moved_read_bytes == 64 * (8 + 8 + 1)
    assert whole.read_bytes == pieces.read_bytes == 4 * (2 * 63 + 2)


def test_the_outer_product_goes_over_the_table_once() -> None:
    bags = bags_of([1, 2, 3], [3, 4, 5], [1, 5, 6])
    one = placed(KINDS["outer"], bags)
    # One row of the table, and the products that wait: three bags of three rows of 8 elements.
    assert one.result.writes == 72
    found = traffic(one, memory(4 * 72 + 32))
    assert (found.cold_misses, found.capacity_misses) == (6, 0)
    assert (found.read_bytes, found.write_bytes) == (4 * (9 + 6 * 8), 4 * 24)
    nothing = traffic(one, memory(0))
    assert (nothing.read_bytes, nothing.write_bytes) == (4 * (9 + 72 + 72), 4 * (72 + 24))


def test_gustavsons_order_keeps_what_one_bag_leaves() -> None:
    # A bag of 40 in pieces of 16 leaves 3 x 8 elements, which are merged again.
    one = placed(KINDS["gustavson"], bags_of(list(range(40))))
    assert (one.result.psum_reads, one.result.writes) == (24, 24)
    nothing, half, all_of_them = (traffic(one, memory(4 * kept)) for kept in (0, 12, 24))
    assert (nothing.read_bytes, nothing.write_bytes) == (4 * (40 + 320 + 24), 4 * (24 + 8))
    assert (half.read_bytes, half.write_bytes) == (4 * (40 + 320 + 12), 4 * (12 + 8))
    assert (all_of_them.read_bytes, all_of_them.write_bytes) == (4 * (40 + 320), 4 * 8)


def test_a_table_that_stays_in_the_multipliers_comes_whole() -> None:
    one = placed(KINDS["table stays"], bags_of([1, 2, 3], [3, 4, 5], rows=10))
    assert traffic(one, memory(1 << 20)).read_bytes == 4 * (80 + 6)


# ---- DLRM's streams ------------------------------------------------------------------------------------------------


def test_dlrms_largest_stream_hardly_comes_back_to_a_row() -> None:
    """50 tables of 10 M rows, 80 samples, up to 1000 lookups: 2,026,469 lookups of 2,022,287 distinct rows."""
    batch = next(DlrmStream((10_000_000,) * 50, 128, 80, 80, 1000).batches())
    engine = load_accelerator("dlrm-hybrid").engines["embeddings"]
    lookups = cold = least = 0
    for sizes, indices in zip(batch.sizes, batch.indices, strict=True):
        bags = Bags(sizes, indices, 10_000_000, 32)
        table = engine.simulator.reuse(engine, bags, {"T_N": 32}, Accesses(0, 0, 0, 0), None).table
        assert table is not None
        stream = table.stream
        whole = stream.fetches(Memory(1 << 30, 16, 50, 8192, 27).sizes, 1 << 30, 32, 32)
        lookups += len(indices)
        cold += whole.cold
        least += whole.cold + whole.again
        # A row of 32 words is two bursts of 64 bytes, in one row of the memory.
        assert whole.accesses == 2 * whole.cold
    assert (lookups, cold, least) == (2_026_469, 2_022_287, 2_022_287)


def test_skewed_lookups_find_what_uniform_ones_do_not() -> None:
    draws = np.random.RandomState(1)
    missed = {}
    for skewed in (False, True):
        drawn = lookups(draws, 5000, 1_000_000, skewed)
        bags = Bags(np.full(50, 100), drawn, 1_000_000, 8)
        found = traffic(placed(ROWS, bags), memory(32 * 1024))
        assert found.cold_misses + found.capacity_misses == sum(walked(drawn.tolist(), 1024))
        missed[skewed] = found.cold_misses + found.capacity_misses
    assert missed[True] < missed[False] / 2


# ---- what may never happen -----------------------------------------------------------------------------------------


@some.composite
def bag_lists(draw: some.DrawFn) -> Bags:
    draws = np.random.RandomState(draw(some.integers(0, 1 << 31)))
    sizes = np.array(draw(some.lists(some.integers(1, 40), min_size=1, max_size=12)))
    rows = draw(some.sampled_from([41, 100, 3000]))
    skewed = draw(some.booleans())
    indices = np.concatenate([np.sort(lookups(draws, size, rows, skewed)) for size in sizes])
    return Bags(sizes, indices, rows, draw(some.integers(1, 20)))


memories = some.builds(
    Memory,
    buffer_bytes=some.integers(1, 20_000),
    bytes_per_cycle=some.sampled_from([0.3, 7.5, 64.0]),
    latency_cycles=some.integers(0, 200),
    row_bytes=some.sampled_from([64, 1024]),
    row_miss_cycles=some.integers(0, 50),
    double_buffering=some.booleans(),
    burst_bytes=some.sampled_from([4, 64]),
    banks=some.sampled_from([1, 16]),
)


@settings(max_examples=250, deadline=None)
@given(some.sampled_from(list(KINDS)), bag_lists(), memories, some.integers(0, 20_000))
def test_bounds_and_directions(kind: str, bags: Bags, behind: Memory, bytes_more: int) -> None:
    try:
        one = placed(KINDS[kind], bags)
    except SondaError:
        assume(False)
    found = traffic(one, behind)
    merging = kind in ("outer", "gustavson")
    results = 4 * len(bags.sizes) * bags.columns
    distinct = len(np.unique(bags.indices))
    assert found.read_bytes <= 4 * one.result.reads
    assert results <= found.write_bytes <= 4 * one.result.writes + merging * results
    assert found.row_hits >= 0
    assert found.stall_cycles >= 0
    assert found.read_bytes >= 4 * distinct * bags.columns
    if kind != "table stays":
        assert found.cold_misses == distinct
        assert found.capacity_misses <= len(bags.indices) - distinct
    busy = (found.read_bytes + found.write_bytes) / behind.bytes_per_cycle + behind.latency_cycles
    assert one.result.cycles + found.stall_cycles >= busy

    larger = traffic(one, replace(behind, buffer_bytes=behind.buffer_bytes + bytes_more))
    for name in (
        "read_bytes", "write_bytes", "moved_read_bytes", "moved_write_bytes", "capacity_misses", "row_misses",
        "stall_cycles",
    ):  # fmt: skip
        assert getattr(larger, name) <= getattr(found, name), name
    assert larger.row_hits + larger.row_misses <= found.row_hits + found.row_misses
    faster = traffic(one, replace(behind, bytes_per_cycle=2 * behind.bytes_per_cycle))
    assert faster == replace(found, stall_cycles=faster.stall_cycles)
    assert faster.stall_cycles <= found.stall_cycles
    nearer = traffic(one, replace(behind, latency_cycles=behind.latency_cycles // 2))
    assert nearer.stall_cycles <= found.stall_cycles


def test_nothing_grows_with_the_table() -> None:
    bags = bags_of([1, 2, 3], [3, 4, 10**15], rows=10**15 + 1)
    one = placed(ROWS, bags)
    assert traffic(one, memory(1 << 20)).cold_misses == 5


def test_a_stream_is_followed_once_and_forgotten_with_its_bags(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    follow = streams.RowStream
    monkeypatch.setattr(compressed_row, "RowStream", lambda *given: made.append(1) or follow(*given))
    gc.collect()  # what other tests left in cycles is not counted
    before = len(streams._KNOWN)
    bags = bags_of([1, 2], [2, 3])
    one = placed(ROWS, bags)
    sizes = [traffic(one, memory(size)).read_bytes for size in (0, 32, 64, 1 << 20)]
    assert sizes == sorted(sizes, reverse=True)
    assert len(made) == 1
    assert len(streams._KNOWN) == before + 1
    del one, bags
    gc.collect()
    assert len(streams._KNOWN) == before


def test_empty_bags_fetch_nothing() -> None:
    bags = bags_of([], [7], [])
    found = traffic(placed(ROWS, bags), memory(1 << 20))
    assert found.cold_misses == 1
    assert found.write_bytes == 4 * 3 * 8
