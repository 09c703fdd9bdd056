"""SCALE-Sim's formulas against what SCALE-Sim printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sonda.accelerators.engines.mesh import MeshTile, Product, simulate
from sonda.accelerators.hardware import Hardware
from sonda.accelerators.scalesim import scale_sim
from sonda.record.errors import SondaError

DOCUMENT = json.loads((Path(__file__).parent / "data" / "scalesim" / "runs.json").read_text(encoding="utf-8"))


def products(name: str) -> list[tuple[int, int, int]]:
    """(M, N, K) of the layers of an input."""
    given = DOCUMENT["inputs"][name]
    if "gemm" in given:
        return [(m, n, k) for _, m, n, k in given["gemm"]]
    sizes = []
    for _, height, width, filter_height, filter_width, channels, filters, stride in given["conv"]:
        rows = -(-(height - filter_height + stride) // stride)
        columns = -(-(width - filter_width + stride) // stride)
        sizes.append((rows * columns, filters, filter_height * filter_width * channels))
    return sizes


@pytest.mark.parametrize("run", DOCUMENT["runs"], ids=lambda run: f"{run['input']}-{run['dataflow']}-{run['mode']}")
def test_every_printed_figure_is_reproduced(run: dict) -> None:
    layers = [dict(zip(DOCUMENT["layer_columns"], layer, strict=True)) for layer in run["layers"]]
    shapes = products(run["input"])
    assert len(layers) == len(shapes)
    for layer, (m, n, k) in zip(layers, shapes, strict=True):
        ours = scale_sim(run["dataflow"], *run["array"], m, n, k)
        # Where bandwidth is limited, SCALE-Sim adds the cycles it stalled.
        assert ours.cycles + layer["stall_cycles"] == layer["cycles"]
        assert ours.input_reads == layer["sram_ifmap_reads"]
        assert ours.filter_reads == layer["sram_filter_reads"]
        assert ours.output_writes == layer["sram_ofmap_writes"]
        if not layer["stall_cycles"]:
            assert 100 * ours.utilisation == pytest.approx(layer["utilisation_pct"], abs=0.0006)


def test_all_runs_are_there() -> None:
    assert sum(len(run["layers"]) for run in DOCUMENT["runs"]) == 107 + 60 + 3
    assert {run["dataflow"] for run in DOCUMENT["runs"]} == {"os", "ws", "is"}


def test_the_four_square_products() -> None:
    # Published figures of the table of SCALE-Sim's cost: 1 503 / 10 111 / 73 215 / 555 007.
    assert [scale_sim("os", 16, 16, side, side, side).cycles for side in (64, 128, 256, 512)] == [
        1503,
        10111,
        73215,
        555007,
    ]


def test_a_product_counted_by_hand() -> None:
    # 3 x 2 by 2 x 3 on 2 x 2, outputs stationary: 2 x 2 folds of 2 + 2 + 2 - 2 cycles, less the last.
    ours = scale_sim("os", 2, 2, 3, 3, 2)
    assert ours.cycles == 4 * 4 - 1
    assert (ours.input_reads, ours.filter_reads, ours.output_writes) == (3 * 2 * 2, 2 * 3 * 2, 9 + 4 * 4)
    assert ours.mapping_efficiency == pytest.approx(9 / 16)
    assert ours.utilisation == pytest.approx(18 / (4 * 15))


def test_mesh_and_scale_sim_agree_but_for_configuring_and_writing_back() -> None:
    # 256 cubed on 16 x 16 with all ports: per tile the mesh adds what SCALE-Sim leaves out, and nothing that grows.
    hardware = Hardware(256, 16, 16, 32, 256, "TEMPORALRN", True, "TPU_OS_DENSE")
    small, large = (
        [simulate(hardware, Product(side, side, k), MeshTile(16, 16)).cycles
         - scale_sim("os", 16, 16, side, side, k).cycles for k in (256, 4096)]
        for side in (16, 256)
    )  # fmt: skip
    assert small[0] == small[1]
    # 256 tiles instead of 1; SCALE-Sim's missing cycle is one in all.
    assert large == [256 * (small[0] - 1) + 1] * 2


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (("so", 16, 16, 1, 1, 1), "dataflow 'so' is unknown; known: is, os, ws"),
        (("os", 0, 16, 1, 1, 1), "rows = 0"),
        (("os", 16, -1, 1, 1, 1), "columns = -1"),
        (("ws", 16, 16, 1 << 41, 1, 1), "M = "),
        (("is", 16, 16, 1, 2.0, 1), "N = 2.0"),
    ],
)
def test_mistakes_name_the_field(given: tuple, word: str) -> None:
    with pytest.raises(SondaError) as caught:
        scale_sim(*given)
    assert word in str(caught.value)
