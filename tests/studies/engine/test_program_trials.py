"""Trying remedies on a program, with processes that are constructed instead of started."""

from __future__ import annotations

import dataclasses
import sys

import pytest

from sonda.analysis.trials import summarise_trials
from sonda.record.trials import TrialProcess
from sonda.report.screen import render
from sonda.report.views.steps.tries import trials_blocks, trials_fields
from sonda.studies.engine import program_trials
from sonda.studies.engine.program_trials import NO_TIME, Candidate, choose_candidates
from sonda.targets.program.trial import TrialOutcome

SOURCE = "import torch\ntorch.set_num_threads(1)\nloader = DataLoader(data, batch_size=8)\nnet = Net()\n"
STEPS = [10.0, 10.1, 9.9, 10.0]
"""ms."""


def survey(path="train.py", **others):
    place = {"file": str(path)}
    return {
        "loaders": [{**place, "line": 3, "workers": 0, "batch": 8, "samples": 40, "pin": False}],
        "optimizers": [],
        "models": [{**place, "line": 4, "images": False, "bits": 32, "channels_last": False, "device": "cpu"}],
        "threads": 1,
        "set_threads": {**place, "line": 2},
        "compiles": False,
        "autocast": False,
        "cuda": False,
        "tensor_cores": False,
        "matmul": "highest",
        **others,
    }


class Machine:
    """Stands in for `run_trial`: threads halve the step, workers change nothing, compiling fails."""

    def __init__(self, path) -> None:
        self.survey = survey(path)
        self.names: list[str] = []
        self.interrupted_at = 0
        self.bare = TrialOutcome(seen=20, starting_s=0.1, survey=self.survey)

    def __call__(self, command, plan, remedy="", value=None, limit=60.0) -> TrialOutcome:
        self.names.append(remedy)
        if len(self.names) == self.interrupted_at:
            raise KeyboardInterrupt
        if remedy == "compile":
            return dataclasses.replace(self.bare, failure="RuntimeError: a graph that cannot be")
        factor = (0.5 if remedy == "threads" else 1.0) * (1 + 0.001 * (len(self.names) % 5))
        process = TrialProcess(ns=[factor * step * 1e6 for step in STEPS], samples=8, losses=[1.0, 1.0])
        return dataclasses.replace(self.bare, process=process, applied=1)


@pytest.fixture
def machine(monkeypatch, tmp_path) -> Machine:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SOURCE)
    machine = Machine(tmp_path / "train.py")
    monkeypatch.setattr(program_trials, "run_trial", machine)
    monkeypatch.setattr(program_trials, "run_patched", lambda *given: machine([], None))
    monkeypatch.setattr(program_trials, "available_threads", lambda: 2)
    monkeypatch.setattr(program_trials, "_processor_flags", lambda: "avx2")
    return machine


def carry_out(tmp_path, seconds=300.0):
    experiment = program_trials._Experiment([sys.executable, "train.py"], seconds, lambda text: None, tmp_path)
    return experiment.carry_out(steps=50, optimizes=True)


def test_what_helped_becomes_a_patch_and_what_crashed_a_line(machine, tmp_path):
    trials = carry_out(tmp_path)
    summary = summarise_trials(trials, str(tmp_path))
    by_name = {one.name: one for one in summary.remedies}
    assert summary.remedies[0].name == "threads"
    assert by_name["threads"].speedup.value == pytest.approx(2.0, rel=0.01)
    assert by_name["threads"].patch.runs
    assert "+torch.set_num_threads(2)" in (tmp_path / "threads.patch").read_text()
    assert by_name["workers"].patch is None
    assert by_name["compile"].speedup.reason == "RuntimeError: a graph that cannot be"
    assert machine.names.count("compile") == 1  # what failed is not tried again
    assert machine.names.count("threads") == summary.rounds

    text = render(trials_blocks(summary), 120, False)
    assert "2 threads" in text
    assert f"patch -p1 < {tmp_path / 'threads.patch'}" in text
    assert "RuntimeError: a graph that cannot be" in text
    assert "no GPU" in text
    document = trials_fields(summary)["tried"]
    assert document["remedies"][0]["losses"] == "within tolerance"
    assert document["remedies"][0]["speedup"]["low"] > 1


def test_rounds_have_the_bare_program_among_the_remedies(machine, tmp_path):
    trials = carry_out(tmp_path)
    first = machine.names[1 : 2 + len(trials.remedies)]
    assert sorted(first) == sorted(["", *(one.name for one in trials.remedies)])


def test_what_there_is_no_time_for_is_named(machine, tmp_path):
    machine.bare = dataclasses.replace(machine.bare, starting_s=20.0)
    trials = carry_out(tmp_path, seconds=200.0)  # a process takes 21.8 s: five, and three for every remedy
    assert [one.name for one in trials.remedies] == ["workers"]
    assert {one.name for one in trials.untried if one.reason == NO_TIME} == {"threads", "compile"}


def test_an_interrupt_keeps_the_rounds_that_are_complete(machine, tmp_path):
    machine.interrupted_at = 1 + 2 * 4  # the survey, a round of four, and the next, of three, not to its end
    trials = carry_out(tmp_path)
    assert {len(one.processes) for one in trials.remedies if not one.failure} == {len(trials.bare)}
    assert len(trials.bare) >= 1


def test_a_program_that_writes_at_once_is_not_tried_and_says_why(machine, monkeypatch, tmp_path):
    machine.bare = dataclasses.replace(machine.bare, refused="it writes log.txt", seen=0)
    monkeypatch.setattr(program_trials, "run_trial", lambda *given, **named: machine.bare)
    trials = carry_out(tmp_path)
    assert trials.refused == "it writes log.txt before its first step"
    text = render(trials_blocks(summarise_trials(trials)), 100, False)
    assert "No remedy was tried: it writes log.txt before its first step." in text


def chosen(step_s=0.001, cores=2, flags="", compiler=True, **others):
    candidates, untried = choose_candidates(survey(**others), step_s, cores, flags, compiler)
    return {one.name: one.value for one in candidates}, {one.name: one.reason for one in untried}


def test_only_what_makes_sense_is_tried():
    tried, untried = chosen()
    assert tried == {"workers": 2, "threads": 2, "compile": None}
    assert untried["tf32"] == untried["pin"] == "no GPU"
    assert untried["channels_last"] == "no convolution"
    assert untried["batch"] == "no loader with a batch size and data for larger batches"
    assert untried["autocast"] == "the processor has no bfloat16"


def test_what_a_program_does_already_is_not_tried():
    adam = {"file": "t.py", "line": 1, "can_fuse": True, "can_foreach": True, "fused": True, "foreach": False}
    tried, untried = chosen(compiles=True, autocast=True, optimizers=[adam], threads=2, step_s=1.0, loaders=[])
    assert tried == {}
    assert untried["compile"] == "it compiles already"
    assert untried["fused"] == "it is fused already"
    assert untried["threads"] == "it uses all cores"
    assert untried["workers"] == "no DataLoader"


def test_a_gpu_has_remedies_of_its_own():
    loader = {"file": "t.py", "line": 1, "workers": 2, "batch": 8, "samples": 1000, "pin": False}
    tried, _ = chosen(cuda=True, tensor_cores=True, loaders=[loader], threads=2)
    assert tried.keys() == {"batch", "tf32", "autocast", "pin", "compile"}


def test_short_steps_on_all_cores_are_tried_on_one():
    assert Candidate("threads", 1) in choose_candidates(survey(threads=2), 0.001, 2, "", True)[0]
