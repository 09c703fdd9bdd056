"""The flexible dense engine: equal to the reference, equal to a machine stepped cycle by cycle, sane beyond both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from oracle import dense as oracle
from oracle.golden import runs
from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines.flexible_dense import simulate
from sonda.accelerators.engines.result import Result
from sonda.accelerators.operations.layer import StonneLayer, Tile
from sonda.record.errors import SondaError

DENSE = [run for run in runs() if run["mode"] in ("DenseGEMM", "FC", "CONV")]
OK = [run for run in DENSE if run["status"] == "ok"]
FAILED = [run for run in DENSE if run["status"] != "ok"]
CONVOLUTION = ("T_R", "T_S", "T_C", "T_K", "T_G", "T_N", "T_X_", "T_Y_")


def name(run: dict[str, Any]) -> str:
    return f"{run['id']}-{run['mode']}-{run['group']}"


def case(run: dict[str, Any]) -> tuple[Hardware, StonneLayer, Tile]:
    config, dims, tile = run["config"], run["dims"], run["tile"]
    if tile is None:
        parts = (part.split("=") for part in run["generated_tile"].replace("'", "_").split(", "))
        tile = {key: int(value) for key, value in parts}
    hardware = Hardware(
        multipliers=config["num_ms"],
        read_ports=config["dn_bw"],
        write_ports=config["rn_bw"],
        reduction=config["rn_type"],
        accumulators=bool(config["accumulation_buffer"]),
    )
    if run["mode"] == "CONV":
        return hardware, StonneLayer(*dims.values()), Tile(*(tile[key] for key in CONVOLUTION))
    product = StonneLayer.product(dims["M"], dims["N"], dims["K"])
    return hardware, product, Tile.product(tile["T_M"], tile["T_N"], tile["T_K"])


def accesses(result: Result | oracle.Outcome) -> tuple[int, int, int, int]:
    return result.weight_reads, result.input_reads, result.psum_reads, result.writes


@pytest.mark.parametrize("run", OK, ids=name)
def test_reference_run_is_repeated_exactly(run: dict[str, Any]) -> None:
    assert list(run["dims"]) in (["M", "N", "K"], ["R", "S", "C", "K", "G", "N", "X", "Y", "strides"])
    result = simulate(*case(run))
    memory = run["sdmemory"]
    kinds = ("weight_reads", "input_reads", "psum_reads", "psum_writes")
    assert result.cycles == run["cycles"]
    assert accesses(result) == tuple(memory[f"N_SRAM_{kind}"] for kind in kinds)
    assert result.counters == run["counters"]
    assert sum(result.stack.values()) == result.cycles
    assert min(result.stack.values()) >= 0


@pytest.mark.parametrize("run", FAILED, ids=name)
def test_run_that_the_reference_fails_is_right_or_refused_in_one_line(run: dict[str, Any]) -> None:
    if run["group"] == "strided_multiwindow_wrong":
        # The schedule is the reference's; it only fetches too few inputs: rows of a tile of w windows at stride s
        # span R + (w - 1) * s inputs, of which it reads R + w - 1.
        hardware, layer, tile = case(run)
        result = simulate(hardware, layer, tile)
        rows, columns = (layer.R + (tile.X - 1) * layer.stride), (layer.S + (tile.Y - 1) * layer.stride)
        windows = -(-layer.rows // tile.X) * -(-layer.columns // tile.Y)
        assert result.cycles == run["cycles"]
        assert result.input_reads == layer.K // tile.K * windows * layer.C * rows * columns
    else:
        with pytest.raises(SondaError) as error:
            simulate(*case(run))
        assert "\n" not in str(error.value)
        assert error.value.remedy


def test_known_example_by_hand() -> None:
    """20x128 by 128x64 in tiles (1, 64, 4) on 256 multipliers, 128 ports: two entries per port, tile and fold.

    The first activation follows 32 folds x 2 weights; the last of 20 x 32 tiles is sent 639 x 2 + 1 later and read one
    cycle after; two adders, accumulator, bus, buffer; 64 results need 7 cycles to be consumed: 6 more than one.
    """
    hardware = Hardware(multipliers=256, read_ports=128, write_ports=128, accumulators=True)
    result = simulate(hardware, StonneLayer.product(20, 64, 128), Tile.product(1, 64, 4))
    assert result.cycles == 1 + 32 * 2 + 639 * 2 + 1 + 1 + 2 + 3 + 6
    assert result.multiplications == 20 * 64 * 128
    assert accesses(result) == (64 * 128, 20 * 128, 0, 20 * 64)


@st.composite
def machines(draw: st.DrawFn, largest: int = 6) -> Hardware:
    size = draw(st.integers(1, largest))
    reduction = draw(st.sampled_from(("ASNETWORK", "ASNETWORK", "FENETWORK", "TEMPORALRN")))
    return Hardware(
        multipliers=1 << size,
        read_ports=1 << draw(st.integers(0, size)),
        write_ports=1 << draw(st.integers(0, size)),
        reduction=reduction,
        accumulators=reduction == "TEMPORALRN" or draw(st.booleans()),
    )


@st.composite
def products(draw: st.DrawFn) -> tuple[StonneLayer, Tile]:
    m, n, k = draw(st.integers(1, 20)), draw(st.integers(1, 10)), draw(st.integers(1, 20))
    tile = Tile.product(draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, k)))
    return StonneLayer.product(m, n, k), tile


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[StonneLayer, Tile]:
    r, s, groups = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 2))
    channels, filters = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    stride = draw(st.sampled_from((1, 1, 2, 3)))
    x, y, samples = r + draw(st.integers(0, 4)), s + draw(st.integers(0, 6)), draw(st.integers(1, 2))
    several = st.integers(1, 3) if stride == 1 else st.just(1)
    together = draw(st.integers(1, 2))
    tile = Tile(
        R=draw(st.integers(1, r)),
        S=draw(st.sampled_from((s, draw(st.integers(1, s))))),
        C=draw(st.integers(1, channels)),
        K=draw(st.integers(1, filters + 1)),
        G=together,
        # The reference sends inputs to wrong multipliers where a tile holds several groups and several samples.
        N=draw(st.integers(1, 2)) if together == 1 else 1,
        X=draw(several),
        Y=draw(st.sampled_from((1, draw(several)))),
    )
    return StonneLayer(r, s, groups * channels, groups * filters, groups, samples, x, y, stride), tile


def run_or_give_up(hardware: Hardware, layer: StonneLayer, tile: Tile) -> Result:
    try:
        return simulate(hardware, layer, tile)
    except SondaError:
        assume(False)
        raise


@st.composite
def batches(draw: st.DrawFn) -> tuple[StonneLayer, Tile]:
    """Samples of many blocks of filters: the first one's wait for each other, those of the others overlap."""
    sizes, filters = draw(st.tuples(*[st.integers(1, 3)] * 3)), draw(st.integers(1, 3))
    layer = StonneLayer(1, 1, sizes[0], filters * draw(st.integers(2, 6)), 1, draw(st.integers(2, 5)), *sizes[1:])
    return layer, Tile(1, 1, draw(st.integers(1, sizes[0])), filters, 1, 1, draw(st.integers(1, sizes[1])), 1)


