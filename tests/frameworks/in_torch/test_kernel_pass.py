"""torch.profiler around a few steps: what it leaves behind in the program that is timed after it."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.collector.sampling.schedule import Schedule
from sonda.frameworks.torch.observe.device.kernel_pass import CUPTI_ATTACHED, TEARDOWN, KernelPass
from sonda.frameworks.torch.observe.observer import TorchObserver


class FakeTorch:
    """PyTorch with a GPU of which only the order of the calls is known."""

    def __init__(self, cuda: str | None) -> None:
        self.calls: list[str] = []
        self.version = SimpleNamespace(cuda=cuda)
        self.cuda = SimpleNamespace(is_initialized=lambda: True, synchronize=lambda: self.calls.append("wait"))
        self._C = SimpleNamespace(_autograd=SimpleNamespace(_profiler_enabled=lambda: False))
        self.profiler = SimpleNamespace(
            profile=lambda **options: self, supported_activities=tuple, record_function=lambda name: self
        )

    def start(self) -> None:
        self.calls.append(f"start {os.environ.get(TEARDOWN)}")

    def stop(self) -> None:
        self.calls.append(f"stop {os.environ.get(TEARDOWN)}")

    def export_chrome_trace(self, path: str) -> None:
        self.calls.append("export")

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        pass


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has decided; whatever a test sets is gone after it."""
    monkeypatch.setenv(TEARDOWN, "")
    monkeypatch.delenv(TEARDOWN)


def recorded(torch: FakeTorch, directory: Path) -> list[str]:
    recorder = Recorder(str(directory))
    kernels = KernelPass(recorder, torch)
    kernels.begin(recorder.stream())
    assert kernels.active
    kernels.end()
    recorder.close()
    return torch.calls


def test_cupti_is_let_go_of_before_the_next_step_is_timed(tmp_path: Path, unset: None) -> None:
    calls = recorded(FakeTorch("13.0"), tmp_path)
    # It is done in a call of CUDA behind the end: that one is Sonda's own. The variable is asked for again then.
    assert calls == ["wait", "start 1", "wait", "stop 1", "export", "wait"]
    assert os.environ[TEARDOWN] == "1"


@pytest.mark.parametrize(("chosen", "notes"), [("0", [CUPTI_ATTACHED]), ("1", [])])
def test_later_steps_that_are_timed_with_cupti_attached_are_said_to_be(
    chosen: str, notes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setenv(TEARDOWN, chosen)
    recorder, schedule = Recorder(str(tmp_path)), Schedule(count=False, profile=True)
    observer = TorchObserver(recorder, torch, schedule)
    observer.kernel_pass = KernelPass(recorder, FakeTorch("13.0"))
    stream = recorder.stream()
    observer.kernel_pass.begin(stream)
    observer._follow_kernels(stream, wanted=False)
    recorder.close()
    assert schedule.notes == notes


@pytest.mark.parametrize("chosen", ["0", "1"])
def test_what_the_program_decided_stays(chosen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TEARDOWN, chosen)
    assert f"start {chosen}" in recorded(FakeTorch("13.0"), tmp_path)
    assert os.environ[TEARDOWN] == chosen


@pytest.mark.parametrize(
    ("cuda", "set_"), [("12.6", True), ("12.10", True), ("12.4", False), ("11.8", False), (None, False)]
)
def test_only_where_cuda_graphs_bear_it(cuda: str | None, set_: bool, tmp_path: Path, unset: None) -> None:
    recorded(FakeTorch(cuda), tmp_path)
    assert (TEARDOWN in os.environ) is set_
