"""Nothing is more than all of it: a ratio beyond its bound is not shown, and says why; else it stays within it."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import MACHINE, trained
from sonda.analysis.bounds import BoundedRatio, Judgement, share_of
from sonda.analysis.comparison.optimisations import _within_most
from sonda.analysis.comparison.scaling import ScalingPoint, amdahl, amdahl_bound, efficiency, scaling_curve, serial_part
from sonda.analysis.corun.interference import _at_most
from sonda.analysis.device.kernel_roofline import Roofs, kernel_roofs
from sonda.analysis.device.kernels import KernelTotals
from sonda.analysis.roofline import Ceilings
from sonda.analysis.run_summary import summarise
from sonda.analysis.statistics import proportion
from sonda.analysis.steps.costs import Scale
from sonda.analysis.steps.operation_counts import Tally
from sonda.analysis.steps.training import Epoch, Training, right_share
from sonda.analysis.summary import Value
from sonda.report.words import verdict_sentences

WHY = "one of both is wrong"
CEILINGS = Ceilings(1e11, 2e10, 4e10, 3e7, 3e7, 5e3, 5e3, "float32", 1, "2026-11-15", "torch 2.13.0")
sizes = st.floats(1e-3, 1e12, allow_nan=False)


def ratio(value: float, low: float | None = None, high: float | None = None) -> Value:
    return Value(value, "1", "derived", low, high)


@pytest.mark.parametrize(
    ("value", "low", "high", "doubt", "judged"),
    [
        (0.8, 0.7, 0.9, 0.0, Judgement.HOLDS),
        (1.0, None, None, 0.0, Judgement.HOLDS),
        (0.98, 0.9, 1.2, 0.0, Judgement.HOLDS),
        (1.03, 0.97, 1.1, 0.0, Judgement.AT_BOUND),
        (1.03, None, None, 0.05, Judgement.AT_BOUND),
        (1.03, None, None, 0.0, Judgement.BROKEN),
        (5.78, 5.5, 6.0, 0.05, Judgement.BROKEN),
        (-0.2, -0.3, -0.1, 0.0, Judgement.BROKEN),
        (-0.02, -0.1, 0.1, 0.0, Judgement.AT_BOUND),
        (1.1, -0.3, 2.5, 0.0, Judgement.AT_BOUND),
        (-0.1, -2.0, 1.4, 0.0, Judgement.AT_BOUND),
        (math.nan, None, None, 0.0, Judgement.HOLDS),
    ],
)
def test_a_bound_holds_is_reached_or_is_broken(
    value: float, low: float | None, high: float | None, doubt: float, judged: Judgement
) -> None:
    assert BoundedRatio(ratio(value, low, high), doubt=doubt).judgement is judged


def test_an_interval_ends_at_the_bound() -> None:
    assert BoundedRatio(ratio(0.98, 0.9, 1.2)).value(WHY) == ratio(0.98, 0.9, 1.0)
    assert BoundedRatio(ratio(1.03, 0.97, 1.1)).value(WHY) == ratio(1.0, 0.97, 1.0)


def test_what_broke_its_bound_is_missing_with_the_reason() -> None:
    assert BoundedRatio(ratio(5.78, 5.5, 6.0)).value(WHY) == Value(None, "1", "derived", reason=WHY)


def test_a_part_of_a_whole_has_the_ends_of_both() -> None:
    share = share_of(Value(20, "ns", "measured", 10, 30), Value(100, "ns", "measured", 80, 120)).ratio
    assert (share.value, share.low, share.high) == (0.2, pytest.approx(10 / 120), pytest.approx(30 / 80))


@given(sizes, st.floats(0, 3), st.floats(0, 3), st.floats(0.1, 50))
def test_what_is_shown_is_always_possible(value: float, below: float, beyond: float, most: float) -> None:
    shown = BoundedRatio(ratio(value, value / (1 + below), value * (1 + beyond)), most).value(WHY)
    for number in (shown.value, shown.low, shown.high):
        assert number is None or 0 <= number <= most
    assert (shown.value is None) == (value / (1 + below) > most * (1 + 1e-9) + 1e-9)


# ---- Costs against ceilings -----------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.floats(1, 1e12), st.floats(0, 1e12), st.floats(0, 1e12), st.floats(1, 1e4), st.floats(1, 1.5))
def test_no_cost_is_above_the_roof(
    time: float, compute: float, memory: float, operations: float, spread: float
) -> None:
    tally = Tally(flops=1e9, bytes=1e6, operations=operations, compute=compute, memory=memory)
    taken = Value(time, "ns", "measured", time / spread, time * spread)
    cost = Scale(taken, CEILINGS, "", "", 5e3).cost(taken, tally)
    assert cost.roof.value is None or cost.roof.value <= 1
    assert cost.roof.high is None or cost.roof.high <= 1
    assert (cost.roof.value is None) == bool(cost.roof.reason)
    assert not (cost.bound and cost.above), "what beat a limit is not bound by another that does not explain it"
    if cost.bound in ("compute", "memory"):
        assert cost.limits[cost.bound] <= 1.05 * time * spread


def test_578_percent_of_a_bandwidth_is_not_shown() -> None:
    taken = Value(1e6, "ns", "measured", 0.95e6, 1.05e6)
    tally = Tally(flops=1e6, bytes=1e6, operations=1, compute=10.0, memory=5.78e6)
    cost = Scale(taken, CEILINGS, "", "", 1.0).cost(taken, tally)
    assert cost.roof.value is None and "faster than the ceilings" in cost.roof.reason
    assert (cost.bound, cost.above) == ("", "memory")
    assert cost.bandwidth.value == pytest.approx(1e9), "what was measured stays"


def test_a_kernel_faster_than_its_device_has_no_percent_of_it() -> None:
    kernel = KernelTotals("k", "kernel", 1, 1000, metrics={"flops_single:counted": 5e6, "dram_bytes:counted": 9e6},
                          counted={"flops_single:counted": 1, "dram_bytes:counted": 1})  # fmt: skip
    roofs = Roofs({"float32": Value(1e12, "FLOP/s", "measured")}, {"float32": Value(2e12, "FLOP/s", "published")},
                  {"DRAM": Value(1e12, "B/s", "measured")}, {})  # fmt: skip
    (row,) = kernel_roofs([kernel], roofs, "float32")
    assert (row.peak.value, row.theory.value, row.roof.value, row.bandwidth["DRAM"].value) == (None,) * 4
    assert row.bound == "" and "maker's peak" in row.theory.reason
    assert row.achieved.value == pytest.approx(5e6 / 1e-6), "what was measured stays"


# ---- Several devices against fewer ----------------------------------------------------------------------------------


def training(train: float, rest: float, devices: int = 1) -> Training:
    return Training((Epoch(1, train, None, None, None, None, train),), rest, None, None, None, None, devices, None)


def test_535_percent_of_the_ideal_is_not_shown() -> None:
    share = efficiency(ratio(5.35, 5.2, 5.5), 1)
    assert share.value is None and share.reason.startswith("5.35 times as fast is more than as many devices")
    assert efficiency(ratio(1.79, 1.7, 1.9), 2) == ratio(0.895, 0.85, 0.95)
    assert efficiency(ratio(2.05, 1.9, 2.2), 2) == ratio(1.0, 0.95, 1.0)


def test_a_serial_part_of_253_percent_is_not_shown() -> None:
    # (1/S - 1/p) / (1 - 1/p) = 2.53 for S = 0.5666 with two devices: Karp and Flatt 1990.
    slow = serial_part(ratio(0.5666, 0.55, 0.58), 2)
    assert slow.value is None and "slower than the base" in slow.reason
    fast = serial_part(ratio(2.5, 2.4, 2.6), 2)
    assert fast.value is None and "more than 2 times as many devices" in fast.reason
    part = serial_part(ratio(1.6, 1.5, 1.7), 2)
    assert part.value == pytest.approx(0.25)  # (1/1.6 - 1/2) / (1/2)
    assert part.low == pytest.approx(2 / 1.7 - 1) and part.high == pytest.approx(2 / 1.5 - 1)


def test_a_speed_up_of_5_35_has_no_bound_of_1_68_beside_it() -> None:
    serial = (2 / 1.68 - 1) / 1  # Amdahl's bound of two devices is 1.68
    base = training(1 - serial, serial)
    assert amdahl_bound([base], 2, ratio(1.5)).value == pytest.approx(1.68)
    beyond = amdahl_bound([base], 2, ratio(5.35, 5.2, 5.5))
    assert beyond.value is None and "beyond this bound of 1.68" in beyond.reason
    points = [ScalingPoint("one", 1, ratio(1.0), ratio(1.0)), ScalingPoint("two", 2, ratio(5.35, 5.2, 5.5), ratio(6.0))]
    curve = scaling_curve("one", [base], points)
    assert curve is not None and curve.bound(1) == pytest.approx(1.0) and curve.bound(2) is None


@given(st.floats(0.01, 100), st.floats(1, 2), st.floats(0, 0.99), st.integers(2, 64))
def test_scaling_figures_are_possible_or_missing(speedup: float, spread: float, serial: float, devices: int) -> None:
    measured = ratio(speedup, speedup / spread, speedup * spread)
    for share in (efficiency(measured, devices), serial_part(measured, devices)):
        assert share.value is None or 0 <= share.value <= 1
        assert (share.value is None) == bool(share.reason)
    bound = amdahl_bound([training(1 - serial, serial)], devices, measured)
    assert bound.value is None or measured.low is None or measured.low <= bound.value * (1 + 1e-6)
    assert amdahl(serial, devices) <= devices


def test_an_option_of_the_input_brings_no_more_than_the_wait_or_there_is_no_such_bound() -> None:
    assert _within_most(ratio(1.5, 1.4, 1.6), 1.68) == (ratio(1.5, 1.4, 1.6), 1.68)
    assert _within_most(ratio(5.35, 0.5, 20.0), 1.68) == (ratio(1.68, 0.5, 1.68), 1.68)
    assert _within_most(ratio(5.35, 5.2, 5.5), 1.68) == (ratio(5.35, 5.2, 5.5), None)
    once, most = _within_most(ratio(5.35), 1.68)
    assert once.value is None and most == 1.68 and "5.35x was measured" in once.reason


# ---- Programs side by side ------------------------------------------------------------------------------------------


def test_two_programs_get_no_more_done_together_than_twice() -> None:
    assert _at_most(ratio(2.02, 1.97, 2.07), 2) == ratio(2.0, 1.97, 2.0)
    beyond = _at_most(ratio(2.3, 2.2, 2.4), 2)
    assert beyond.value is None and "faster together than alone" in beyond.reason


# ---- Samples that were told right -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("right", "of", "low", "high"),
    # Newcombe 1998, Stat. Med. 17, 857, table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_interval_of_a_share_is_the_published_one(right: int, of: int, low: float, high: float) -> None:
    assert proportion(right, of) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@given(st.integers(1, 10_000).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of))))
def test_the_interval_of_a_share_holds_it_and_is_symmetric(counted: tuple[int, int]) -> None:
    right, of = counted
    low, high = proportion(right, of)
    assert 0 <= low <= right / of <= high <= 1
    wrong_low, wrong_high = proportion(of - right, of)
    assert (low, high) == (pytest.approx(1 - wrong_high, abs=1e-12), pytest.approx(1 - wrong_low, abs=1e-12))


def test_a_share_of_nothing_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="3 of 0"):
        proportion(3, 0)


def test_the_accuracy_of_57_images_has_an_interval() -> None:
    right = right_share(40 / 57, 57, "nothing was tested")
    assert right.value == pytest.approx(40 / 57)
    assert (right.low, right.high) == proportion(40, 57)
    assert right_share(None, 57, "nothing was tested").reason == "nothing was tested"
    unknown = right_share(0.7, None, "nothing was tested")
    assert unknown.low is None and "not known" in unknown.reason


# ---- Whole runs -----------------------------------------------------------------------------------------------------

PERCENT = re.compile(r"([\d.,]+) %")


@settings(max_examples=25, deadline=None)
@given(st.floats(-4, 4), st.floats(-4, 4), st.floats(-4, 4), st.lists(st.floats(0.2, 5), min_size=6, max_size=12))
def test_no_headline_of_a_run_says_more_than_all(peak: float, memory: float, cost: float, times: list[float]) -> None:
    """Ceilings ten thousand times too low or too high, and steps that differ by as much as 25 times."""
    entry = MACHINE["ceilings"]["threads"]["1"]
    wrong = {
        **entry,
        "flops": {name: rate * 10**peak for name, rate in entry["flops"].items()},
        "dram_bandwidth": entry["dram_bandwidth"] * 10**memory,
        "cache_bandwidth": entry["cache_bandwidth"] * 10**memory,
        "operation_ns": entry.get("operation_ns", 1e3) * 10**cost,
        "training_operation_ns": entry.get("training_operation_ns", 1e3) * 10**cost,
    }
    machine = {**MACHINE, "ceilings": {**MACHINE["ceilings"], "threads": {"1": wrong}}}
    summary = summarise(trained(times, machine=machine))
    for sentence in verdict_sentences(summary):
        shown = [float(number.replace(",", "")) for number in PERCENT.findall(sentence)]
        assert all(percent <= 100 for percent in shown), sentence
    for part in summary.parts:
        for row in (*part.phases, *part.layers):
            roof = row.cost.roof
            assert roof.value is None or (roof.value <= 1 and (roof.high is None or roof.high <= 1))
            assert roof.value is not None or roof.reason


def test_a_bound_of_zero_leaves_room_for_rounding() -> None:
    """A sum that should be 0 may come out as a tiny negative number."""
    assert BoundedRatio(ratio(-1e-12), least=0.0, most=1.0).judgement is not Judgement.BROKEN
    assert BoundedRatio(ratio(-0.1), least=0.0, most=1.0).judgement is Judgement.BROKEN


def test_the_roof_is_held_against_what_is_executed() -> None:
    """5 x 4 images padded to 7 x 6: 13 x 10 of 15 x 12 products of a 3 x 3 kernel exist, 72 %."""
    taken = Value(1e6, "ns", "measured")
    flops = 1.25 * CEILINGS.flops * 1e-3
    executed = flops * (13 * 10) / (15 * 12)
    tally = Tally(
        flops=flops, bytes=1.0, operations=1, compute=1e9 * executed / CEILINGS.flops, skipped=flops - executed
    )
    cost = Scale(taken, CEILINGS, "", "", 0.0).cost(taken, tally)
    assert cost.flops.value == flops and cost.achieved.value == pytest.approx(1.25 * CEILINGS.flops), "nominal stays"
    assert cost.executed is not None and cost.executed.value == pytest.approx(executed)
    assert cost.roof.value == pytest.approx(1.25 * 130 / 180)
    assert cost.executed_rate.value == pytest.approx(1.25 * 130 / 180 * CEILINGS.flops), "its place under the roof"
    assert (cost.bound, cost.above) == ("compute", "")


def test_what_a_ceiling_explains_is_not_overhead_beyond_the_time() -> None:
    """12 µs, of which memory explains 90 %; three operations of 9 µs on average would take 27. Without traffic these
    are small operations, however fast."""
    scale, spent = (
        Scale(Value(1e6, "ns", "measured"), CEILINGS, "", "", operation_ns=9_000.0),
        Value(12_000, "ns", "measured"),
    )
    moving = Tally(operations=3, flops=1e3, bytes=1.08e5, memory=10_800.0)
    assert scale.cost(spent, moving).bound == "memory"
    assert scale.cost(spent, Tally(operations=3, flops=1e3, bytes=1e3, memory=100.0)).bound == "overhead"
