"""Trying remedies and repeating runs, with a measurement that is constructed instead of made."""

from __future__ import annotations

import dataclasses

import pytest

from builders import stepped
from sonda.analysis.doubts import SeveralProcesses
from sonda.analysis.findings import Remark
from sonda.analysis.run_summary import summarise
from sonda.analysis.summary import Remedy, Verdict
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.studies.engine import repetition, trial
from sonda.targets.job import Job, with_options

STEPS = [100, 101, 99, 100, 102, 98, 100, 101, 99, 100]
"""ms; half a per cent of noise."""


class Machine:
    """Stands in for `measure`: a remedy's step takes a known time."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def __call__(self, job: Job, store: object, place: object, say: object) -> Run:
        self.jobs.append(job)
        if job.compile:
            raise SondaError("no C++ compiler", "install one")
        batch = int(job.options.get("batch", "16"))
        factor = 0.5 if job.threads == 2 else batch / 16 * 0.8 if batch != 16 else 1.0
        workload = {"name": "cnn", "train": True, "batch": batch, "samples": batch}
        return stepped([factor * step for step in STEPS], workload=workload, target={"spec": job.on, "threads": 1})


@pytest.fixture
def machine(monkeypatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(trial, "measure", machine)
    monkeypatch.setattr(repetition, "measure", machine)
    return machine


def tried(machine: Machine, *remedies: Remedy) -> list[Remedy]:
    job = Job(workload="cnn", train=True)
    base = [machine(job, None, None, None)]
    summary = dataclasses.replace(summarise(base[0]), verdicts=(Verdict("none", Remark(""), {}, remedies),))
    return list(trial.try_remedies(job, base, summary, None, lambda text: None).verdicts[0].remedies)


def test_a_remedy_says_how_many_times_faster_it_is(machine):
    [remedy] = tried(machine, Remedy(Remark("two threads"), ("--threads", "2")))
    assert remedy.speedup.value == pytest.approx(2.0, rel=0.01)
    assert remedy.speedup.low <= 2.0 <= remedy.speedup.high
    assert remedy.speedup.source == "measured"


def test_a_larger_batch_is_judged_per_sample(machine):
    # four times the samples in 3.2 times the time: 1.25 times as many samples a second
    [remedy] = tried(machine, Remedy(Remark("more samples"), ("--batch", "64")))
    assert remedy.speedup.value == pytest.approx(1.25, rel=0.01)


def test_a_remedy_that_cannot_be_had_says_why_and_the_others_go_on(machine):
    compiled, threads = tried(
        machine, Remedy(Remark("compile"), ("--compile",)), Remedy(Remark("threads"), ("--threads", "2"))
    )
    assert compiled.speedup.value is None and compiled.speedup.reason == "no C++ compiler"
    assert threads.speedup.value == pytest.approx(2.0, rel=0.01)
    assert sum(job.compile for job in machine.jobs) == 1


def test_advice_in_words_is_left_alone(machine):
    [remedy] = tried(machine, Remedy(Remark("buy a faster machine")))
    assert remedy.speedup is None
    assert len(machine.jobs) == 1


def test_base_and_remedies_take_turns(machine):
    tried(machine, Remedy(Remark("threads"), ("--threads", "2")))
    assert [job.threads for job in machine.jobs] == [None, 2, None, 2, None, 2]


def test_words_of_a_remedy_change_settings_and_options():
    job = Job(workload="cnn", options={"image": "32x32"})
    changed = with_options(job, ("--channels-last", "--batch", "64", "--precision", "bf16", "--workers=2"))
    assert changed.channels_last is True and changed.precision == "bf16" and changed.workers == 2
    assert changed.options == {"image": "32x32", "batch": "64"}


def test_targets_take_turns_and_repetitions_share_a_group(machine):
    groups = repetition.measure_all(Job(workload="cnn"), ["cpu/1", "cpu/2"], 2, None, lambda text: None)
    assert [len(group) for group in groups] == [2, 2]
    assert [job.on for job in machine.jobs] == ["cpu/1", "cpu/2", "cpu/1", "cpu/2"]


def test_a_target_that_cannot_be_is_refused_before_anything_runs(machine):
    with pytest.raises(SondaError, match="cuda:0"):
        repetition.measure_all(Job(workload="cnn"), ["cpu", "cuda:0"], 1, None, lambda text: None)
    assert machine.jobs == []


def test_the_run_in_the_middle_is_shown():
    runs = [stepped([factor * step for step in STEPS], id=name) for factor, name in
            ((1.0, "aaaa"), (3.0, "cccc"), (2.0, "bbbb"))]  # fmt: skip
    run, summary = repetition.run_to_show(runs)
    assert run.id == "bbbb"
    note = summary.notes[0]
    assert isinstance(note, SeveralProcesses) and note.processes == 3
    assert note.step.value == pytest.approx(200e6, rel=0.01)
