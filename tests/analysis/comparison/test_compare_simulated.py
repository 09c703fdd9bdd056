"""Two simulated runs: exact cycles, exact ratios, and no statistics."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

import snapshot_files as snapshots
from builders import stepped
from simulated_examples import CLOCKED, FINITE, LAYER, SMALL_LAYER, nested_run, run_of
from sonda.accelerators.description.accelerator import load_accelerator
from sonda.accelerators.description.settings import with_settings
from sonda.accelerators.mapping.placement import Placement
from sonda.accelerators.operations.program import Call, ModelProgram
from sonda.analysis.comparison.findings import DifferingClocks, DifferingDescriptions, OtherEngines, SimulatedTraffic
from sonda.analysis.comparison.runs import compare
from sonda.analysis.findings import Finding
from sonda.analysis.run_summary import summarise
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.report.page import page_text
from sonda.report.screen import render
from sonda.report.views.compare.document import comparison_document
from sonda.report.views.compare.screen import comparison_blocks
from sonda.targets.simulated.launcher import simulate

WHOLE = 2 * LAYER + SMALL_LAYER
NARROW = with_settings(CLOCKED, "read_ports=64")


def narrow_run(directory: Path) -> Run:
    """The same program with half of the read ports."""
    return nested_run(NARROW, directory, "beef0000beef", options={"mapping": "", "set": "read_ports=64"})


def cycles(run: Run) -> dict[str, float]:
    """By path, of what the run's own mappings say."""
    return {entry.path: entry.cycles * entry.count for entry in run.info.target.mapping}


def test_ratios_are_those_of_the_cycles(tmp_path: Path) -> None:
    other = narrow_run(tmp_path)
    taken = cycles(other)
    compared = compare([nested_run(CLOCKED, tmp_path)], [other])
    assert compared.exact
    (part,) = compared.parts
    slower = sum(taken.values()) / WHOLE
    assert slower > 1
    assert (part.step.a.value, part.step.a.unit, part.step.b.value) == (WHOLE, "cycle", sum(taken.values()))
    assert part.step.ratio.value == pytest.approx(slower)
    assert (part.step.ratio.low, part.step.ratio.reason) == (None, "exact, simulated")
    assert part.step.text == f"{slower:.2f}x slower"
    layers = {row.path: row for row in part.layers}
    assert layers["block.layer"].ratio.value == pytest.approx(taken["block.layer"] / (2 * LAYER))
    # The model includes what is inside; the block holds only the layer.
    assert layers[""].b.value == sum(taken.values())
    assert layers["block"].b.value == taken["block.layer"]
    # relu runs on the host: there are no cycles to compare.
    assert "act" not in layers
    assert (part.only_a, part.only_b) == ((), ())


def test_a_limit_is_held_against_the_exact_number(tmp_path: Path) -> None:
    base, other = nested_run(CLOCKED, tmp_path), narrow_run(tmp_path)
    compared = compare([base], [other])
    slowdown = sum(cycles(other).values()) / WHOLE - 1
    assert compared.slowdown.value == pytest.approx(slowdown)
    assert compared.check(slowdown - 1e-9).exit_code == 1
    assert compared.check(slowdown + 1e-9).exit_code == 0
    assert compare([other], [base]).check(0.0).exit_code == 0
    text = render(comparison_blocks(compared, fail_above=0.05), 120, False)
    assert "Above the limit of 5 %: B takes" in text
    assert "Within the limit of 900 %: B takes" in render(comparison_blocks(compared, fail_above=9.0), 120, False)


def test_equal_runs_are_equal(tmp_path: Path) -> None:
    compared = compare([nested_run(CLOCKED, tmp_path)], [nested_run(CLOCKED, tmp_path, "beef0000beef")])
    text = render(comparison_blocks(compared), 120, False)
    assert "No difference: 3,060 cycles per step (exact, simulated)." in text
    assert "3 of 3 layers: equal" in text
    assert not any(row.significant for row in compared.parts[0].layers)
    assert "not significant" not in text
    assert "interval" not in text.replace("there are no intervals", "")


