"""The output-stationary mesh: against counts by hand, the cycle-by-cycle oracle and the reference's runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle import golden
from oracle import mesh as oracle
from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines.mesh import MeshTile, Product, simulate
from sonda.record.errors import SondaError


def mesh(side: int, **changed: int) -> Hardware:
    ports = {"read_ports": 2 * side, "write_ports": side * side, "multipliers": side * side, **changed}
    return Hardware(
        rows=side, columns=side, controller="TPU_OS_DENSE", reduction="TEMPORALRN", accumulators=True, **ports
    )


def test_one_element_takes_a_cycle_per_product_and_four_around_them() -> None:
    # Configured in 1; operands arrive and are multiplied in 2, 3, 4; the sum is at the bus in 6, in the buffer in 7.
    result = simulate(mesh(1), Product(1, 1, 3), MeshTile(1, 1))
    assert result.cycles == 7
    assert result.stack == {"configuration": 1, "compute": 3, "distribution": 0, "reduction": 2, "writeback": 1}


def test_the_published_example_takes_18_cycles() -> None:
    # Two tiles, of 4 x 2 and 1 x 2 outputs: K + rows + columns + 2 is 10 and 7; the burst of the first takes one more.
    result = simulate(mesh(4), Product(5, 2, 2), MeshTile(4, 4))
    assert result.cycles == 18
    assert (result.weight_reads, result.input_reads, result.writes) == (8, 10, 10)


def test_a_single_read_port_sends_every_operand_of_a_step_one_after_the_other() -> None:
    # 2 x 2 outputs: 4 operands a step, from cycle 2 on: weights in places 0 and 1, activations in 2 and 3, and a cycle
    # through the tree. The last activation is at element (1, 0) in cycle 2 + 4 (K - 1) + 3 + 1, then at (1, 1).
    k = 5
    result = simulate(mesh(2, read_ports=1), Product(2, 2, k), MeshTile(2, 2))
    last_product = 2 + 4 * (k - 1) + 3 + 1 + 1
    assert result.stack["configuration"] + result.stack["compute"] + result.stack["distribution"] == last_product


def test_one_bus_line_delivers_results_one_by_one() -> None:
    many, one = (simulate(mesh(4, write_ports=lines), Product(4, 4, 1), MeshTile(4, 4)) for lines in (16, 1))
    # The first of 16 results is offered in cycle 4 and the line is never idle after that; the buffer sees it a cycle
    # later.
    assert one.cycles == 4 + 15 + 1
    assert many.cycles < one.cycles


@settings(max_examples=60, deadline=None)
@given(
    side=st.sampled_from([1, 2, 4]),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 7)),
    ports=st.tuples(st.integers(0, 3), st.integers(0, 4)),
    tile=st.tuples(st.integers(1, 4), st.integers(1, 4)),
)
def test_every_number_is_the_oracles(
    side: int, sizes: tuple[int, int, int], ports: tuple[int, int], tile: tuple[int, int]
) -> None:
    m, n, k = sizes
    read, write = min(1 << ports[0], 2 * side), min(1 << ports[1], side * side)
    rows, columns = min(tile[0], side), min(tile[1], side)
    result = simulate(mesh(side, read_ports=read, write_ports=write), Product(m, n, k), MeshTile(rows, columns))
    outcome, _ = oracle.run(
        rows=side,
        columns=side,
        read_ports=read,
        write_ports=write,
        multipliers=side * side,
        T_M=rows,
        T_N=columns,
        M=m,
        N=n,
        K=k,
    )
    assert golden.differences(golden.summary(result), golden.summary(outcome)) == {}
    assert sum(result.stack.values()) == result.cycles
    assert min(result.stack.values()) >= 0


@pytest.mark.parametrize(
    "run",
    [run for run in golden.runs() if run["mode"] == "TPU" and run["status"] == "ok"],
    ids=lambda run: str(run["id"]),
)
def test_every_number_is_the_references(run: dict[str, Any]) -> None:
    config, dims, tile = run["config"], run["dims"], run["tile"]
    hardware = Hardware(
        multipliers=config.get("num_ms", 64),
        rows=config["ms_rows"],
        columns=config["ms_cols"],
        read_ports=config["dn_bw"],
        write_ports=config["rn_bw"],
    )
    result = simulate(hardware, Product(dims["M"], dims["N"], dims["K"]), MeshTile(tile["T_M"], tile["T_N"]))
    assert golden.differences(golden.summary(result), golden.record(run)) == {}


@pytest.mark.parametrize(
    ("hardware", "product", "tile", "said"),
    [
        (mesh(4), Product(4, 4, 4), MeshTile(5, 4), "T_M = 5 does not fit the mesh's 4"),
        (mesh(4), Product(4, 4, 4), MeshTile(4, 0), "T_N = 0"),
        (mesh(4), Product(4, -4, 4), MeshTile(4, 4), "N = -4"),
        (mesh(4, read_ports=16), Product(4, 4, 4), MeshTile(4, 4), "read_ports = 16"),
        (mesh(16, write_ports=16, multipliers=64), Product(4, 4, 4), MeshTile(4, 4), "set multipliers = 256"),
        (Hardware(), Product(4, 4, 4), MeshTile(1, 1), "is not a mesh"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(hardware: Hardware, product: Product, tile: MeshTile, said: str) -> None:
    with pytest.raises(SondaError) as caught:
        simulate(hardware, product, tile)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_large_layer_is_not_stepped() -> None:
    # 10^12 products; the cycles of all full tiles are alike.
    result = simulate(mesh(128), Product(10_000, 10_000, 10_000), MeshTile(128, 128))
    assert result.multiplications == 10**12
    assert result.cycles > 10**12 // 128**2
