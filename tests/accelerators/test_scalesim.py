"""SCALE-Sim's formulas against what SCALE-Sim printed, and the mesh against the formulas."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from command_line import run_command
from places import DATA
from sonda.accelerators.description.accelerator import load_accelerator
from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.description.settings import with_settings
from sonda.accelerators.engines.mesh import MeshTile, Product, simulate
from sonda.accelerators.formats import scalesim as scalesim_check
from sonda.accelerators.formats.scalesim import products_program, scale_sim, verify_scalesim
from sonda.accelerators.operations.program import Call, ConvolutionShape, ModelProgram, Operation
from sonda.record.errors import SondaError
from sonda.report.blocks import Paragraph
from sonda.report.views.verification import scalesim_blocks

DOCUMENT = json.loads((DATA / "scalesim" / "runs.json").read_text(encoding="utf-8"))


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


# ---- the mesh, layer by layer ------------------------------------------------------------------------------------


def test_a_layer_is_taken_apart_by_hand() -> None:
    # 20 x 3 by 3 x 5 on 16 x 16: folds of 16 and of 4 rows, both of 5 columns. SCALE-Sim: 2 x (3 + 30) - 1; the borders
    # leave 11 columns idle twice and 12 rows once.
    (layer,) = verify_scalesim(load_accelerator("tpu-16x16"), products_program([("one", 20, 5, 3)])).layers
    assert (layer.scalesim_cycles, layer.last_cycles, layer.borders) == (65, 1, 2 * 11 + 12)
    assert (layer.configuration, layer.reduction) == (2, 2 * 2)
    assert layer.cycles == 65 + 1 - 34 + 2 + 4 + layer.writeback
    assert layer.differences == {}


@pytest.mark.parametrize(
    "settings", ["", "rows,columns,read_ports=8:8:16", "rows,columns=24:8 write_ports=16", "rows=1 columns=31"]
)
def test_the_mesh_agrees_whatever_its_sides(settings: str) -> None:
    report = verify_scalesim(with_settings(load_accelerator("tpu-16x16"), settings), products_program())
    assert (report.exact, report.exit_status) == (len(report.layers), 0) == (9, 0)


@pytest.mark.parametrize("name", sorted({run["input"] for run in DOCUMENT["runs"]}))
def test_the_mesh_agrees_on_the_layers_that_scale_sim_ran(name: str) -> None:
    layers = [(str(place), *sizes) for place, sizes in enumerate(products(name))]
    report = verify_scalesim(load_accelerator("tpu-128x128"), products_program(layers))
    assert report.exit_status == 0
    assert sum(layer.times for layer in report.layers) == len(layers)


def test_groups_and_repeated_layers_count_as_often_as_they_run() -> None:
    shape = ConvolutionShape(R=3, S=3, C=8, K=12, G=4, N=2, X=6, Y=6, padding=(1, 1))
    one = Operation("convolution", "convolution", 0, shape)
    program = ModelProgram((Call("conv", "Conv2d", 0, -1, 0),), (one, one), ("forward",) * 2)
    (layer,) = verify_scalesim(load_accelerator("tpu-16x16"), program).layers
    # Two samples of 6 x 6 outputs, 3 filters a group, 2 channels a group x 3 x 3 taps; 4 groups, twice.
    assert (layer.layer, layer.M, layer.N, layer.K, layer.times) == ("conv", 72, 3, 18, 8)
    assert layer.scalesim_cycles == 8 * scale_sim("os", 16, 16, 72, 3, 18).cycles
    assert layer.differences == {}


def test_a_mesh_that_counts_otherwise_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def slower(*given: object) -> object:
        right = scale_sim(*given)  # type: ignore[arg-type]
        return replace(right, cycles=right.cycles - (given[-1] == 131), input_reads=right.input_reads + 1)

    monkeypatch.setattr(scalesim_check, "scale_sim", slower)
    done = run_command(tmp_path, "verify", "scalesim", "--json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert (document["total"], document["exact"]) == (9, 0)
    differing = {one["layer"]: one["differences"] for one in document["layers"]}
    # 13 x 5 folds of K + 30 cycles, of which SCALE-Sim would print one less.
    cycles = {"expected": 13 * 5 * (131 + 30) - 1 - 224, "found": 13 * 5 * (131 + 30) - 224}
    assert differing["borders"]["cycles until the last product"] == cycles
    assert set(differing["square 64"]) == {"input reads"}
    screen = run_command(tmp_path, "verify", "scalesim")
    assert screen.returncode == 1
    assert "0 of 9 layers agree" in screen.stdout
    assert "borders: cycles until the last product: the mesh has 10,241, SCALE-Sim's formula 10,240" in " ".join(
        screen.stdout.split()
    )


def test_from_the_command_line(tmp_path: Path) -> None:
    done = run_command(tmp_path, "verify", "scalesim", "dlrm", "--batch", "4", "--on", "sim:dlrm-hybrid-tpu")
    assert done.returncode == 0, done.stderr
    words = " ".join(done.stdout.split())
    assert words.startswith("On dlrm-hybrid-tpu (16 x 16, output stationary) the mesh takes ")
    assert words.index("corrected for") < words.index("layers agree in every number")
    assert "on no mesh, so not compared" in done.stdout
    few = run_command(tmp_path, "verify", "scalesim", "--set", "read_ports=16")
    assert few.returncode == 2
    assert few.stderr == (
        "sonda: mesh.read_ports = 16 do not feed the 32 inputs of the mesh in a cycle, as SCALE-Sim supposes; "
        "give --set mesh.read_ports=32\n"
    )


def test_what_is_corrected_is_said_by_how_much_before_any_agreement() -> None:
    """Of 196 tiles "one column" fills a sixteenth: (576 + 30) * 196 - 1 = 118,775 cycles, less 15 * 196 at borders, and
    1 + 196 + 392 + 196 more are 116,620, 1.8 % fewer. "one step" takes 95 * 31 - 1 = 2,944, less 210, and
    1 + 95 + 190 + 190 more are 3,210, 9.0 % more."""
    document = verify_scalesim(load_accelerator("tpu-16x16"), products_program()).to_document()
    corrected, agree = (block.text for block in scalesim_blocks(document)[:2] if isinstance(block, Paragraph))
    assert "takes 1.8 % fewer to 9.0 % more cycles than SCALE-Sim's formulas give" in corrected
    assert agree == "So corrected, 9 of 9 layers agree in every number."
