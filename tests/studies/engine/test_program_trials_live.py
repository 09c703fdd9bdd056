"""Trying a remedy on a real program, from the survey to a patch that makes it as fast."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sonda.analysis.trials import WITHIN, summarise_trials
from sonda.studies.engine import program_trials
from sonda.targets.program.trial import TrialPlan, run_trial

PROGRAM = """\
import time

import torch

torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(20):
    loss = net(torch.ones(3, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    time.sleep(0.2 / torch.get_num_threads())  # work that threads share
    optimizer.step()
"""


def test_all_threads_help_a_program_that_chose_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(PROGRAM)
    kept = tmp_path / "kept"
    kept.mkdir()
    monkeypatch.setattr(program_trials, "EAGER", ("threads",))
    monkeypatch.setattr(program_trials, "ROUNDS", 2)
    monkeypatch.setattr(program_trials, "MOST_ROUNDS", 2)
    monkeypatch.setattr(program_trials, "available_threads", lambda: 2)
    command = [sys.executable, "train.py"]
    experiment = program_trials._Experiment(command, 300.0, lambda text: None, kept)
    trials = experiment.carry_out(steps=20, optimizes=True)
    [threads] = summarise_trials(trials).remedies
    assert threads.helps, threads
    assert threads.speedup.value == pytest.approx(2.0, rel=0.25)
    assert threads.losses == WITHIN
    assert threads.patch.runs
    subprocess.run(["patch", "-p1", "-i", kept / "threads.patch"], check=True, cwd=tmp_path, stdout=subprocess.DEVNULL)
    patched = run_trial(command, TrialPlan(1, 3), limit=120)
    assert patched.survey["threads"] == 2
