"""Deterministic mode: what it switches on, what it refuses, and what a checkpoint must hold for the same bits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from sonda.frameworks.harness.settings import Driving
from sonda.frameworks.torch.drive import state as torch_state
from sonda.frameworks.torch.drive.determinism import WORKSPACE, be_deterministic, explain_refusal
from sonda.frameworks.torch.drive.steps import make_loop
from sonda.frameworks.torch.parallel.local_sgd import WeightAverager
from sonda.record.errors import SondaError
from sonda.targets.job import Job, make_job
from sonda.targets.local.worker import describe_failure
from sonda.targets.ranks import plan as parallel_plan
from sonda.targets.ranks.plan import make_plan
from sonda.targets.target import parse_target
from sonda.targets.training.trainer import training_settings
from sonda.workloads.catalogue import describe


@pytest.fixture
def switches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything that the mode touches is put back."""
    monkeypatch.setenv(WORKSPACE, "")  # so that its absence is noted too
    monkeypatch.delenv(WORKSPACE)
    cudnn = torch.backends.cudnn
    before = torch.are_deterministic_algorithms_enabled(), cudnn.deterministic, cudnn.benchmark
    yield
    torch.use_deterministic_algorithms(before[0])
    cudnn.deterministic, cudnn.benchmark = before[1:]


@pytest.mark.usefixtures("switches")
def test_a_driven_task_switches_it_on_and_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.backends.cudnn.benchmark = True
    how: dict[str, Any] = {"train": True, "steps": 1, "warmup": 0, "seconds": 1.0}
    task = describe("mlp", {"layers": "8-4-2", "batch": "2"}).build("torch", True, 0)
    make_loop(task, None, Driving(**how))  # type: ignore[arg-type]
    assert not torch.are_deterministic_algorithms_enabled() and WORKSPACE not in os.environ
    make_loop(task, None, Driving(**how, deterministic=True))  # type: ignore[arg-type]
    assert torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled()
    assert torch.backends.cudnn.deterministic and not torch.backends.cudnn.benchmark
    assert os.environ[WORKSPACE] == ":4096:8"


@pytest.mark.usefixtures("switches")
def test_an_environment_that_says_the_contrary_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKSPACE, ":0:0")
    with pytest.raises(SondaError, match="--deterministic: CUBLAS_WORKSPACE_CONFIG is ':0:0'; unset it, or set :4096"):
        be_deterministic()
    monkeypatch.setenv(WORKSPACE, ":16:8")
    be_deterministic()


@pytest.mark.usefixtures("switches")
def test_an_operation_without_such_a_way_is_named() -> None:
    """PyTorch's own refusal, which comes when the operation is met."""
    be_deterministic()
    with pytest.raises(RuntimeError) as caught:
        torch.zeros(4).put_(torch.tensor([1, 1]), torch.tensor([1.0, 2.0]))
    shown = explain_refusal(caught.value)
    assert shown is not None
    assert str(shown) == "--deterministic: PyTorch has no such way for put_; leave it out"
    assert explain_refusal(RuntimeError("shapes cannot be multiplied")) is None
    assert describe_failure(caught.value).startswith("the workload failed: ")


@pytest.mark.parametrize(
    ("on", "words"),
    [
        ("hybrid=cpu/1+cpu/1", "shares that are measured are never the same; write @shares=24:8"),
        ("localsgd=cpu/1+cpu/1", "shares that are measured are never the same"),
        ("hybrid=cpu/1+cpu/1@auto", "--deterministic does not let auto choose by the clock"),
        ("pipeline=cpu/2+cpu/1", "the cut between unlike devices is measured"),
        ("pipeline=cuda:0+cpu", "the cut between unlike devices is measured"),
    ],
)
def test_what_the_clock_would_decide_is_refused(on: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_plan, "has_gpu", lambda: True)
    job = Job(workload="mlp", train=True, on=on)
    make_plan(job, parse_target(on))
    with pytest.raises(SondaError) as caught:
        make_plan(make_job({"workload": "mlp", "train": True, "on": on, "deterministic": True}), parse_target(on))
    assert words in str(caught.value)


@pytest.mark.parametrize("on", ["hybrid=cpu/1+cpu/1@shares=equal", "ddp=cpu/2+cpu/1", "pipeline=cpu/1+cpu/1"])
def test_what_is_fixed_is_accepted(on: str) -> None:
    assert not make_plan(Job(workload="mlp", train=True, on=on, deterministic=True), parse_target(on)).moving


def test_a_run_says_it_and_its_checkpoints_are_its_own() -> None:
    usual, fixed = (Job(workload="cnn", train=True, epochs=2, deterministic=asked) for asked in (False, True))
    assert fixed.settings_record()["deterministic"] is True and "deterministic" not in usual.settings_record()
    assert training_settings(usual, "data") != training_settings(fixed, "data")


def test_the_scale_of_a_loss_goes_on() -> None:
    """Of float16: one gradient that is too large halves it, and it grows after so many good steps."""
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def scaler() -> Any:
        return torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=100)

    first, second = scaler(), scaler()
    for factor in (float("inf"), 1.0, 1.0):
        optimizer.zero_grad()
        first.scale(model(torch.ones(1, 3)).sum() * factor).backward()
        first.step(optimizer)
        first.update()
    arrays = torch_state.training_arrays(model, optimizer, first)
    torch_state.restore_training(arrays, model, optimizer, second)
    assert second.get_scale() == 512.0 and second._get_growth_tracker() == 2
    assert not any(name.startswith(torch_state.SCALER) for name in torch_state.training_arrays(model, optimizer))


def test_the_random_numbers_of_a_gpu_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for a GPU's generator; on a real one `python -m benchmarks deterministic` trains."""
    states = {"cuda:1": torch.arange(16, dtype=torch.uint8)}
    monkeypatch.setattr(torch_state, "_gpu", lambda model: "cuda:1")
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: states[device])
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: states.__setitem__(device, state))
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    arrays = torch_state.training_arrays(model, optimizer)
    states["cuda:1"] = torch.zeros(16, dtype=torch.uint8)
    torch_state.restore_training(arrays, model, optimizer)
    assert states["cuda:1"].tolist() == list(range(16))
    monkeypatch.setattr(torch_state, "_gpu", lambda model: None)
    assert torch_state.RANDOM_ON_GPU not in torch_state.training_arrays(model, optimizer)
    torch_state.restore_training(arrays, model, optimizer)  # by a processor: there is nothing to put back


def test_weights_are_averaged_after_the_same_steps_whoever_begins() -> None:
    """Six steps an epoch, averaged every four and at the end: two epochs, or the second after a restart."""

    class Listening(WeightAverager):
        def average_now(self) -> None:
            moments.append(now)
            self._samples = self._steps = 0

    def epochs(*numbers: int) -> list[int]:
        nonlocal now
        moments.clear()
        averager = Listening(None, None, 4)  # type: ignore[arg-type]
        for epoch in numbers:
            for step in range(6):
                now = 6 * epoch + step
                averager.end_step(step, 2)
            averager.average_now()
        return list(moments)

    now, moments = 0, list[int]()
    whole = epochs(0, 1)
    assert whole == [3, 5, 9, 11]
    assert epochs(0) + epochs(1) == whole