def differing(notes: Iterable[Finding]) -> list[tuple[str, str, str]]:
    """Fields in which the descriptions of both sides differ."""
    return [field for note in notes if isinstance(note, DifferingDescriptions) for field in note.fields]


def test_it_says_what_differs_in_the_accelerators(tmp_path: Path) -> None:
    base = nested_run(CLOCKED, tmp_path)
    faster = nested_run(replace(NARROW, clock_hz=2e9), tmp_path, options={"mapping": "best", "set": ""})
    notes = compare([base], [faster]).notes
    fields = differing(notes)
    assert ("maeri.read_ports", "128", "64") in fields
    assert ("mapping", "as described", "best") in fields
    assert DifferingClocks(1e9, 2e9) in notes
    finite = nested_run(FINITE, tmp_path)
    assert SimulatedTraffic in map(type, compare([finite], [finite]).notes)
    assert ("memory.buffer_bytes", "none", "65536") in differing(compare([base], [finite]).notes)


def test_screens_documents_and_pages(tmp_path: Path) -> None:
    runs = [nested_run(CLOCKED, tmp_path), narrow_run(tmp_path)]
    compared = compare(runs[:1], runs[1:])
    asked = (runs[0].id, runs[1].id)
    snapshots.check("comparison_simulated_100", render(comparison_blocks(compared, layers=5, asked=asked), 100, False))
    document = json.loads(json.dumps(comparison_document(compared)))
    assert document["exact"] is True
    step = document["parts"][0]["step"]["metrics"]
    assert step["cycles_a:simulated"] == {"value": WHOLE, "unit": "cycle", "source": "simulated"}
    assert step["ratio:derived"]["reason"] == "exact, simulated"
    page = page_text([summarise(run) for run in runs], runs, compared)
    assert "A cycles" in page
    assert "instead of 3,060 cycles" in page


def test_measured_and_simulated_have_no_ratio(tmp_path: Path) -> None:
    simulated, measured = nested_run(CLOCKED, tmp_path), stepped([10.0] * 8)
    for sides in (([simulated], [measured]), ([measured], [simulated]), ([simulated, measured], [simulated])):
        with pytest.raises(SondaError, match="abcd1234abcd is simulated, others are measured"):
            compare(*sides)


def test_runs_of_a_side_that_differ_are_not_mixed(tmp_path: Path) -> None:
    base, other = nested_run(CLOCKED, tmp_path), narrow_run(tmp_path)
    with pytest.raises(SondaError, match="the 2 runs of side B differ in their cycles; name one of them"):
        compare([base], [base, other])
    assert compare([base, base], [other]).a == (base.id, base.id)


def test_a_run_without_anything_on_an_engine_is_refused(tmp_path: Path) -> None:
    accelerator = load_accelerator("maeri-256")
    program = ModelProgram((Call("", "Softmax", 0, -1, 0),), (), (), {(0, "_softmax"): 1})
    idle = run_of(simulate(program, Placement(accelerator)), accelerator, tmp_path, "1d1e00001d1e")
    with pytest.raises(SondaError, match="nothing of 1d1e00001d1e ran on an engine"):
        compare([nested_run(CLOCKED, tmp_path)], [idle])


def test_engines_that_only_one_side_has_are_named_as_a_whole(tmp_path: Path) -> None:
    compared = compare(
        [nested_run(CLOCKED, tmp_path)], [nested_run(load_accelerator("tpu-16x16"), tmp_path, "beef0000beef")]
    )
    engines = OtherEngines((("maeri", "flexible dense, 256 multipliers"),), (("mesh", "mesh, 16x16"),))
    assert engines in compared.notes
    assert not any("multipliers" in name or "route" in name for name, _, _ in differing(compared.notes))
