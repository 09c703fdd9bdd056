"""A simulated run as STONNE's files: named as its scripts expect, sums as the reference's own, nothing half-written."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from builders import stepped
from command_line import run_command
from places import DATA
from plain_runs import run_info
from sonda.accelerators.description.accelerator import load_accelerator
from sonda.accelerators.formats.stonne.export import export_run
from sonda.record.errors import SondaError
from sonda.record.run import Run, write_run

GOLDEN = json.loads((DATA / "stonne" / "golden.json").read_text(encoding="utf-8"))
FC = next(run for run in GOLDEN if run["mode"] == "FC" and run["dims"] == {"M": 20, "N": 64, "K": 128})
"""20 x 128 by 128 x 64 on 256 multipliers, 128 ports, accumulators: what maeri-256 is."""


def entry_of(run: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """What a simulated run keeps of an operation, with the numbers of a reference run."""
    memory = run["sdmemory"]
    return {
        "path": "bottom.0",
        "operation": "addmm",
        "kind": "linear",
        "shape": "20x128 by 128x64",
        "engine": "maeri",
        "mapping": {"T_M": 1, "T_N": 64, "T_K": 4},
        "words": "T_M=1 T_N=64 T_K=4",
        "cycles": run["cycles"],
        "stall_cycles": 0,
        "reads": {kind: memory[f"N_SRAM_{kind}_reads"] for kind in ("weight", "input", "psum")},
        "counters": run["counters"],
        "count": 1,
        **changes,
    }


def run_with(*entries: dict[str, Any], accelerator: str = "maeri-256", **target: Any) -> Run:
    described = asdict(load_accelerator(accelerator))
    # As it comes back from run.json.
    about = json.loads(json.dumps({"device": "sim", "spec": f"sim:{accelerator}", "description": described,
                                   "mapping": entries, **target}))  # fmt: skip
    return Run(Path("none"), run_info(id="abcd1234", created="2026-11-15T00:00:00", status="complete", target=about))


def sums(folder: Path) -> dict[str, int]:
    """What a script gets that adds up all `.counters` of a folder: `SECTION.COMPONENT.OPERATION`, and `CYCLES`."""
    found: dict[str, int] = {}
    for path in folder.glob("*.counters"):
        section = ""
        for line in filter(None, path.read_text(encoding="utf-8").splitlines()):
            if line.startswith("["):
                section = line[1:-1]
                continue
            component, *operations = line.split(" ")
            if component.startswith("CYCLES="):
                operations, component = [component], ""
            for operation in operations:
                key, _, value = operation.partition("=")
                name = f"{section}.{component}.{key}" if component else key
                found[name] = found.get(name, 0) + int(value)
    return found


def test_a_pair_holds_the_numbers_of_the_reference(tmp_path: Path) -> None:
    counters, statistics = export_run(run_with(entry_of(FC)), tmp_path / "new" / "folder")
    start = "output_stats_layer_bottom.0.addmm_architecture_MSes_256_dnbw_128_rn_bw_128timestamp_"
    assert counters.name.startswith(start) and counters.name.removeprefix(start).removesuffix(".counters").isdigit()
    assert statistics.name == counters.name.replace(".counters", ".txt")
    expected = {
        f"{section}.{component}.{operation}": count
        for section, components in FC["counters"].items()
        for component, counts in components.items()
        for operation, count in counts.items()
        if operation != "entries"
    }
    assert sums(counters.parent) == expected | {"CYCLES": 1356}
    document = json.loads(statistics.read_text(encoding="utf-8"))
    memory = document["SDMemoryStats"]
    assert {key: FC["sdmemory"][key] for key in memory} == memory
    assert document["GlobalStats"] == {"N_cycles": 1356}
    # A fully connected layer is FC (2): S inputs, K outputs, X rows of the batch.
    layer = document["LayerConfiguration"]
    assert (layer["Layer_Type"], layer["S"], layer["K"], layer["X"]) == (2, 128, 64, 20)
    tile = document["TileConfiguration"]
    assert (tile["T_S"], tile["T_K"], tile["T_X_"], tile["folding_enabled"]) == (4, 64, 1, 0)


def test_operations_that_came_several_times_have_several_pairs(tmp_path: Path) -> None:
    entries = [entry_of(FC, count=3), entry_of(FC, path="top.1"), entry_of(FC, path="", operation="mm", kind="gemm")]
    paths = export_run(run_with(*entries), tmp_path)
    names = [path.name.partition("_architecture")[0].removeprefix("output_stats_layer_") for path in paths[::2]]
    assert names == ["bottom.0.addmm_0", "bottom.0.addmm_1", "bottom.0.addmm_2", "top.1.addmm", "mm"]
    assert sums(tmp_path)["CYCLES"] == 5 * 1356
    kinds = [json.loads(path.read_text())["LayerConfiguration"]["Layer_Type"] for path in paths[1::2]]
    assert kinds == [2, 2, 2, 2, 3]


def test_waiting_for_memory_is_not_among_stonnes_cycles(tmp_path: Path) -> None:
    export_run(run_with(entry_of(FC, cycles=2000, stall_cycles=644)), tmp_path)
    assert sums(tmp_path)["CYCLES"] == 1356


@pytest.mark.parametrize(
    ("accelerator", "changes", "layer", "tiled"),
    [
        # Sparse times dense: rows are the batch N, entries the channels C, columns the filters K.
        ("magma-128", {"mapping": {"T_N": 4, "T_K": 32, "rows": "inputs by rows"}, "engine": "magma"},
         {"Layer_Type": 4, "N": 20, "C": 128, "K": 64}, False),
        ("magma-128", {"mapping": {"T_N": 4, "T_K": 32, "rows": "weights by rows"}, "engine": "magma"},
         {"Layer_Type": 4, "N": 64, "C": 128, "K": 20}, False),
        # Bitmaps: filters are the rows M, X the columns N.
        ("sigma-128", {"mapping": {"dataflow": "MK_STR_KN_STA"}, "engine": "sigma"},
         {"Layer_Type": 3, "K": 20, "S": 128, "X": 64}, False),
        ("tpu-16x16", {"mapping": {"T_M": 16, "T_N": 16}, "engine": "mesh"},
         {"Layer_Type": 2, "S": 128, "K": 64, "X": 20}, True),
    ],
)  # fmt: skip
def test_each_engine_has_its_layer_as_stonne_loads_it(
    accelerator: str, changes: dict[str, Any], layer: dict[str, int], tiled: bool, tmp_path: Path
) -> None:
    _, statistics = export_run(run_with(entry_of(FC, **changes), accelerator=accelerator), tmp_path)
    document = json.loads(statistics.read_text(encoding="utf-8"))
    assert {key: document["LayerConfiguration"][key] for key in layer} == layer
    assert ("TileConfiguration" in document) is tiled
    if accelerator == "sigma-128":
        assert document["SDMemoryStats"]["Dataflow"] == "MK_STR_KN_STA"


def test_a_convolution_is_padded_and_per_group(tmp_path: Path) -> None:
    letters = {f"T_{letter}": 1 for letter in ("R", "S", "C", "K", "G", "N", "X_", "Y_")}
    shape = "R=3 S=3 C=8 K=4 G=2 N=1 X=5 Y=5 stride=1x1 padding=1x1"
    _, statistics = export_run(run_with(entry_of(FC, kind="convolution", shape=shape, mapping=letters)), tmp_path)
    layer = json.loads(statistics.read_text(encoding="utf-8"))["LayerConfiguration"]
    assert (layer["Layer_Type"], layer["X"], layer["X_"], layer["C"], layer["K"], layer["G"]) == (0, 7, 5, 4, 2, 2)


def test_a_layer_that_the_words_do_not_tell_is_left_out(tmp_path: Path) -> None:
    # Dilated by two there are 4 x 4 outputs of 8 filters and not 6 x 6; the words of the shape do not say so.
    shape = "R=3 S=3 C=8 K=8 G=1 N=1 X=8 Y=8 stride=1x1 padding=0x0"
    counters = {"GlobalBuffer": {"GLOBALBUFFER": {"entries": 1, "READ": 5, "WRITE": 4 * 4 * 8}}}
    changes = {"kind": "convolution", "shape": shape, "engine": "mesh", "mapping": {"T_M": 16, "T_N": 8}}
    run = run_with(entry_of(FC, counters=counters, **changes), accelerator="tpu-16x16")
    _, statistics = export_run(run, tmp_path)
    assert "LayerConfiguration" not in json.loads(statistics.read_text(encoding="utf-8"))
    counters["GlobalBuffer"]["GLOBALBUFFER"]["WRITE"] = 6 * 6 * 8
    run = run_with(entry_of(FC, counters=counters, **changes), accelerator="tpu-16x16")
    _, statistics = export_run(run, tmp_path)
    layer = json.loads(statistics.read_text(encoding="utf-8"))["LayerConfiguration"]
    assert (layer["X"], layer["S"], layer["K"]) == (36, 72, 8)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (run_with(entry_of(FC), device="cpu", spec="cpu/2"), "run abcd1234 was measured on cpu/2, not simulated"),
        (run_with(), "has no operation on an engine"),
        (run_with(entry_of(FC), {**entry_of(FC), "counters": {}}), "does not hold what STONNE's files need"),
        (run_with(entry_of(FC, engine="dense")), "'dense'"),
        (run_with(entry_of(FC, count=10**9)), "1000000000 operations, more than 20000"),
    ],
)
def test_runs_that_cannot_be_written_are_one_line_and_leave_nothing(run: Run, said: str, tmp_path: Path) -> None:
    with pytest.raises(SondaError) as caught:
        export_run(run, tmp_path / "out")
    assert said in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_an_engine_that_stonne_does_not_have_is_named(tmp_path: Path) -> None:
    run = run_with(entry_of(FC), entry_of(FC, path="top", engine="own"))
    engines = run.info.target.description.engines
    engines["own"] = structs.replace(engines["maeri"], name="own", kind="ideal")
    with pytest.raises(SondaError) as caught:
        export_run(run, tmp_path / "out")
    assert caught.value.cause == "run abcd1234 has operations on own, of kind ideal: STONNE has no such engine"
    assert "--layers" in caught.value.remedy and "run it again" not in caught.value.remedy
    assert not (tmp_path / "out").exists()
    assert len(export_run(run, tmp_path / "out", ["bottom.0"])) == 2, "those on an engine of STONNE's"


def test_layers_are_chosen_by_module_or_pattern(tmp_path: Path) -> None:
    paths = ("stem.0", "stages.0.body", "stages.0.shortcut", "stages.10")
    run = run_with(*(entry_of(FC, path=path) for path in paths))
    said: list[str] = []

    def layers(*chosen: str) -> list[str]:
        written = export_run(run, tmp_path / "-".join(chosen or ["all"]), chosen, said.append)
        return [path.name.split("_layer_")[1].split(".addmm")[0] for path in written if path.suffix == ".txt"]

    assert layers() == list(paths)
    assert layers("stages.0") == ["stages.0.body", "stages.0.shortcut"], "and not stages.10"
    assert layers("stages.*", "stem.0") == list(paths)
    assert layers("*.shortcut") == ["stages.0.shortcut"]
    size = sum(path.stat().st_size for path in (tmp_path / "all").iterdir())
    files, megabytes = said[0].removeprefix("writing ").removesuffix(" MB").split(" files, ")
    assert int(files) == 8
    assert float(megabytes) == pytest.approx(size / 1e6, abs=0.06)
    with pytest.raises(SondaError, match=r"is in layer 'stage\.0'; did you mean 'stages\.0'\?"):
        layers("stage.0")


def test_files_that_do_not_fit_are_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(SondaError, match=r"MB, .*out has room for 0 MB; choose layers with --layers"):
        export_run(run_with(entry_of(FC)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_from_the_command_line(tmp_path: Path) -> None:
    home = tmp_path / "store"
    done = run_command(tmp_path, "run", "dlrm", "--batch", "4", "--on", "sim:dlrm-hybrid", "--json")
    assert done.returncode == 0, done.stderr
    done = run_command(tmp_path, "export", "last", "--stonne", str(tmp_path / "out"), "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("writing "), "how much it will be is said first"
    files = json.loads(done.stdout)["stonne"]
    kept = json.loads(next(home.glob("*/run.json")).read_text(encoding="utf-8"))["target"]["mapping"]
    assert len(files) == 2 * sum(entry["count"] for entry in kept) == len(list((tmp_path / "out").iterdir()))
    cycles = sum(entry["count"] * (entry["cycles"] - entry["stall_cycles"]) for entry in kept)
    assert sums(tmp_path / "out")["CYCLES"] == cycles
    reads = sum(entry["count"] * entry["counters"]["GlobalBuffer"]["GLOBALBUFFER"]["READ"] for entry in kept)
    statistics = [json.loads(Path(path).read_text())["SDMemoryStats"] for path in files if path.endswith(".txt")]
    assert reads == sum(value for one in statistics for key, value in one.items() if key.endswith("_reads"))


def test_measured_runs_are_refused_on_the_command_line(tmp_path: Path) -> None:
    made = stepped([10.0] * 6)
    write_run(tmp_path / "store", made.info, made.spans)
    done = run_command(tmp_path, "export", "last", "--stonne", str(tmp_path / "out"))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "was measured on" in line and "not simulated" in line
    assert not (tmp_path / "out").exists()