@settings(max_examples=90, deadline=None)
@given(machines(largest=5), st.one_of(products(), convolutions(), batches()))
def test_equal_to_a_machine_stepped_cycle_by_cycle(hardware: Hardware, operation: tuple[StonneLayer, Tile]) -> None:
    layer, tile = operation
    steps = tile.folds(layer) * layer.rows * layer.columns * layer.K * layer.N // (tile.K * tile.X * tile.Y)
    assume(steps * hardware.multipliers < 6000)
    result = run_or_give_up(hardware, layer, tile)
    outcome, expected = oracle.run_layer(
        oracle.Layer(*replace(layer, C=layer.C // layer.G, K=layer.K // layer.G).__dict__.values()),
        oracle.Tile(*tile.__dict__.values()),
        multipliers=hardware.multipliers,
        read_ports=hardware.read_ports,
        write_ports=hardware.write_ports,
        reduction=hardware.reduction,
        accumulators=hardware.accumulators,
    )
    # Where blocks overlap, multipliers that wait for a neighbour may be given the next weights too early.
    assume(np.array_equal(outcome.values, expected))
    assert result.cycles == outcome.cycles
    assert accesses(result) == accesses(outcome)
    assert result.counters == outcome.counters


@settings(max_examples=200, deadline=None)
@given(machines(), st.one_of(products(), convolutions()), st.sampled_from(("read_ports", "write_ports")))
def test_more_ports_never_cost_cycles_where_nothing_flows_back(
    hardware: Hardware, operation: tuple[StonneLayer, Tile], ports: str
) -> None:
    """Not so where partial sums go through memory: arriving earlier, they can be served later in turn."""
    layer, tile = operation
    assume(getattr(hardware, ports) < hardware.multipliers and not tile.folds_through_memory(hardware, layer))
    before = run_or_give_up(hardware, layer, tile)
    after = simulate(replace(hardware, **{ports: 2 * getattr(hardware, ports)}), layer, tile)
    assert after.cycles <= before.cycles


@settings(max_examples=200, deadline=None)
@given(machines(), st.one_of(products(), convolutions()))
def test_every_result_is_accounted_for(hardware: Hardware, operation: tuple[StonneLayer, Tile]) -> None:
    layer, tile = operation
    result = run_or_give_up(hardware, layer, tile)
    useful = layer.N * layer.K * layer.rows * layer.columns * layer.R * layer.S * (layer.C // layer.G)
    assert result.multiplications >= useful
    assert result.cycles * hardware.multipliers >= result.multiplications
    assert sum(result.stack.values()) == result.cycles
    assert min(result.stack.values()) >= 0
    # Each link out of a port carries one entry per cycle.
    wires, switches = result.counters["DSNetwork"]["DN_WIRE"], result.counters["DSNetwork"].get("SWITCH", {})
    passed = 2 * switches.get("ROUTE_BROADCAST", 0) + switches.get("ROUTE_UNICAST", 0)
    assert wires["WRITE"] - passed <= result.cycles * hardware.read_ports


@settings(max_examples=100, deadline=None)
@given(machines(), products(), st.integers(2, 5))
def test_blocks_of_filters_that_wait_for_each_other_take_equal_time(
    hardware: Hardware, operation: tuple[StonneLayer, Tile], times: int
) -> None:
    layer, tile = operation
    assume(layer.rows % tile.X == 0 and not tile.folds_through_memory(hardware, layer))
    once = run_or_give_up(hardware, replace(layer, K=tile.K), tile)
    often = simulate(hardware, replace(layer, K=times * tile.K), tile)
    assert often.cycles == times * once.cycles


def test_time_does_not_depend_on_the_number_of_equal_windows() -> None:
    """A long stream repeats: equal numbers of windows cost equal cycles, even while the bus falls further behind."""
    hardware = Hardware(multipliers=64, read_ports=64, write_ports=2, accumulators=True)
    tile = Tile.product(1, 16, 4)
    short, longer, long = (
        simulate(hardware, StonneLayer.product(m, 16, 4), tile).cycles for m in (1_000, 2_000, 1_000_000)
    )
    assert long - short == (longer - short) * 999


@pytest.mark.parametrize("ports", [(64, 64), (16, 64), (16, 8), (8, 2), (64, 4)])
def test_time_does_not_depend_on_the_number_of_equal_samples(ports: tuple[int, int]) -> None:
    """Blocks of later samples follow each other without waiting, so from some sample on each takes as long."""
    hardware = Hardware(64, 0, 0, *ports, accumulators=True)
    tile = Tile(1, 1, 3, 20, 1, 1, 1, 1)
    short, longer, long = (
        simulate(hardware, StonneLayer(1, 1, 12, 60, 1, samples, 3, 2), tile).cycles for samples in (50, 60, 10_050)
    )
    assert long - short == (longer - short) * 1000


@pytest.mark.parametrize(
    ("layer", "tile", "hardware", "named"),
    [
        (StonneLayer.product(0, 4, 4), Tile.product(1, 1, 2), Hardware(), "X = 0"),
        (StonneLayer.product(4, 4, 1 << 40), Tile.product(1, 1, 2), Hardware(), f"S = {1 << 40}"),
        (StonneLayer.product(1 << 30, 1 << 30, 1 << 30), Tile.product(1, 1, 2), Hardware(), "products"),
        (StonneLayer(3, 3, 4, 6, 4, 1, 8, 8), Tile(3, 3, 1, 1, 1, 1, 1, 1), Hardware(), "K = 6"),
        (StonneLayer(3, 3, 4, 4, 1, 1, 2, 8), Tile(3, 3, 1, 1, 1, 1, 1, 1), Hardware(), "R = 3"),
        (StonneLayer.product(4, 4, 4), Tile.product(1, -1, 2), Hardware(), "T_K = -1"),
        (StonneLayer.product(4, 4, 4), Tile.product(8, 4, 4), Hardware(), "128 multipliers"),
        (StonneLayer.product(4, 4, 4), Tile.product(1, 1, 4), Hardware(read_ports=12), "read_ports = 12"),
        (
            StonneLayer.product(4, 4, 4),
            Tile.product(1, 1, 1),
            Hardware(1, read_ports=1, write_ports=1),
            "multipliers = 1",
        ),
        (StonneLayer.product(4, 4, 4), Tile.product(1, 1, 4), Hardware(reduction="TREE"), "'TREE'"),
    ],
)
def test_mistakes_are_named(layer: StonneLayer, tile: Tile, hardware: Hardware, named: str) -> None:
    with pytest.raises(SondaError, match=named):
        simulate(hardware, layer, tile)
