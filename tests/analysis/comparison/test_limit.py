"""A slowdown against a limit: clear, or else how many repetitions would tell, by theory and by simulation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from builders import RunBuilder, stepped
from sonda.analysis.comparison.limit import LimitCheck, Variation, check_limit
from sonda.analysis.comparison.runs import compare
from sonda.analysis.statistics import OF_MEDIAN, ratio, repetitions_to_tell, side
from sonda.analysis.summary import Value
from sonda.record.run import Run
from sonda.report.views.compare.document import comparison_document
from sonda.report.views.compare.tables import change_words, limit_words, repetitions_of, verdict_words

LIMIT = 0.05
VARIES = (Variation(0.03, 3), Variation(0.03, 3))


def slowdown(value: float | None, low: float | None = None, high: float | None = None) -> Value:
    return Value(value, "1", "derived", low, high, "" if low is not None else "one step on a side")


@pytest.mark.parametrize(
    ("value", "low", "high", "outcome", "code"),
    [
        (0.10, 0.06, 0.14, "slower", 1), (0.10, 0.05, 0.15, "unclear", 3), (0.01, -0.03, 0.05, "within", 0),
        (0.01, -0.04, 0.06, "unclear", 3), (-0.2, -0.3, -0.1, "within", 0), (0.3, None, None, "unclear", 3),
        (None, None, None, "unclear", 3),
    ],
)  # fmt: skip
def test_a_limit_is_passed_or_kept_only_where_the_interval_says_so(value, low, high, outcome, code) -> None:
    check = check_limit(slowdown(value, low, high), LIMIT, VARIES)
    assert (check.outcome, check.exit_code) == (outcome, code)
    assert (check.repetitions is None) == (outcome != "unclear" or value is None)


def test_the_number_is_that_of_a_two_sample_t_test() -> None:
    """A textbook's: a difference of one standard deviation, 80 % power and 5 % on both sides take 17 in each group;
    half of a deviation takes 64 (Cohen 1988, table 2.4.1)."""
    assert repetitions_to_tell([1.0, 1.0], 1.0) == 17
    assert repetitions_to_tell([1.0, 1.0], 0.5) == 64
    assert repetitions_to_tell([1.0, 1.0], 0.3) is None, "which takes 175"
    assert repetitions_to_tell([0.0, 0.0], 0.0) is None
    assert repetitions_to_tell([0.0, 0.0], 0.1) == 2


def test_as_many_processes_as_are_asked_for_tell_four_times_in_five() -> None:
    """Processes vary by 3 % and nothing is slower: how often the very comparison then keeps the limit of 5 %."""
    deviation = 0.03
    wanted = repetitions_to_tell([deviation, deviation], math.log1p(LIMIT), OF_MEDIAN)
    assert wanted is not None

    def told(processes: int, trials: int = 150) -> float:
        draws = np.random.default_rng(7)
        kept = 0
        for _ in range(trials):
            sides = []
            for _ in range(2):
                speeds = np.exp(draws.normal(0, deviation, processes))
                sides.append(side([np.full((6, 1), speed) for speed in speeds], [6] * processes))
            _, _, high = ratio(*sides)
            kept += high[0] - 1 <= LIMIT
        return kept / trials

    assert 0.70 <= told(wanted) <= 0.95  # 0.8 with a standard error of 0.033
    assert told(max(2, wanted // 3)) < 0.5


def test_what_lies_at_the_limit_by_chance_asks_for_no_more_than_equal_sides() -> None:
    at_limit, equal = (check_limit(slowdown(value, -0.1, 0.2), LIMIT, VARIES) for value in (0.0499, 0.0))
    assert at_limit.repetitions == equal.repetitions
    far = check_limit(slowdown(0.3, 0.04, 0.6), LIMIT, VARIES)
    assert far.repetitions is not None and equal.repetitions is not None and far.repetitions < equal.repetitions


def test_more_is_asked_for_than_there_is() -> None:
    quiet = (Variation(1e-6, 9), Variation(1e-6, 4))
    assert check_limit(slowdown(0.3, 0.0, 0.6), LIMIT, quiet).repetitions == 10


def test_one_process_tells_only_the_least_number() -> None:
    check = compare([stepped([100, 130, 90, 110, 80, 120, 100, 95])], [stepped([100, 70, 120, 96, 88, 125, 93, 111])])
    unclear = check.check(LIMIT)
    assert unclear.at_least and unclear.repetitions is not None
    assert limit_words(unclear).endswith(
        f"At least {unclear.repetitions} processes on each side would tell (--repeat {unclear.repetitions})."
    )


def test_a_program_is_run_again_with_its_tag_because_repeat_does_not_repeat_it() -> None:
    unclear = LimitCheck(LIMIT, slowdown(0.02, -0.1, 0.2), "unclear", 7)
    assert limit_words(unclear, repetitions="runs").endswith(
        "About 7 runs on each side would tell: run each program 7 times with one tag (sonda run --tag A train.py)."
    )


@pytest.mark.parametrize(
    ("workload", "repetitions"),
    [({"command": "python train.py"}, "runs"), ({"block": True}, "runs"), ({"name": "cnn"}, "processes")],
)
def test_what_to_repeat_follows_from_what_was_run(workload: dict[str, Any], repetitions: str) -> None:
    sides = [[stepped(times, workload=workload)] for times in ([100, 130, 90, 110], [100, 70, 120, 96])]
    assert repetitions_of(compare(*sides)) == repetitions


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (
            LimitCheck(LIMIT, slowdown(0.18, 0.061, 0.302), "slower"),
            "Above the limit of 5 %: B takes 6.1 to 30 % more time (95 %).",
        ),
        (
            LimitCheck(LIMIT, slowdown(0.0, -0.03, 0.02), "within"),
            "Within the limit of 5 %: B takes 3.0 % less to 2.0 % more time (95 %).",
        ),
        (
            LimitCheck(LIMIT, slowdown(-0.2, -0.3, -0.1), "within"),
            "Within the limit of 5 %: B takes 10 to 30 % less time (95 %).",
        ),
        (
            LimitCheck(LIMIT, slowdown(-0.997, -0.998, -0.996), "within"),
            "Within the limit of 5 %: B takes >99 % less time (95 %).",
        ),
        (
            LimitCheck(LIMIT, slowdown(0.02, -0.1, 12.0), "unclear"),
            "Cannot tell whether B is above the limit of 5 %: B takes 10 % less to >1,000 % more time (95 %). More "
            "than 100 processes on each side would be needed: choose a larger limit.",
        ),
        (
            LimitCheck(LIMIT, slowdown(0.3), "unclear"),
            "Cannot tell whether B is above the limit of 5 %: B takes 30 % more time (one step on a side). Measure "
            "several processes on each side.",
        ),
    ],
)
def test_a_limit_in_words_has_the_unit_and_the_direction_of_its_interval(check: LimitCheck, words: str) -> None:
    assert limit_words(check) == words


@pytest.mark.parametrize(
    ("share", "words"),
    [(-0.998, ">99 % fewer"), (-0.16, "16 % fewer"), (0.16, "16 % more")],
)
def test_cycles_are_counted_and_their_limit_is_exact(share: float, words: str) -> None:
    check = LimitCheck(LIMIT, slowdown(share, share, share), "within")
    assert limit_words(check, exact=True) == f"Within the limit of 5 %: B takes {words} cycles (exact, simulated)."


def test_the_document_has_the_limit_and_what_came_of_it() -> None:
    found = compare([stepped([100] * 8)], [stepped([130] * 8)])
    assert "limit" not in comparison_document(found)
    assert comparison_document(found, LIMIT)["limit"] == {
        "above": 0.05, "outcome": "slower", "exit_code": 1, "repetitions": None, "at_least": False,
    }  # fmt: skip


def phases_run(steps: list[float], data: float) -> Run:
    builder = RunBuilder()
    part = builder.part("train")
    for at, step in enumerate(steps):
        builder.step(part, step, {"data": data + 0.01 * (at % 3), "forward": 1 + 0.01 * (at % 2)})
    return builder.run()


@pytest.mark.parametrize(
    ("data", "start", "end"),
    [
        (2, "The step cannot be told: B is ", "instead of 100 ms; data is surely faster."),
        (18, "The step cannot be told: B is ", "instead of 100 ms; data is surely slower."),
        (6, "No significant difference: B is ", "per step instead of 100 ms."),
    ],
)
def test_a_phase_that_surely_differs_is_in_the_headline_where_the_step_cannot_be_told(
    data: float, start: str, end: str
) -> None:
    steps = [100.0, 60.0, 140.0, 90.0, 110.0, 80.0, 120.0, 100.0]
    headline = verdict_words(compare([phases_run(steps, 6)], [phases_run(steps, data)]))
    assert headline.startswith(start) and headline.endswith(end)


@pytest.mark.parametrize(
    ("value", "low", "high", "significant", "words"),
    [
        (1.3, 1.25, 1.35, True, "B is TEXT than A (95 %: 1.25 to 1.35x)"),
        (0.8, 0.79, 0.81, True, "B is TEXT than A (95 %: 1.23 to 1.27x)"),
        (1.3, 1.1, 1.5, True, "B is TEXT than A (95 %)"),
        (1.02, 0.8, 1.3, False, "No significant difference: B is 1.25x faster to 1.30x slower (95 %)"),
        (1.02, 0.0, 1.3, False, "No significant difference: B is >1,000x faster to 1.30x slower (95 %)"),
        (1.02, 0.01, 90.0, False, "No significant difference: B may be more than 10x faster or slower (95 %)"),
    ],
)
def test_a_headline_and_its_interval_speak_alike(value, low, high, significant, words) -> None:
    assert change_words(Value(value, "1", "derived", low, high), significant, "TEXT") == words
