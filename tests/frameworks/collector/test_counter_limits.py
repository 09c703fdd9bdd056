"""What counting takes is booked, whatever it is spent on, and ends counting at its limit."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.collector.sampling.schedule import Schedule
from sonda.frameworks.torch.observe.counting import counter as counting

torch = pytest.importorskip("torch")

SECOND = 1_000_000_000


class Clock:
    """Time that passes only where somebody looks at it, or is told to."""

    def __init__(self, tick: int) -> None:
        self.time, self.tick = 0, tick

    def __call__(self) -> int:
        self.time += self.tick
        return self.time


def start(monkeypatch: pytest.MonkeyPatch, tick: int = 0) -> tuple[Any, Any, Clock]:
    clock = Clock(tick)
    monkeypatch.setattr(counting, "now", clock)
    recorder = Recorder("")
    counter = counting.OperationCounter(torch, recorder)
    stream = recorder.stream()
    counter.start(stream, [], limited=True)
    return counter, stream, clock


def test_phases_without_operations_end_counting_too(monkeypatch: pytest.MonkeyPatch) -> None:
    counter, stream, _ = start(monkeypatch, tick=SECOND)
    for _ in range(100):
        mode = counter.mode(stream)
        if mode is None:
            break
        with mode:
            pass
    assert counter.exhausted


def test_what_the_program_does_between_two_operations_is_not_booked(monkeypatch: pytest.MonkeyPatch) -> None:
    counter, stream, clock = start(monkeypatch)
    with counter.mode(stream):
        for _ in range(10):
            clock.time += 5 * SECOND
            torch.ones(1)
    assert not counter.exhausted


def test_what_pytorch_takes_to_call_the_mode_is_booked(monkeypatch: pytest.MonkeyPatch) -> None:
    counter, stream, clock = start(monkeypatch)
    monkeypatch.setattr(counting, "LONGEST_NS", 10 * counting.DISPATCH_NS)
    with counter.mode(stream):
        for _ in range(9):
            clock.time += counting.DISPATCH_NS
            torch.ones(1)
        assert not counter.exhausted
        clock.time += counting.DISPATCH_NS
        torch.ones(1)
    assert counter.exhausted


def test_a_thread_that_is_gone_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    counter, mine, _ = start(monkeypatch)
    mine.schedule = Schedule()
    assert not counter.is_free()
    counter.stop(mine)

    def leave() -> None:
        stream = counter.recorder.stream()
        stream.schedule = Schedule()
        counter.start(stream, [], limited=True)

    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
    assert counter.is_free()
