"""A workload on a simulated accelerator, from the command line's words to the screen."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sonda
from command_line import run_command
from simulated_examples import CLOCKED, LAYER, SMALL_LAYER, nested, run_of
from sonda.accelerators.description.accelerator import Accelerator, load_accelerator
from sonda.accelerators.mapping.placement import Placement
from sonda.accelerators.operations.program import Call, ModelProgram
from sonda.analysis.run_summary import summarise
from sonda.analysis.simulated.findings import NothingOnEngines
from sonda.analysis.summary import Summary
from sonda.record.errors import SondaError
from sonda.record.quantities import CYCLE_STACK
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.record.stored import plain
from sonda.report.blocks import Detail
from sonda.report.page import page_text
from sonda.report.screen import render
from sonda.report.views.compare.screen import side_by_side_blocks
from sonda.report.views.steps.view import StepsView
from sonda.report.words import describe
from sonda.studies.engine import repetition
from sonda.targets.job import Job
from sonda.targets.pipeline import measure
from sonda.targets.simulated.launcher import read_spans, simulate, write_spans


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def captured(store: Store) -> Run:
    """A perceptron, captured in a process of its own."""
    options = {"layers": "128-64-32", "batch": "20"}
    return measure(Job(workload="mlp", options=options, on="sim:maeri-256"), store)


@pytest.fixture(scope="module")
def described(store: Store) -> Run:
    """DLRM, from its description."""
    return measure(Job(workload="dlrm", options={"batch": "8"}, on="sim:dlrm-hybrid", redact=True), store)


# ---- spans --------------------------------------------------------------------------------------------------------


def test_spans_nest_and_their_metrics_add_up() -> None:
    spans = simulate(nested(), Placement(CLOCKED)).spans
    kind, path = spans.words("kind").decoded(), spans.words("path").decoded()
    cycles, duration, start = spans.metric("cycles", "simulated"), spans.number("duration"), spans.number("start")
    whole = 2 * LAYER + SMALL_LAYER
    for name in ("run", "part", "step", "phase"):
        (row,) = np.flatnonzero(kind == name)
        assert (cycles[row], duration[row]) == (whole, whole)
    layers = {str(path[row]): cycles[row] for row in np.flatnonzero((kind == "layer") & (path != "block.layer"))}
    assert layers[""] == whole
    assert layers["block"] == 2 * LAYER
    # What runs on the host has no cycles: missing, not 0.
    assert np.isnan(layers["act"])
    calls = np.flatnonzero(path == "block.layer")
    layer_calls = [row for row in calls if kind[row] == "layer"]
    assert [spans.number("call")[row] for row in layer_calls] == [0, 1]
    assert [(start[row], duration[row]) for row in layer_calls] == [(0, LAYER), (LAYER, LAYER)]
    stack = sum(spans.metric(f"{part}_cycles", "simulated") for part in CYCLE_STACK)
    known = ~np.isnan(cycles)
    assert np.array_equal(np.asarray(stack)[known], cycles[known])


def test_engines_have_the_simulated_clock_and_the_host_its_own() -> None:
    spans = simulate(nested(), Placement(CLOCKED)).spans
    operations = spans.where(kind="op")
    on_engine = spans.words("clock").equal("simulated") & operations
    assert set(spans.words("device").decoded()[on_engine]) == {"sim/maeri"}
    (host,) = np.flatnonzero(operations & ~on_engine)
    assert spans.words("name").decoded()[host] == "relu"
    assert spans.metric("operations", "counted")[host] == 1
    assert np.isnan(spans.metric("cycles", "simulated")[host])


def test_flops_are_those_of_the_algorithm_and_products_those_of_the_machine() -> None:
    spans = simulate(nested(), Placement(CLOCKED)).spans
    step = np.flatnonzero(spans.where(kind="step"))[0]
    products = 2 * 20 * 64 * 128 + 20 * 32 * 64
    assert spans.metric("flops", "nominal")[step] == 2 * products
    assert spans.metric("multiplications", "simulated")[step] == products
    assert spans.metric("multiplier_cycles", "simulated")[step] == 256 * (2 * LAYER + SMALL_LAYER)


def test_without_a_clock_there_are_cycles_and_no_times() -> None:
    accelerator = load_accelerator("maeri-256")
    assert accelerator.clock_hz is None
    simulation = simulate(nested(), Placement(accelerator))
    assert not simulation.spans.number("duration").any()
    assert "no times: the description of maeri-256 gives no clock" in simulation.notes


def test_spans_survive_the_way_between_processes(tmp_path: Path) -> None:
    spans = simulate(nested(), Placement(CLOCKED)).spans
    write_spans(tmp_path / "spans.arrow", spans)
    again = read_spans(tmp_path / "spans.arrow")
    assert again.to_arrow().equals(spans.to_arrow())


def test_mappings_that_are_alike_are_written_once_with_their_number() -> None:
    mapping = simulate(nested(), Placement(CLOCKED)).mapping
    assert [(one["path"], one["count"], one["words"]) for one in mapping] == [
        ("block.layer", 2, "T_M=1 T_N=64 T_K=4"),
        ("", 1, "T_M=1 T_N=32 T_K=8"),
    ]
    assert mapping[0]["shape"] == "20x128 by 128x64"


def test_every_mapping_says_what_one_operation_took() -> None:
    first, second = simulate(nested(), Placement(CLOCKED), curious=False).mapping
    assert [(one["cycles"], one["stall_cycles"]) for one in (first, second)] == [(LAYER, 0), (SMALL_LAYER, 0)]
    # 20 samples, 64 outputs of 128 inputs: each product once, each output written once.
    assert first["counters"]["MSNetwork"]["MULTIPLIER"]["MULTIPLICATION"] == 20 * 64 * 128
    assert first["counters"]["GlobalBuffer"]["GLOBALBUFFER"]["WRITE"] == 20 * 64


# ---- summary and screens ------------------------------------------------------------------------------------------


def summary_of(accelerator: Accelerator, tmp_path: Path) -> Summary:
    return summarise(run_of(simulate(nested(), Placement(accelerator)), accelerator, tmp_path))


def test_layers_have_what_is_theirs_and_what_is_inside(tmp_path: Path) -> None:
    (part,) = summary_of(CLOCKED, tmp_path).parts
    whole = 2 * LAYER + SMALL_LAYER
    rows = {row.path: row for row in part.layers}
    model, block, layer = rows[""], rows["block"], rows["block.layer"]
    assert [row.path for row in part.layers] == ["", "block", "block.layer", "act"]
    assert model.simulated is not None
    assert model.own_simulated is not None
    assert layer.own_simulated is not None
    assert (model.simulated.cycles.value, model.own_simulated.cycles.value) == (whole, SMALL_LAYER)
    assert block.own_simulated is None
    assert layer.calls == 2
    assert layer.own_simulated.share == pytest.approx(2 * LAYER / whole)
    assert layer.own_simulated.utilisation.value == pytest.approx(20 * 64 * 128 / (LAYER * 256))
    assert layer.own_simulated.mapping == ("T_M=1 T_N=64 T_K=4",)
    assert sum(value.value or 0 for value in layer.own_simulated.stack.values()) == 2 * LAYER
    assert rows["act"].simulated is None
    assert part.step.value == whole  # ns at 1 GHz
    assert part.samples_per_second.value is None
    assert part.samples_per_second.reason == "some operations run on the host, whose time is not simulated"


def test_the_verdict_names_the_layers_and_what_their_cycles_went_into(tmp_path: Path) -> None:
    summary = summary_of(CLOCKED, tmp_path)
    (verdict,) = summary.verdicts
    assert verdict.kind in CYCLE_STACK
    # 2 x 1356 of 3060 cycles.
    assert "linear layers: 89 % of 3,060 cycles" in describe(verdict.finding)
    assert summary.subtitle == "simulated maeri-256: flexible dense, 256 multipliers at 1 GHz · 3,060 cycles"


def test_the_screen_has_cycles_mapping_and_times_only_with_a_clock(tmp_path: Path) -> None:
    clocked = StepsView(summary_of(CLOCKED, tmp_path)).text(140, color=False, detail=Detail.ALL)
    assert "block.layer" in clocked
    assert "T_M=1 T_N=64 T_K=4" in clocked
    assert "2,712" in clocked
    assert "µs" in clocked
    plain = StepsView(summary_of(load_accelerator("maeri-256"), tmp_path)).text(140, color=False, detail=Detail.ALL)
    assert "µs" not in plain
    assert "no times: the description of maeri-256 gives no clock" in plain
    assert "on the host, not simulated: relu 1" in plain
    assert (
        max(
            len(line)
            for line in StepsView(summary_of(CLOCKED, tmp_path)).text(60, color=False, detail=Detail.ALL).splitlines()
        )
        <= 60
    )


def test_documents_pages_and_notebooks_have_the_cycles(tmp_path: Path) -> None:
    summary = summary_of(CLOCKED, tmp_path)
    document = json.loads(json.dumps(StepsView(summary).document()))
    (part,) = document["parts"]
    assert part["metrics"]["cycles:simulated"] == {"value": 3060.0, "unit": "cycle", "source": "simulated"}
    layer = next(row for row in part["layers"] if row["path"] == "block.layer")
    assert layer["metrics"]["cycles:simulated"]["value"] == 2 * LAYER
    assert layer["mapping"] == ["T_M=1 T_N=64 T_K=4"]
    assert "2,712" in page_text([summary])
    assert "3,060 cycles" in StepsView(summary).fragment()


def test_side_by_side_with_another(tmp_path: Path) -> None:
    clocked, plain = summary_of(CLOCKED, tmp_path), summary_of(load_accelerator("maeri-256"), tmp_path)
    text = render(side_by_side_blocks([clocked, plain], ["with", "without"]), 120, False)
    assert "with cycles" in text
    assert "without cycles" in text
    assert "with µs" in text
    assert "without µs" not in text


def test_a_program_without_anything_for_an_engine_says_so(tmp_path: Path) -> None:
    program = ModelProgram((Call("", "Softmax", 0, -1, 0),), (), (), {(0, "_softmax"): 1})
    accelerator = load_accelerator("maeri-256")
    summary = summarise(run_of(simulate(program, Placement(accelerator)), accelerator, tmp_path))
    assert summary.verdicts[0].finding == NothingOnEngines("maeri-256")
    assert "not simulated: _softmax 1" in StepsView(summary).text(100, color=False, detail=Detail.ALL)
    page_text([summary])


# ---- whole runs ---------------------------------------------------------------------------------------------------


def test_a_captured_run_is_kept_whole(captured: Run, store: Store) -> None:
    found = Run.load(store.one(captured.id).directory)
    info = found.info
    assert (info.target.spec, info.target.device) == ("sim:maeri-256", "sim")
    assert info.target.description.name == "maeri-256"
    assert [entry.path for entry in info.target.mapping] == ["0", "2"]
    assert info.target.host == {"sigmoid": 1, "_softmax": 1}
    assert "torch" in info.versions
    step = np.flatnonzero(found.spans.where(kind="step"))[0]
    assert found.spans.metric("cycles", "simulated")[step] == LAYER + SMALL_LAYER
    assert summarise(found).title == "MLP, inference, batch 20"


def test_a_described_run_needs_no_framework(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from sonda.record.store import Store\n"
        "from sonda.targets.job import Job; from sonda.targets.pipeline import measure\n"
        "options = {'arch-embedding-size': '-'.join(['10000000'] * 50), 'arch-sparse-feature-size': '32',\n"
        "           'arch-mlp-bot': '128-64-64-32', 'arch-mlp-top': '128-64-1', 'batch': '4'}\n"
        "run = measure(Job(workload='dlrm', options=options, on='sim:dlrm-hybrid'), Store(Path(sys.argv[1])))\n"
        "assert 'torch' not in sys.modules\n"
        "status = Path('/proc/self/status').read_text()\n"
        "print(next(line.split()[1] for line in status.splitlines() if line.startswith('VmHWM')))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # kB; the tables would be 64 GB. Not getrusage, whose peak is the parent's where that is higher.
    assert int(done.stdout) < 1_000_000


def test_settings_and_mapping_are_kept_and_change_the_machine(store: Store, described: Run) -> None:
    options = {"batch": "8"}
    job = Job(workload="dlrm", options=options, on="sim:dlrm-hybrid", mapping="best", set="embeddings.multipliers=256")
    found = Run.load(store.one(measure(job, store).id).directory)
    assert plain(found.info.target.options) == {"mapping": "best", "set": "embeddings.multipliers=256"}
    assert found.info.target.description.engines["embeddings"].hardware.multipliers == 256
    assert plain(described.info.target.options) == {"mapping": "", "set": ""}
    assert described.info.machine.missing["host"] == "redacted" != found.info.machine.missing.get("host")
    assert described.info.target.description.engines["embeddings"].hardware.multipliers == 128
    assert "set embeddings.multipliers=256 · mapping best" in summarise(found).subtitle
    by_engine = {entry.engine: entry for entry in found.info.target.mapping}
    # The description's own tile is T_N = 2, T_K = 4; nothing forces the search to keep it.
    assert by_engine["perceptrons"].cycles <= described.info.target.mapping[0].cycles


def test_the_api_passes_settings_and_mapping_on(store: Store) -> None:
    profile = sonda.run("dlrm", on="sim:dlrm-hybrid", store=store, batch=2, mapping="stonne", set="clock_GHz=2")
    assert plain(profile.info.target.options) == {"mapping": "stonne", "set": "clock_GHz=2"}
    assert profile.info.target.description.clock_hz == 2e9


def test_what_a_search_finds_is_never_worse(store: Store) -> None:
    cycles = {
        mapping: summarise(
            measure(Job(workload="dlrm", options={"batch": "8"}, on="sim:dlrm-hybrid", mapping=mapping), store)
        ).parts[0].simulated.cycles.value  # type: ignore[union-attr]
        for mapping in ("", "stonne", "best")
    }  # fmt: skip
    assert cycles["best"] <= min(cycles[""], cycles["stonne"])


def test_beside_a_simulated_target_its_settings_leave_the_others_alone(tmp_path: Path, monkeypatch: Any) -> None:
    seen = []

    def measured(job: Job, *_: Any) -> None:
        seen.append((job.on, job.mapping, job.set))

    monkeypatch.setattr(repetition, "measure", measured)
    job = Job(workload="mlp", mapping="best", set="multipliers=512")
    repetition.measure_all(job, ["cpu/1", "sim:maeri-256"], 1, Store(tmp_path), lambda text: None)
    assert seen == [("cpu/1", "", ""), ("sim:maeri-256", "best", "multipliers=512")]


def test_what_the_hybrid_leaves_to_the_host_is_listed(described: Run) -> None:
    assert "on the host: interaction (dlrm-hybrid has no engine for gemm)" in described.info.notes
    assert described.info.target.host["bmm"] == 1
    assert {entry.engine for entry in described.info.target.mapping} == {"perceptrons", "embeddings"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"train": True}, "runs inference, not training"),
        ({"compile": True}, "not compiled ones"),
        ({"precision": "bf16"}, "computes in float32"),
        ({"on": "sim:maery-256"}, "accelerator 'maery-256' is unknown; did you mean"),
        ({"mapping": "beste"}, "mapping 'beste' is unknown; did you mean 'best'?"),
        ({"set": "multiplyers=512"}, "setting 'multiplyers' is unknown; did you mean 'multipliers'?"),
        ({"set": "multipliers=300"}, "multipliers = 300 is not a power of two"),
        ({"on": "cpu", "mapping": "best"}, "--mapping is for a simulated accelerator, not for cpu"),
        ({"on": "cpu/1", "set": "multipliers=512"}, "--set is for a simulated accelerator, not for cpu/1"),
    ],
)
def test_what_cannot_be_simulated_is_refused_in_one_line(
    settings: dict[str, object], words: str, tmp_path: Path
) -> None:
    job = Job(**{"workload": "mlp", "on": "sim:maeri-256", **settings})  # type: ignore[arg-type]
    with pytest.raises(SondaError) as refused:
        measure(job, Store(tmp_path))
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.glob("2*"))


def test_nan_weights_and_models_that_fail_are_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(
        "import torch\n"
        "class Hiding(torch.nn.Linear):\n"
        "    def forward(self, inputs):\n"
        "        return super().forward(inputs) / self.weight.new_zeros(()) * 0\n"
        "def hiding():\n"
        "    return torch.nn.Sequential(Hiding(4, 4), torch.nn.Linear(4, 2))\n"
    )
    options = {"input": "2x4"}
    with pytest.raises(SondaError, match=r"1: addmm has NaN in an operand"):
        measure(
            Job(workload=f"{tmp_path}/models.py:hiding", options=options, on="sim:sigma-128"), Store(tmp_path / "runs")
        )


# ---- the command line ---------------------------------------------------------------------------------------------


def test_the_command_line_changes_maps_and_compares(tmp_path: Path) -> None:
    memory = ("--set", "memory.buffer_KiB=64 memory.bytes_per_cycle=4", "--set", "memory.latency_cycles=40 "
              "memory.row_bytes=1024 memory.row_miss_cycles=20 clock_GHz=1")  # fmt: skip
    words = ("run", "dlrm", "--batch", "4", "--on", "sim:dlrm-hybrid", "--mapping", "best")
    done = run_command(tmp_path, *words, *memory, "--tag", "finite", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    simulation = document["simulation"]
    assert simulation["options"] == {"mapping": "best", "set": f"{memory[1]} {memory[3]}"}
    assert simulation["description"]["memory"]["buffer_bytes"] == 65536
    metrics = document["parts"][0]["metrics"]
    assert metrics["dram_read_bytes:simulated"]["value"] > 0
    assert metrics["energy:simulated"]["low"] < metrics["energy:simulated"]["value"]
    assert run_command(tmp_path, *words, "--tag", "unlimited").returncode == 0
    compared = run_command(tmp_path, "compare", "unlimited", "finite", "--fail-above", "1%")
    assert compared.returncode == 1, compared.stderr
    assert "exact, simulated" in compared.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--mapping", "best", "--", "true"), "--mapping is for a built-in network, not for a program"),
        (("--set", "multipliers=512", "--", "true"), "--set is for a built-in network, not for a program"),
    ],
)
def test_the_command_line_refuses_them_elsewhere(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = run_command(tmp_path, "run", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
