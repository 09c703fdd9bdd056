"""Series over time: known change points are found and named, noise and drifts are not taken for them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import RunBuilder, stepped
from counted_examples import SKYLAKE, counted_run
from sonda.analysis import change_points
from sonda.analysis.change_points import LENGTHS, SHORTEST, SPLIT, STRETCH, find_changes
from sonda.analysis.counters.findings import LevelChange, SeriesDrift
from sonda.analysis.counters.hardware import read_places
from sonda.analysis.counters.time_series import per_interval
from sonda.analysis.run_summary import summarise
from sonda.analysis.steps.parts import parts
from sonda.record.run import Run


def noisy(levels: list[tuple[int, float]], spread: float, seed: int) -> np.ndarray:
    """Levels (how long, how high) with normal noise of `spread` times the level."""
    flat = np.concatenate([np.full(count, level, dtype=float) for count, level in levels])
    return flat * (1 + spread * np.random.default_rng(seed).standard_normal(len(flat)))


def alarms(make, times: int) -> int:
    """Series of `times` in which a change or a drift is found."""
    found = 0
    for seed in range(times):
        changes, drift = find_changes(make(np.random.default_rng(seed)))
        found += bool(changes) or drift is not None
    return found


# ---- critical values --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [14, 20, 40, 80])
def test_the_critical_values_are_passed_once_in_a_thousand(length: int) -> None:
    """Simulated anew with another generator; the count of 20,000 is binomial, mean 20, five deviations are 22."""
    times = 20_000
    generator = np.random.Generator(np.random.MT19937(5))
    ranks = generator.permuted(np.tile(np.arange(length, dtype=float), (times, 1)), axis=1)
    sums = np.concatenate([np.zeros((times, 1)), np.cumsum(ranks - (length - 1) / 2, axis=1)], axis=1)
    # Sampling without replacement: the variance of a sum of k of n ranks is k(n-k)(n+1)/12.
    splits, stretches = np.zeros(times), np.zeros(times)
    for size in range(SHORTEST, length - SHORTEST + 1):
        deviation = math.sqrt(size * (length - size) * (length + 1) / 12)
        splits = np.maximum(splits, np.abs(sums[:, size]) / deviation)
        stretches = np.maximum(stretches, np.abs(sums[:, size:] - sums[:, :-size]).max(axis=1) / deviation)
    at = LENGTHS.index(length)
    assert (splits > SPLIT[at] + 5e-4).sum() <= 42
    assert (stretches > STRETCH[at] + 5e-4).sum() <= 42
    # They are not far too high either, where ranks are not too few to reach them.
    if length >= 20:
        assert (splits > SPLIT[at] - 0.15).sum() >= 10 and (stretches > STRETCH[at] - 0.15).sum() >= 10


# ---- noise ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "spread"), [(20, 0.1), (60, 0.3), (200, 0.1), (1000, 0.2)])
def test_pure_noise_has_changes_in_fewer_than_one_of_a_hundred(length: int, spread: float) -> None:
    # Three tests at one in 1,000: 0.6 of 200 series, and more than five once in 30,000 times.
    assert alarms(lambda generator: 100 * (1 + spread * generator.standard_normal(length)), 200) <= 5


@pytest.mark.filterwarnings("error")
def test_a_pattern_that_repeats_itself_has_none() -> None:
    """Every five of them have the same sum: no stretch is above the others."""
    assert find_changes(np.array([0.0, 1.0, 0.0, 0.0, 1.0] * 2)) == ((), None)


def test_noise_with_long_tails_has_no_changes_either() -> None:
    assert alarms(lambda generator: 100 * np.exp(0.2 * generator.standard_t(2, 100)), 200) <= 5


@pytest.mark.parametrize(("length", "correlation", "most"), [(200, 0.5, 0.04), (200, 0.8, 0.06), (50, 0.5, 0.09)])
def test_correlated_noise_has_few(length: int, correlation: float, most: float) -> None:
    """The module says how many: with 50 values a few in a hundred."""

    def make(generator: np.random.Generator) -> np.ndarray:
        pushes = generator.standard_normal(length + 100) * math.sqrt(1 - correlation**2)
        series = np.zeros(length + 100)
        for at in range(1, len(series)):
            series[at] = correlation * series[at - 1] + pushes[at]
        return 100 + 10 * series[100:]

    assert alarms(make, 150) <= most * 150


def test_single_slow_steps_are_no_change() -> None:
    series = noisy([(60, 100.0)], 0.02, 1)
    series[[10, 11, 30, 45]] *= 8
    assert find_changes(series) == ((), None)


def test_alternating_values_are_no_change() -> None:
    assert find_changes(np.tile([100.0, 160.0], 40)) == ((), None)


@pytest.mark.parametrize("series", [[], [1.0], [5.0] * 9, [7.0] * 300, [0.0] * 40])
def test_short_and_constant_series_do_not_change(series: list[float]) -> None:
    assert find_changes(np.array(series)) == ((), None)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e12, 1e12), max_size=80))
def test_any_series_is_answered_and_changes_lie_inside(series: list[float]) -> None:
    changes, drift = find_changes(np.array(series))
    assert not (changes and drift)
    ends = [0, *(change.at for change in changes), len(series)]
    assert ends == sorted(set(ends)) or not changes
    for change in changes:
        assert change.before == pytest.approx(np.median(series[ends[ends.index(change.at) - 1] : change.at]))


# ---- changes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "at", "factor", "spread"),
    [(20, 11, 0.7, 0.02), (40, 12, 1.5, 0.05), (100, 70, 1.2, 0.03), (400, 111, 0.8, 0.05), (5000, 3210, 1.3, 0.05)],
)
def test_a_known_change_is_found_where_it_is(count: int, at: int, factor: float, spread: float) -> None:
    for seed in range(10):
        changes, drift = find_changes(noisy([(at, 100.0), (count - at, 100.0 * factor)], spread, seed))
        assert len(changes) == 1 and drift is None
        assert abs(changes[0].at - at) <= 1
        assert changes[0].relative == pytest.approx(factor - 1, abs=2.5 * spread)


def test_a_level_that_comes_and_goes_has_two_ends() -> None:
    changes, _ = find_changes(noisy([(25, 100.0), (12, 140.0), (30, 100.0)], 0.02, 4))
    assert [change.at for change in changes] == [25, 37]
    assert changes[0].relative == pytest.approx(0.4, abs=0.05) and changes[1].until == 67


def test_stairs_are_stairs_and_no_drift() -> None:
    changes, drift = find_changes(noisy([(30, 100.0), (30, 130.0), (30, 160.0)], 0.02, 4))
    assert [change.at for change in changes] == [30, 60] and drift is None


def test_counts_that_begin_are_a_change_from_nothing() -> None:
    changes, _ = find_changes(np.repeat([0.0, 1200.0], [12, 18]))
    assert [(change.at, change.before, change.after, change.relative) for change in changes] == [
        (12, 0, 1200, math.inf)
    ]


def test_a_change_below_five_percent_is_not_told() -> None:
    assert find_changes(noisy([(50, 100.0), (50, 103.0)], 0.002, 2)) == ((), None)


@pytest.mark.parametrize(("count", "total"), [(40, 0.3), (100, 0.3), (1000, -0.4)])
def test_a_drift_is_a_drift_and_has_no_change_points(count: int, total: float) -> None:
    for seed in range(5):
        line = 100 * (1 + total * np.arange(count) / (count - 1))
        changes, drift = find_changes(line * (1 + 0.02 * np.random.default_rng(seed).standard_normal(count)))
        assert changes == () and drift is not None
        assert (drift.first, drift.last) == pytest.approx((100, 100 * (1 + total)), rel=0.03)


# ---- in words ---------------------------------------------------------------------------------------------------


def over_time(run):
    found = summarise(run).parts[0].over_time
    assert found is not None
    return found


def jitter(seed: int, count: int, spread: float = 0.01) -> np.ndarray:
    return 1 + spread * np.random.default_rng(seed).standard_normal(count)


def level_changes(run: Run) -> list[LevelChange]:
    findings = over_time(run).findings
    assert all(isinstance(found, LevelChange) for found in findings)
    return [found for found in findings if isinstance(found, LevelChange)]


def test_a_fall_of_ipc_is_named_with_its_step() -> None:
    # From step 12 on instructions stay and cycles grow by 1/0.7: IPC falls from 1.2 to 0.84. Time stays.
    run = counted_run("skylake-sp", SKYLAKE, 30, layers=False)
    spans = run.spans
    late = (spans.number("start") >= 11 * 10 * 1_000_000) & spans.where(kind="phase")
    spans.metrics["cycles:counted"][late] /= 0.7
    (change,) = (found for found in level_changes(run) if found.lead.name == "IPC")
    assert (change.of, change.at, change.time) == ("train", 12, None)
    assert (change.lead.before, change.lead.after) == (pytest.approx(1.2), pytest.approx(0.84))


def test_time_speaks_first_with_the_phase_and_what_changed_with_it() -> None:
    builder = RunBuilder()
    part = builder.part("train")
    wobble = jitter(1, 40)
    for step in range(40):
        late = step >= 20
        forward, backward = 40 * wobble[step], (80 if late else 50) * wobble[step]
        rows = builder.step(part, forward + backward, {"forward": forward, "backward": backward})
        builder.rows[rows["backward"]]["metrics"] = {"page_faults:counted": 1200.0 if late else 0.0}
        builder.rows[rows["forward"]]["metrics"] = {"page_faults:counted": 0.0}
    (change,) = level_changes(builder.run())
    assert (change.at, change.lead.name, change.lead.relative) == (21, "step time", pytest.approx(1 / 3, rel=0.05))
    assert change.phase is not None and (change.phase.name, change.phase.mostly) == ("backward", True)
    assert change.phase.difference == pytest.approx(30e6, rel=0.05)
    assert [(other.name, other.before, other.after) for other in change.others] == [("page faults", 0, 1200)]


def test_the_same_without_any_counter() -> None:
    (change,) = level_changes(stepped(100 * jitter(2, 30) * np.repeat([1, 0.6], [15, 15])))
    assert (change.at, change.lead.relative, change.others) == (16, pytest.approx(-0.4, rel=0.05), ())


def test_a_steady_run_says_nothing() -> None:
    found = over_time(stepped(100 * jitter(3, 30)))
    assert found.findings == () and [one.name for one in found.series] == ["step time"]


def test_a_drift_is_said_once() -> None:
    (drift,) = over_time(stepped(100 * jitter(4, 60) * np.linspace(1, 1.5, 60))).findings
    assert isinstance(drift, SeriesDrift)
    assert (drift.of, drift.name, drift.unit, drift.count) == ("train", "step time", "ns", 60)
    assert drift.last / drift.first == pytest.approx(1.5, rel=0.05)


def test_warmup_is_no_change_and_steps_keep_their_numbers() -> None:
    builder = RunBuilder()
    part = builder.part("train")
    lengths = [500.0] * 6 + [100.0] * 12 + [150.0] * 12
    for step, (length, wobble) in enumerate(zip(lengths, jitter(5, 30), strict=True)):
        builder.step(part, length * wobble, pass_="warmup" if step < 6 else "timed")
    found = over_time(builder.run())
    assert [found.series[0].step_of(change) for change in found.series[0].changes] == [19]
    assert isinstance(found.findings[0], LevelChange) and found.findings[0].at == 19


def test_a_handful_of_events_is_not_worth_telling() -> None:
    builder = RunBuilder()
    part = builder.part("train")
    for step, wobble in enumerate(jitter(6, 40)):
        rows = builder.step(part, 10 * wobble, {"forward": 10 * wobble})
        builder.rows[rows["forward"]]["metrics"] = {"context_switches:counted": 1.0 if step < 20 else 4.0}
    assert over_time(builder.run()).findings == ()


def test_series_of_rotated_groups_keep_the_steps_that_counted() -> None:
    found = {one.name: one for one in over_time(counted_run("skylake-sp", SKYLAKE, 12, layers=False)).series}
    assert found["IPC"].steps == tuple(range(1, 13))
    assert found["longest lat cache miss per 1,000 instructions"].steps == (4, 8, 12)
    assert found["Backend bound"].steps == (1, 5, 9)
    assert found["Backend bound"].values == pytest.approx((0.25,) * 3)


# ---- fixed intervals --------------------------------------------------------------------------------------------


def intervals(run, length: float):
    part = parts(run)[0]
    found = per_interval(part, read_places(part), length)
    assert found is not None
    return found


def test_counts_are_spread_over_fixed_intervals() -> None:
    builder = RunBuilder()
    part = builder.part("train")
    # Three steps of 10, 30 and 20 ms with 100, 600 and 100 faults; intervals of 20 ms.
    for length, faults in ((10, 100.0), (30, 600.0), (20, 100.0)):
        rows = builder.step(part, length, {"forward": length})
        builder.rows[rows["forward"]]["metrics"] = {"page_faults:counted": faults}
    found = intervals(builder.run(), 20e6)
    assert found.starts == (0, 20e6, 40e6)
    # 100 + 600/3, then 600*2/3, then 100; in 20 ms each.
    assert found.rates["page faults"] == pytest.approx((300 / 0.02, 400 / 0.02, 100 / 0.02))
    assert found.rates["steps"] == pytest.approx(((1 + 1 / 3) / 0.02, (2 / 3) / 0.02, 1 / 0.02))
    assert found.units["page faults"] == "1/s"


def test_an_interval_speaks_of_the_steps_that_are_known() -> None:
    builder = RunBuilder()
    part = builder.part("train")
    for step in range(4):
        rows = builder.step(part, 10, {"forward": 10})
        if step != 1:
            builder.rows[rows["forward"]]["metrics"] = {"cycles:counted": 1000.0, "instructions:counted": 500.0 * step}
    found = intervals(builder.run(), 20e6)
    assert found.rates["cycles"] == pytest.approx((1000 / 0.01, 2000 / 0.02))
    assert found.rates["IPC"] == pytest.approx((0.0, (1000 + 1500) / 2000))


def test_the_length_is_round_and_makes_about_sixty() -> None:
    found = over_time(stepped([10.0] * 100)).intervals
    assert found is not None and found.length == 20e6 and len(found.starts) == 50


def test_the_tables_belong_together() -> None:
    assert len(LENGTHS) == len(SPLIT) == len(STRETCH) and LENGTHS[-1] == change_points.MOST
