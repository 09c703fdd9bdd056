"""What-ifs: the bottleneck is found, widened as far as the machine allows, and simulated again."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulated_examples import CLOCKED, LAYER, SMALL_LAYER, nested, nested_run, run_of
from sonda.accelerators.description.accelerator import Accelerator, load_accelerator
from sonda.accelerators.description.settings import with_settings
from sonda.accelerators.mapping.placement import Placement
from sonda.accelerators.operations.program import Call, MatrixProduct, ModelProgram, Operation
from sonda.analysis.run_summary import summarise
from sonda.analysis.simulated.findings import UnknownGain, WidenBound
from sonda.record.store import Store
from sonda.report.blocks import Detail
from sonda.report.views.steps.view import StepsView
from sonda.targets.job import Job
from sonda.targets.pipeline import RunLabels, measure
from sonda.targets.simulated import what_if
from sonda.targets.simulated.launcher import simulate
from sonda.targets.simulated.what_if import Bottleneck, find_bottleneck, widen_bottleneck

WHOLE = 2 * LAYER + SMALL_LAYER


def cycles_on(accelerator: Accelerator, program: ModelProgram, mapping: str = "") -> int:
    placement = Placement(accelerator, mapping)
    return sum(placement.place_operation(one).cycles for one in program.operations)  # type: ignore[union-attr]


def test_the_bottleneck_is_the_part_of_the_layers_with_most_cycles() -> None:
    program, placement = nested(), Placement(CLOCKED)
    found = find_bottleneck(program, placement.place(program))
    assert found is not None
    assert (found.layers, found.engine.name) == ("Linear", "maeri")
    stack = placement.place(program)[0].result.stack  # type: ignore[union-attr]
    assert stack[found.part] == max(stack.values())


def test_nothing_on_an_engine_has_no_bottleneck() -> None:
    program = ModelProgram((Call("", "Softmax", 0, -1, 0),), (), (), {(0, "_softmax"): 1})
    assert find_bottleneck(program, []) is None
    assert what_if.what_ifs(program, Placement(CLOCKED), []) == []


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("distribution", "maeri.read_ports=256"),
        ("compute", "maeri.multipliers=512"),
        ("reduction", "maeri.write_ports=256"),
        ("writeback", "maeri.write_ports=256"),
    ],
)
def test_what_is_doubled(part: str, change: str) -> None:
    ((found, words, accelerator),) = widen_bottleneck(CLOCKED, Bottleneck("Linear", CLOCKED.engines["maeri"], part))
    assert found == change
    assert words.startswith("twice the ")
    assert accelerator.engines == with_settings(CLOCKED, change).engines


def test_more_ports_than_multipliers_double_both() -> None:
    full = with_settings(CLOCKED, "read_ports=256")
    ((change, words, _),) = widen_bottleneck(full, Bottleneck("Linear", full.engines["maeri"], "distribution"))
    assert change == "maeri.read_ports=512 maeri.multipliers=512"
    assert words == "twice the read ports and multipliers"


def test_a_mesh_grows_on_both_sides() -> None:
    tpu = with_settings(load_accelerator("tpu-16x16"), "tile.T_M=16 tile.T_N=16")
    ((change, words, larger),) = widen_bottleneck(tpu, Bottleneck("Linear", tpu.engines["mesh"], "compute"))
    hardware = larger.engines["mesh"].hardware
    assert (hardware.rows, hardware.columns, hardware.read_ports, hardware.write_ports) == (32, 32, 64, 1024)
    assert larger.engines["mesh"].tile == {"T_M": 32, "T_N": 32}
    assert words == "a mesh of 32x32 with bandwidths to match"
    # 32 rows and columns of outputs take four tiles of the small mesh and one of the large.
    program = ModelProgram((Call("", "Linear", 0, -1, 0),), (Operation("linear", "mm", 0, MatrixProduct(32, 32, 64)),),
                      ("forward",))  # fmt: skip
    assert cycles_on(larger, program) < cycles_on(tpu, program) / 2
    assert simulate(program, Placement(tpu)).what_if[0].set == change


def test_what_ifs_are_what_the_changed_machine_takes(tmp_path: Path) -> None:
    simulation = simulate(nested(), Placement(CLOCKED))
    first, second = simulation.what_if
    assert first.cycles == cycles_on(with_settings(CLOCKED, first.set), nested())
    assert second.mapping == "best"
    assert second.cycles == cycles_on(CLOCKED, nested(), "best") <= WHOLE
    (verdict,) = summarise(run_of(simulation, CLOCKED, tmp_path)).verdicts
    gains = [remedy.speedup.value for remedy in verdict.remedies if remedy.speedup]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] == pytest.approx(WHOLE / min(first.cycles, second.cycles))


def test_a_mapping_that_is_the_best_is_not_searched_again() -> None:
    changes = simulate(nested(), Placement(CLOCKED, "best")).what_if
    assert not [change for change in changes if change.mapping is not None]


def test_what_takes_too_long_is_given_up_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_if, "PATIENCE", -1.0)
    simulation = simulate(nested(), Placement(CLOCKED))
    assert [change.cycles for change in simulation.what_if] == [None, None]
    summary = summarise(run_of(simulation, CLOCKED, tmp_path))
    assert summary.verdicts[0].remedies == ()
    unknown = [note for note in summary.notes if isinstance(note, UnknownGain)]
    assert any(note.change.settings.startswith("maeri.") for note in unknown)


def test_what_brings_nothing_is_said_and_not_advised(tmp_path: Path) -> None:
    what_ifs = [
        {"set": "maeri.read_ports=256", "words": "twice the read ports", "cycles": WHOLE},
        {"set": "maeri.multipliers=512", "words": "twice the multipliers", "cycles": 2 * WHOLE},
    ]
    options = {"mapping": "", "set": "clock_GHz=1"}
    summary = summarise(nested_run(CLOCKED, tmp_path, what_if=what_ifs, options=options))
    assert summary.verdicts[0].remedies == ()
    text = StepsView(summary).text(160, color=False, detail=Detail.ALL)
    assert "would bring nothing: also --set maeri.read_ports=256 (twice the read ports), 1.00x (simulated)" in text
    assert "would take longer: also --set maeri.multipliers=512 (twice the multipliers), 0.50x (simulated)" in text


def test_points_of_a_study_have_none_and_name_what_to_widen(tmp_path: Path) -> None:
    job = Job(workload="dlrm", options={"batch": "2"}, on="sim:dlrm-hybrid")
    run = measure(job, Store(tmp_path), RunLabels(study="mine"))
    assert run.info.target.what_if == []
    (remedy,) = summarise(run).verdicts[0].remedies
    assert isinstance(remedy.advice, WidenBound)
    assert (remedy.options, remedy.speedup) == ((), None)
