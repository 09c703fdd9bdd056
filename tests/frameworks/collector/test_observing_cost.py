"""What observing is said to cost: layers, phases, and the counters that are read at the ends of phases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sonda.frameworks.collector import overhead as call_cost
from sonda.frameworks.collector import overhead as reading_cost
from sonda.frameworks.collector.recorder import Stream
from sonda.frameworks.harness import announcer as announced
from sonda.frameworks.reconstruction.assembly import Assembly
from sonda.record.spans import Spans, Words
from sonda.targets.circumstances import _overhead

NAN = float("nan")


class Clock:
    """Goes on only while something is read."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


class Counters:
    """Reading the group takes 100 ns, the operating system's counts 700 more at both ends together, and asking threads
    5,000 more where a phase is known to be long."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.os = self.reader_with_os = self

    def take(self, stream: Any) -> int:
        self.clock.ns += 100
        stream.count(b"reading")
        return 0

    def begin(self, last: int, time: int) -> bool:
        self.clock.ns += 300
        return last > 1_000_000

    def end(self, stream: Any, before: bool, time: int) -> None:
        self.clock.ns += 5_400 if before else 400
        stream.push((1, 2))


def test_reading_is_timed_with_and_without_what_the_system_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(reading_cost, "spent", clock)
    costs = reading_cost.measure_reading_costs(Counters(clock))
    assert costs == {"group_ns": 200.0, "os_ns": 900.0, "wait_ns": 5_000.0}


def observed(clock: list[float], wait: list[float]) -> Spans:
    """Two steps of 100 µs, each with two phases of a layer, by what was counted in the four phases."""
    kinds = ["step", "phase", "layer", "phase", "layer"] * 2
    phases = [place for place, kind in enumerate(kinds) if kind == "phase"]
    metrics = {name: np.full(len(kinds), NAN) for name in ("task_clock:counted", "run_queue_wait:counted")}
    metrics["task_clock:counted"][phases] = clock
    metrics["run_queue_wait:counted"][phases] = wait
    duration = np.array([100_000 if kind == "step" else 10_000 for kind in kinds])
    words = {"kind": Words.of(kinds), "pass": Words.constant("timed", len(kinds))}
    return Spans({"start": np.arange(len(kinds)), "duration": duration}, words, metrics)


READING = {"group_ns": 50.0, "os_ns": 3_000.0, "wait_ns": 10_000.0}


@pytest.mark.parametrize(
    ("clock", "wait", "share"),
    [
        # 2 x 1 µs of layers and 2 x 0.5 µs of phases, the counters asked for at each.
        ([NAN] * 4, [NAN] * 4, (2_000 + 1_000 + 2 * 50) / 100_000),
        # One phase of each step reads the system's counts instead, the other does not.
        ([1.0, NAN] * 2, [NAN] * 4, (2_000 + 1_000 + 50 + 3_000) / 100_000),
        # And asks every thread for its wait.
        ([1.0, NAN] * 2, [1.0, NAN] * 2, (2_000 + 1_000 + 50 + 3_000 + 10_000) / 100_000),
    ],
)
def test_the_share_of_a_step_counts_every_reading(clock: list[float], wait: list[float], share: float) -> None:
    told = _overhead(Assembly(observed(clock, wait), span_ns=1_000.0, phase_ns=500.0, reading=dict(READING)))
    assert told["step_share"] == pytest.approx(share)
    assert told["readings_per_step"] == (0 if clock[0] != 1.0 else 1)
    assert READING.items() <= told.items()


def test_a_backward_and_a_forward_have_costs_of_their_own() -> None:
    """1 µs of a layer's forward, 4 of its backward, 0.5 of a phase, 6 of a forward, in two steps of 100 µs."""
    kinds = ["step", "phase", "layer", "phase", "layer"] * 2
    words = {
        "kind": Words.of(kinds),
        "name": Words.of(["", "forward", "Linear", "backward", "Linear"] * 2),
        "direction": Words.of(["", "", "forward", "", "backward"] * 2),
    }
    spans = Spans({"start": np.arange(10), "duration": np.array([100_000, 40_000, 30_000, 50_000, 40_000] * 2)}, words)
    costs = {"mark_ns": 4_000.0, "forward_ns": 6_000.0}
    told = _overhead(Assembly(spans, span_ns=1_000.0, phase_ns=500.0, reading=costs))
    assert told["step_share"] == pytest.approx((1_000 + 4_000 + 6_000 + 500) / 100_000)


def test_steps_of_very_different_lengths_share_what_all_of_them_cost() -> None:
    """Nine steps of 10 µs without layers, and one of 1 ms with 100: the mean count over the median step would be 10 x
    1 µs of 10 µs, the whole of it; it is 100 µs of 1,090."""
    kinds = ["step"] * 10 + ["layer"] * 100
    duration = np.array([10_000] * 9 + [1_000_000] + [10] * 100)
    spans = Spans({"start": np.arange(110), "duration": duration}, {"kind": Words.of(kinds)})
    told = _overhead(Assembly(spans, span_ns=1_000.0, phase_ns=500.0))
    assert told["step_share"] == pytest.approx(100 / 1_090)


def test_a_busy_machine_makes_no_recording_cost_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the processor's own time counts: a clock on the wall, which goes on while others run, is not asked."""
    clock = Clock()
    monkeypatch.setattr(call_cost, "spent", clock)

    def record() -> None:
        clock.ns += 300

    assert call_cost.time_repeated(record, Stream(False)) == 300.0


def test_a_phase_that_is_announced_is_timed_behind_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of a program is: done over and over it would take a tenth of that."""
    monkeypatch.setattr(announced, "time_cold", lambda phase: phase() or 1_234.0)
    span_ns, phase_ns = announced._measure_costs()
    assert 0 < span_ns != phase_ns == 1_234.0
