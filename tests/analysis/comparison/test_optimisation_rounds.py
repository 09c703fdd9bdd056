"""Variants measured in rounds: what slows a whole round drops out, and intervals hold what they promise."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from optimisations_cases import CHANGES, summaries
from sonda.analysis.comparison.optimisations import weigh_options
from sonda.analysis.comparison.rounds import blocked_sides
from sonda.analysis.statistics import pooled, ratio, side


def in_rounds(
    drawn: np.random.Generator, noise: Sequence[float], rounds: int, drift: float, slower: Sequence[float]
) -> np.ndarray:
    """Logarithms of times: every round is as much slower as is drawn, and every process by itself."""
    shape = (len(noise), rounds)
    return np.log(slower)[:, None] + drift * drawn.standard_normal(rounds) + (
        np.array(noise)[:, None] * drawn.standard_normal(shape)
    )  # fmt: skip


@pytest.mark.parametrize("drift", [0.0, 0.3])
@pytest.mark.parametrize("noise", [[0.05] * 6, [0.02] * 5 + [0.2], [0.2] + [0.02] * 5, [0.02] * 3 + [0.08] * 3])
def test_intervals_within_rounds_hold_the_truth_with_and_without_drift(noise: list[float], drift: float) -> None:
    """150 experiments of a base and five variants that change nothing, in three rounds."""
    drawn = np.random.default_rng(5)
    held = 0
    for _ in range(150):
        base, *variants = blocked_sides(in_rounds(drawn, noise, 3, drift, [1.0] * 6))
        held += all(low[0] <= 1 <= high[0] for _, low, high in (ratio(base, one, 5) for one in variants))
    # Of 150 with 95 %, fewer than 135 come out once in a hundred times.
    assert held >= 135


def test_rounds_tell_what_drift_hides_and_cost_little_without_it() -> None:
    """1.5 times as slow, 5 % from process to process; rounds differ by 30 %, or not at all."""
    drawn = np.random.default_rng(6)
    widths: dict[tuple[float, str], list[float]] = {}
    for drift in (0.0, 0.3):
        for _ in range(50):
            times = in_rounds(drawn, [0.05] * 6, 3, drift, [1.0] * 5 + [1.5])
            apart = pooled([side([np.exp(one).reshape(1, 1) for one in row], [1] * 3) for row in times])
            for how, (base, *_, last) in (("rounds", blocked_sides(times)), ("apart", apart)):
                _, low, high = ratio(base, last, 5)
                widths.setdefault((drift, how), []).append(math.log(high[0] / low[0]))
    middle = {key: float(np.median(one)) for key, one in widths.items()}
    # Independent sides carry the drift: sqrt(0.3² + 0.05²) / 0.05 = 6 times as wide, less what medians of three lack.
    assert middle[0.3, "apart"] > 3 * middle[0.3, "rounds"]
    assert middle[0.0, "rounds"] < 1.3 * middle[0.0, "apart"]
    assert middle[0.3, "rounds"] == pytest.approx(middle[0.0, "rounds"], rel=0.3), "drift drops out"


def test_the_mean_square_of_a_small_table_by_hand() -> None:
    """Rows 0 1 2, 1 2 3, 2 3 7 (in logarithms): means of rows and of columns are 1, 2 and 4, of all 7/3; what
    is left is 1/3 1/3 -2/3, the same, and -2/3 -2/3 4/3. Squares 6/9 + 6/9 + 24/9 = 4 over (3-1)(3-1) = 4 are 1, and of
    a mean of three 1/3. The last row's own are 24/9 · 3/2 / 2 = 2, and of a mean of three 2/3: more, and kept."""
    found = blocked_sides(np.array([[0.0, 1, 2], [1, 2, 3], [2, 3, 7]]))
    assert all(one.common and one.freedom == 4 for one in found)
    assert [float(one.error[0]) for one in found] == pytest.approx([math.sqrt(1 / 3)] * 2 + [math.sqrt(2 / 3)])
    assert [float(np.log(one.middle[0])) for one in found] == pytest.approx([1, 2, 4])


def test_rounds_count_only_where_every_variant_has_each() -> None:
    times = {"base": 12.0, "prefetch": 6.0, "mixed": 4.0, "both": 2.0}
    runs = {name: summaries(middle, seed=number) for number, (name, middle) in enumerate(times.items())}
    turns = {name: [1, 2, 3, 4] for name in runs}
    assert weigh_options("", "base", runs, CHANGES, {}, turns).rounds == 4
    assert (
        weigh_options("", "base", {**runs, "both": runs["both"][:3]}, CHANGES, {}, {**turns, "both": [1, 2, 3]}).rounds
        == 0
    )
    assert weigh_options("", "base", runs, CHANGES, {}).rounds == 0
    # Two variants in four rounds: three degrees of freedom are too few.
    few = {name: runs[name] for name in ("base", "prefetch")}
    assert weigh_options("", "base", few, CHANGES, {}, turns).rounds == 0
