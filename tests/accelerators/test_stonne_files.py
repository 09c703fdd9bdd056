"""STONNE's files: its own configurations read, its output files written for scripts that read them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from places import DATA
from sonda.accelerators.description.accelerator import load_accelerator
from sonda.accelerators.description.fields import DescriptionMistakes
from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.energy.table import load_energy_table
from sonda.accelerators.engines.result import Result
from sonda.accelerators.formats.stonne.files import (
    counters_size,
    counters_text,
    read_configuration,
    statistics_document,
    write_stonne_files,
)
from sonda.accelerators.operations.layer import StonneLayer, Tile
from sonda.record.errors import SondaError

GOLDEN = json.loads((DATA / "stonne" / "golden.json").read_text(encoding="utf-8"))
RUNS = [run for run in GOLDEN if run["status"] == "ok" and "energy" in run]
MAERI = """[MSNetwork]
ms_size=256
[ReduceNetwork]
type="ASNETWORK"
accumulation_buffer_enabled=1
[SDMemory]
dn_bw=128
rn_bw=128
controller_type="MAERI_DENSE_WORKLOAD"
"""
TPU = """[MSNetwork]
type="OS_MESH"
ms_rows=16
ms_cols=16
[ReduceNetwork]
type="TEMPORALRN"
accumulation_buffer_enabled=1
[SDMemory]
dn_bw=32
rn_bw=256
controller_type="TPU_OS_DENSE"
"""


def result_of(run: dict) -> Result:
    memory = run["sdmemory"]
    return Result(
        cycles=run["cycles"],
        weight_reads=memory["N_SRAM_weight_reads"],
        input_reads=memory["N_SRAM_input_reads"],
        psum_reads=memory["N_SRAM_psum_reads"],
        writes=memory["N_SRAM_psum_writes"],
        multiplications=0,
        counters=run["counters"],
    )


def users_script(text: str) -> dict[str, dict[str, float]]:
    """What a script makes of a `.counters` file, line by line: static energy, area and energy of operations."""
    table = {(entry.component, entry.operation): entry.value for entry in load_energy_table("stonne").entries}
    lines = text.splitlines()
    name, cycles = lines[0].split("=")
    assert name == "CYCLES"
    sums: dict[str, dict[str, float]] = {}
    section = ""
    for line in filter(None, lines[1:]):
        if line.startswith("["):
            section = line[1:-1]
            sums[section] = {"static": 0.0, "dynamic": 0.0, "area": 0.0}
            continue
        component, *operations = line.split(" ")
        sums[section]["static"] += int(cycles) * table[component, "STATIC"]
        sums[section]["area"] += table[component, "AREA"]
        for operation in operations:
            key, count = operation.split("=")
            sums[section]["dynamic"] += int(count) * table[component, key]
    return sums


def test_configurations_that_stonne_ships(tmp_path: Path) -> None:
    (tmp_path / "maeri_256mses_64_bw.cfg").write_text(MAERI, encoding="utf-8")
    maeri = load_accelerator(str(tmp_path / "maeri_256mses_64_bw.cfg"))
    engine = maeri.engines["maeri_256mses_64_bw"]
    assert engine.kind == "flexible_dense"
    assert engine.hardware == Hardware(256, 0, 0, 128, 128, "ASNETWORK", True, "MAERI_DENSE_WORKLOAD")
    assert set(maeri.route) == {"linear", "gemm", "convolution", "attention"}
    (tmp_path / "tpu_16_16_pes.cfg").write_text(TPU, encoding="utf-8")
    tpu = load_accelerator(str(tmp_path / "tpu_16_16_pes.cfg")).engines["tpu_16_16_pes"]
    assert (tpu.kind, tpu.elements) == ("mesh", 256)
    # Multipliers of the linear network keep STONNE's default where the file does not give them.
    assert tpu.hardware == Hardware(64, 16, 16, 32, 256, "TEMPORALRN", True, "TPU_OS_DENSE")


def test_defaults_are_stonnes() -> None:
    assert read_configuration("", "x.cfg") == ("flexible_dense", Hardware(64, 0, 0, 4, 4))
    kind, hardware = read_configuration('[SDMemory]\ncontroller_type="SIGMA_SPARSE_GEMM"', "x.cfg")
    assert kind == "bitmap_sparse" and not hardware.accumulators
    kind, hardware = read_configuration('[SDMemory]\ncontroller_type="MAGMA_SPARSE_DENSE"', "x.cfg")
    assert kind == "compressed_row" and hardware.accumulators


def test_settings_without_effect_are_accepted() -> None:
    text = "print_stats_enabled=true\n" + MAERI + "port_width=16\n[MSwitch]\nlatency=1\n[LookUpTable]\nport_width=1\n"
    assert read_configuration(text, "x.cfg") == read_configuration(MAERI, "x.cfg")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("ms_size=256", "ms_sise=256"), "MSNetwork.ms_sise: unknown; did you mean 'ms_size'?"),
        (("[SDMemory]", "[SDMemry]"), "SDMemry: unknown; did you mean 'SDMemory'?"),
        (("ms_size=256", "ms_size=200"), "MSNetwork.ms_size = 200 is not a power of two"),
        (("dn_bw=128", "dn_bw=512"), "SDMemory.dn_bw = 512 is more than MSNetwork.ms_size = 256"),
        (("dn_bw=128", "dn_bw=-1"), "SDMemory.dn_bw = -1 is not a power of two"),
        (("ASNETWORK", "0"), "ReduceNetwork.type: '0' is unknown; known: ASNETWORK, FENETWORK, TEMPORALRN"),
        (("enabled=1", "enabled=2"), "ReduceNetwork.accumulation_buffer_enabled: 2 is not 0 or 1"),
        (("MAERI_DENSE_WORKLOAD", "MAERI"), "SDMemory.controller_type: 'MAERI' is unknown"),
        (("MAERI_DENSE_WORKLOAD", "TPU_OS_DENSE"), "MSNetwork.type: LINEAR does not go with"),
        (("MAERI_DENSE", "MAERI_DENSE\n"), "is not TOML"),
    ],
)
def test_mistakes_name_stonnes_fields(change: tuple[str, str], expected: str, tmp_path: Path) -> None:
    assert change[0] in MAERI
    path = tmp_path / "x.cfg"
    path.write_text(MAERI.replace(*change), encoding="utf-8")
    with pytest.raises(SondaError) as caught:
        load_accelerator(str(path))
    assert expected in str(caught.value)


def test_all_mistakes_are_told_at_once_in_stonnes_names() -> None:
    mesh = "[MSNetwork]\ntype='OS_MESH'\nms_rows=7\nms_cols=0\n"
    text = f"{mesh}[SDMemory]\ncontroller_type='TPU_OS_DENSE'\ndn_bw=12\nrn_bx=4\n"
    with pytest.raises(DescriptionMistakes) as caught:
        read_configuration(text, "a.cfg")
    assert [one.split(" =")[0].split(":")[0] for one in caught.value.mistakes] == [
        "SDMemory.rn_bx", "MSNetwork.ms_cols", "SDMemory.dn_bw", "ReduceNetwork.type",
    ]  # fmt: skip
    assert str(caught.value).count("change SDMemory.dn_bw") == 1


@pytest.mark.parametrize("run", RUNS[::5], ids=lambda run: str(run["id"]))
def test_scripts_that_add_up_the_lines_get_the_same(run: dict) -> None:
    sums = users_script(counters_text(result_of(run)))
    assert list(sums) == ["DSNetwork", "MSNetwork", "ReduceNetwork", "GlobalBuffer", "CollectionBus"]
    for section, expected in run["energy"]["by_section"].items():
        assert sums[section] == pytest.approx(expected, rel=1e-9, abs=1e-6)


def test_counters_of_a_small_machine() -> None:
    counters = {
        "MSNetwork": {"MULTIPLIER": {"entries": 2, "MULTIPLICATION": 9, "FORWARD_PSUM": 1, "CONFIGURATION": 2}},
        "GlobalBuffer": {"GLOBALBUFFER": {"entries": 1, "READ": 7, "WRITE": 3}},
    }
    result = Result(12, 3, 4, 0, 3, 9, counters)
    text = counters_text(result)
    assert counters_size(result) == len(text.encode())
    assert text == (
        "CYCLES=12\n[DSNetwork]\n[MSNetwork]\n"
        "MULTIPLIER MULTIPLICATION=9 FORWARD_PSUM=1 CONFIGURATION=2\n"
        "MULTIPLIER\n"
        "[ReduceNetwork]\n[GlobalBuffer]\nGLOBALBUFFER READ=7 WRITE=3\n[CollectionBus]\n\n"
    )


def test_statistics_of_the_known_example() -> None:
    run = GOLDEN[0]
    hardware = Hardware(256, 0, 0, 64, 64)
    document = statistics_document(
        hardware, result_of(run), layer=StonneLayer.product(20, 20, 256), tile=Tile.product(2, 1, 64), layer_type="GEMM"
    )
    assert document["GlobalStats"]["N_cycles"] == 6200
    assert document["hardwareConfiguration"]["MSNetwork"]["ms_size"] == 256
    assert document["hardwareConfiguration"]["SDMemory"]["dn_bw"] == 64
    memory = document["SDMemoryStats"]
    assert {key: run["sdmemory"][key] for key in memory} == memory
    # M x K by K x N as a layer: S = K, K = N, X = M, Y = K.
    assert document["LayerConfiguration"] == {
        "Layer_Type": 3, "R": 1, "S": 256, "C": 1, "K": 20, "G": 1, "N": 1, "X": 20, "Y": 256, "X_": 20, "Y_": 1,
    }  # fmt: skip
    tile = document["TileConfiguration"]
    # Four folds through memory: every sum has one more multiplier.
    assert (tile["VN_Size"], tile["Num_VNs"], tile["folding_enabled"]) == (65, 2, 1)
    assert (tile["T_S"], tile["T_K"], tile["T_X_"]) == (64, 1, 2)


def test_groups_are_printed_per_group() -> None:
    layer = StonneLayer(R=3, S=3, C=8, K=4, G=2, N=1, X=5, Y=5)
    printed = statistics_document(Hardware(), Result(1, 0, 0, 0, 0, 0), layer=layer)["LayerConfiguration"]
    assert (printed["C"], printed["K"], printed["X_"]) == (4, 2, 3)


def test_the_dataflow_of_sigma_is_not_guessed() -> None:
    hardware, result = Hardware(controller="SIGMA_SPARSE_GEMM"), Result(1, 0, 0, 0, 0, 0)
    assert "Dataflow" not in statistics_document(hardware, result)["SDMemoryStats"]
    named = statistics_document(hardware, result, dataflow="MK_STA_KN_STR")
    assert named["SDMemoryStats"]["Dataflow"] == "MK_STA_KN_STR"


def test_files_are_named_as_stonne_names_them_and_never_overwritten(tmp_path: Path) -> None:
    hardware, result = Hardware(256, 0, 0, 64, 32), result_of(GOLDEN[0])
    first = write_stonne_files(tmp_path, "DLRM.top.0/../x y", hardware, result, timestamp=100)
    name = "output_stats_layer_DLRM.top.0_.._x_y_architecture_MSes_256_dnbw_64_rn_bw_32timestamp_100"
    assert [path.name for path in first] == [f"{name}.counters", f"{name}.txt"]
    assert all(path.parent == tmp_path for path in first)
    second = write_stonne_files(tmp_path, "DLRM.top.0/../x y", hardware, result, timestamp=100)
    assert second[0].name.endswith("timestamp_101.counters")
    assert len(list(tmp_path.iterdir())) == 4
    assert json.loads(first[1].read_text(encoding="utf-8"))["GlobalStats"]["N_cycles"] == 6200


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(SondaError, match="cannot be written"):
        write_stonne_files(tmp_path / "file", "x", Hardware(), result_of(GOLDEN[0]))
