"""Medians, intervals, warm-up and ratios, against hand counts, tables and brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonda.analysis.doubts import Drifted, FewSteps, NoisySteps
from sonda.analysis.statistics import effective_size, find_warmup, judge_noise, median, medians, ratio, side, student

series = st.lists(st.floats(1.0, 1e9), min_size=2, max_size=60)


def test_median_of_odd_and_even_series():
    assert median([3, 1, 2]).value == 2
    assert median([4, 1, 2, 3]).value == 2.5


def test_one_value_has_no_interval():
    assert (median([5.0]).low, median([5.0]).high) == (None, None)
    assert math.isnan(median([5.0]).noise)
    assert [median(list(range(count))).few for count in (1, 2, 5, 6, 20)] == [0, 2, 5, 0, 0]


def test_the_median_of_nothing_is_refused():
    with pytest.raises(ValueError):
        median([])


def test_a_constant_series_has_an_interval_of_no_width():
    found = median([7.0] * 20)
    assert (found.value, found.low, found.high, found.noise) == (7.0, 7.0, 7.0, 0.0)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 7])
def test_few_values_give_their_whole_range(count):
    # Even the second smallest to the second largest of 7 cover the median with only 1 - 2 * 8/128 = 87.5 %.
    found = median(np.arange(count, dtype=float))
    assert (found.low, found.high) == (0, count - 1)


@pytest.mark.parametrize("count", range(6, 200))
def test_coverage_is_near_95_percent_by_the_binomial_sum(count):
    found = median(np.arange(count, dtype=float))
    low, high = int(found.low), int(found.high)
    # The median lies between the order statistics low and high when low+1 to high values are below it.
    covered = sum(math.comb(count, k) for k in range(low + 1, high + 1)) / 2**count
    assert 0.925 <= covered <= 0.985


def test_the_rank_law_agrees_with_resampling_by_brute_force():
    rng = np.random.default_rng(5)
    values = np.sort(rng.lognormal(size=41))
    resampled = np.median(rng.choice(values, (20_000, 41)), axis=1)
    # 41 values: the expanded tail is Phi(-sqrt(41/40) * 2.0211) = 0.0204 (Student's t with 40 degrees: 2.0211).
    low, high = np.quantile(resampled, [0.0204, 1 - 0.0204])
    found = median(values)
    position = {value: index for index, value in enumerate(values)}
    assert abs(position[found.low] - np.searchsorted(values, low)) <= 1
    assert abs(position[found.high] - np.searchsorted(values, high)) <= 1


def test_columns_are_judged_as_they_are_alone():
    table = np.random.default_rng(1).lognormal(size=(20, 5))
    middle, low, high = medians(table)
    for column in range(5):
        alone = median(table[:, column])
        assert (middle[column], low[column], high[column]) == (alone.value, alone.low, alone.high)


@given(series, st.sampled_from([0.25, 2.0, 1024.0]))
def test_the_unit_of_time_does_not_matter(values, scale):
    plain, scaled = median(values), median(np.array(values) * scale)
    assert scaled.value == plain.value * scale
    assert (scaled.low, scaled.high) == (plain.low * scale, plain.high * scale)
    assert find_warmup(np.array(values) * scale) == find_warmup(values)
    assert effective_size(np.array(values) * scale) == pytest.approx(effective_size(values), abs=1)


@given(series)
def test_the_interval_holds_the_median_and_lies_in_the_range(values):
    found = median(values)
    assert min(values) <= found.low <= found.value <= found.high <= max(values)


@given(series)
def test_order_does_not_change_the_median_or_its_interval(values):
    assert median(values) == median(sorted(values))


def test_no_warmup_in_a_constant_series():
    assert find_warmup([10.0] * 20) == 0


def test_one_slow_first_step():
    assert find_warmup([50.0] + [10.0] * 19) == 1


def test_one_fast_first_step_is_not_like_the_rest_either():
    assert find_warmup([5.0] + [10.0] * 19) == 1


def test_a_decaying_beginning_ends_where_it_is_within_two_percent():
    # 10 * (1 + 0.5**k): 20, 15, 12.5, 11.25, 10.625, 10.3125 are more than 2 % above 10; 10.15625 is not.
    assert find_warmup([10 * (1 + 0.5**k) for k in range(40)]) == 6


def test_a_step_within_two_percent_is_no_warmup_however_quiet_the_rest():
    assert find_warmup([10.1] + [10.0] * 19) == 0


def test_noise_alone_is_no_warmup():
    rng = np.random.default_rng(3)
    found = [find_warmup(rng.normal(100, 5, 30)) for _ in range(500)]
    # Beyond Tukey's outer fence lies about one normal step in 10^5 of a long series, some more of 20 values.
    assert np.mean(np.array(found) > 0) < 0.02


@pytest.mark.parametrize("count", [12, 20, 21, 30, 50])
@pytest.mark.parametrize("levels", [(10.0, 20.0), (20.0, 10.0)])
def test_a_change_of_level_in_the_middle_is_no_warmup(count, levels):
    half = count // 2
    assert find_warmup([levels[0]] * half + [levels[1]] * (count - half)) == 0


@pytest.mark.parametrize(("durations", "expected"), [([], 0), ([9], 0), ([9, 1], 0), ([9, 1, 1], 0), ([9, 1, 1, 1], 1)])
def test_short_series(durations, expected):
    assert find_warmup(durations) == expected


@given(st.integers(0, 6), st.integers(0, 1000))
def test_slow_steps_put_in_front_are_all_found(slow, seed):
    steady = np.random.default_rng(seed).uniform(99, 101, 20)
    assert find_warmup(np.concatenate([np.full(slow, 500.0), steady])) == slow


def test_independent_steps_count_whole():
    rng = np.random.default_rng(0)
    sizes = [effective_size(rng.normal(100, 3, 50)) for _ in range(200)]
    # r exceeds 2/sqrt(n), two of its standard deviations, in about one series of fifty.
    assert np.mean(np.array(sizes) == 50) > 0.9


def test_a_constant_series_counts_whole():
    assert effective_size([5.0] * 30) == 30


def test_steps_that_come_in_tens_are_worth_about_one_each():
    # r = 0.9 between neighbours in blocks of ten: 200 * 0.1 / 1.9 = 10.5.
    blocks = np.repeat(np.random.default_rng(2).normal(100, 5, 20), 10)
    assert 6 <= effective_size(blocks) <= 20


def test_correlated_steps_widen_the_interval():
    blocks = np.repeat(np.random.default_rng(2).normal(100, 5, 20), 10)
    assert median(blocks, effective_size(blocks)).noise > 1.5 * median(blocks).noise


def test_quiet_steps_raise_no_doubt():
    assert judge_noise(np.random.default_rng(0).normal(100, 1, 20)) == []


def test_few_steps_are_named_with_their_remedy():
    assert judge_noise([1.0, 1.1], part="train") == [FewSteps("train", 2, 20, by_option=True)]


def test_noise_names_how_many_steps_would_do():
    # Alternating 80 and 120: median 100, interval 80 to 120, so ±20 %: (20/5)^2 = 16 times as many steps.
    (doubt,) = judge_noise([80.0, 120.0] * 5)
    assert isinstance(doubt, NoisySteps) and doubt.noise.value == pytest.approx(0.2)
    assert doubt.wanted == 160
    # 10 and 190: ±90 %, 324 times as many steps. 55 and 145 still ask for (45/5)^2 = 81 times as many.
    (doubt,) = judge_noise([10.0, 190.0] * 5)
    assert isinstance(doubt, NoisySteps) and (doubt.noise.value, doubt.wanted) == (pytest.approx(0.9), 0)
    (doubt,) = judge_noise([55.0, 145.0] * 5)
    assert isinstance(doubt, NoisySteps) and (doubt.noise.value, doubt.wanted) == (pytest.approx(0.45), 810)


def test_programs_are_not_told_options():
    (doubt,) = judge_noise([80.0, 120.0] * 5, repeatable=False)
    assert isinstance(doubt, NoisySteps) and not doubt.by_option and doubt.wanted == 160


def test_a_machine_that_changed_its_speed_is_named():
    (doubt,) = judge_noise([100.0] * 10 + [130.0] * 10)
    assert isinstance(doubt, Drifted) and doubt.change.value == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (20, 2.086), (30, 2.042), (120, 1.980)],
)
def test_student_quantiles_are_those_of_the_printed_table(freedom, expected):
    assert student(0.975, freedom) == pytest.approx(expected, abs=6e-4)


def test_student_far_in_the_tail():
    # Printed: t(0.9995) with 10 degrees of freedom is 4.587.
    assert student(0.9995, 10) == pytest.approx(4.587, abs=6e-4)


def test_ratio_of_constant_series_is_exact():
    a, b = side([np.full((5, 1), 10.0)], [5]), side([np.full((5, 1), 13.0)], [5])
    assert [float(end[0]) for end in ratio(a, b)] == [1.3, 1.3, 1.3]


def test_ratio_without_time_is_missing():
    a, b = side([np.zeros((5, 1))], [5]), side([np.full((5, 1), 13.0)], [5])
    assert np.isnan(ratio(a, b)[0][0])


def test_side_of_several_runs_is_the_median_of_their_medians():
    runs = [np.array([[1.0], [2.0], [9.0]]), np.array([[4.0], [4.0], [4.0]]), np.array([[3.0], [30.0], [30.0]])]
    assert side(runs, [3, 3, 3]).middle[0] == 4.0


def test_bootstrap_error_of_two_constant_runs_by_hand():
    # Resampling {10, 20}: mean of the two draws is 10, 15, 15 or 20, standard deviation sqrt(12.5); times sqrt(2/1) for
    # the variance that resampling two runs cannot show: 5. Over the median 15: 1/3.
    found = side([np.full((4, 1), 10.0), np.full((4, 1), 20.0)], [4, 4])
    assert found.freedom == 1
    assert found.error[0] == pytest.approx(1 / 3, rel=0.03)


def test_more_comparisons_give_wider_intervals():
    rng = np.random.default_rng(0)
    a, b = side([rng.normal(10, 1, (20, 1))], [20]), side([rng.normal(10, 1, (20, 1))], [20])
    _, low, high = ratio(a, b)
    _, low_of_many, high_of_many = ratio(a, b, comparisons=100)
    assert low_of_many[0] < low[0]
    assert high_of_many[0] > high[0]


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.floats(0.01, 100.0))
def test_ratio_is_the_same_in_every_unit_and_turns_over_when_sides_do(seed, scale):
    rng = np.random.default_rng(seed)
    one, other = rng.lognormal(0, 0.1, (12, 1)), rng.lognormal(0.2, 0.1, (12, 1))
    forth = ratio(side([one], [12]), side([other], [12]))
    scaled = ratio(side([one * scale], [12]), side([other * scale], [12]))
    back = ratio(side([other], [12]), side([one], [12]))
    assert [float(x[0]) for x in scaled] == pytest.approx([float(x[0]) for x in forth])
    assert [1 / float(back[i][0]) for i in (0, 2, 1)] == pytest.approx([float(x[0]) for x in forth])


@pytest.mark.parametrize("processes", [1, 3, 8])
def test_intervals_of_ratios_hold_the_truth_as_often_as_they_say(processes):
    rng = np.random.default_rng(processes)
    held, trials = 0, 200

    def draw(centre: float) -> list[np.ndarray]:
        # Processes differ by 3 % (only seen with several), steps by 5 %.
        offsets = rng.normal(0, 0.03 if processes > 1 else 0.0, processes)
        return [centre * np.exp(offset + rng.normal(0, 0.05, (15, 1))) for offset in offsets]

    for _ in range(trials):
        _, low, high = ratio(side(draw(100.0), [15] * processes), side(draw(120.0), [15] * processes))
        held += bool(low[0] <= 1.2 <= high[0])
    # 95 % of 200 is 190; four binomial standard deviations are 12. Above is allowed: the bootstrap counts steps twice.
    assert held >= 178


def test_among_a_hundred_unchanged_layers_one_seems_changed_in_one_comparison_of_twenty():
    rng = np.random.default_rng(0)
    wrong = plain = 0
    for _ in range(100):
        a, b = (side([rng.normal(100, 5, (15, 100))], [15]) for _ in range(2))
        _, low, high = ratio(a, b, comparisons=100)
        wrong += bool(((low > 1) | (high < 1)).any())
        _, low, high = ratio(a, b)
        plain += bool(((low > 1) | (high < 1)).any())
    # 5 of 100 expected, with a binomial standard deviation of 2.2; without widening nearly all.
    assert wrong <= 5 + 4 * 2.2
    assert plain > 90
