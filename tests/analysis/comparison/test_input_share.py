"""The most that options of the input can bring: what waiting for data takes, and when that can be known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from builders import RunBuilder
from sonda.analysis import wording
from sonda.analysis.comparison.optimisations import Options, most_by_input, weigh_options
from sonda.analysis.comparison.option_effects import brought_everywhere
from sonda.analysis.run_summary import summarise
from sonda.analysis.summary import Summary
from sonda.report.words import describe

PREFETCH: dict[str, object] = {"prefetch": 2}
CHANGES: dict[str, dict[str, object]] = {"base": {}, "prefetch": PREFETCH, "cache": {"cache": True}}


def trained(step: float, data: float, steps: int = 12, noise: float = 0.0, seed: int = 0, **how: Any) -> Summary:
    """A training whose steps take so many ms, so many of them waiting for data."""
    builder = RunBuilder()
    row = builder.part("train")
    for factor in np.exp(noise * np.random.default_rng(seed).standard_normal(steps)):
        builder.step(row, step * factor, {"data": data * factor, "fused": (step - data) * factor})
    return summarise(builder.run(workload={"name": "cnn", "train": True, "samples": 8, "framework": "jax", **how}))


def test_the_largest_share_of_data_bounds_what_its_options_bring() -> None:
    """2 of 10 ms: at most 10 / 8; a process in which it was 1 of 10 takes nothing from that."""
    base = [trained(10, 1), trained(10, 2)]
    for changes in (PREFETCH, {"workers": 2, "prefetch": 2}, {"cache": True, "prefetch": 2}):
        assert most_by_input(base, changes) == pytest.approx(1.25)


@pytest.mark.parametrize("changes", [{}, {"precision": "bfloat16"}, {"prefetch": 2, "precision": "bfloat16"}])
def test_options_that_change_more_than_the_input_have_no_bound(changes: dict[str, object]) -> None:
    assert most_by_input([trained(10, 2)], changes) is None


@pytest.mark.parametrize("how", [{"workers": 1}, {"prefetch": 2}, {"framework": "tensorflow"}])
def test_a_base_that_loads_ahead_has_no_bound(how: dict[str, Any]) -> None:
    """What is loaded beside a step slows the step, and a cache would save that too."""
    assert most_by_input([trained(10, 2), trained(10, 2, **how)], PREFETCH) is None
    told = trained(10, 2, framework="tensorflow", prefetch=0)
    assert most_by_input([told], PREFETCH) == pytest.approx(1.25)


def test_steps_without_data_have_no_bound() -> None:
    assert most_by_input([trained(10, 0)], PREFETCH) is None and most_by_input([], PREFETCH) is None


def place(name: str, data: float) -> Options:
    """Three noisy processes each of a base and two options, 10 ms a step, so many of them data."""
    runs = {
        variant: [trained(10, data, noise=0.5, seed=10 * number + turn) for turn in range(3)]
        for number, variant in enumerate(CHANGES)
    }
    return weigh_options(name, "base", runs, CHANGES, {})


def test_what_noise_hides_is_bounded() -> None:
    deep, small = place("resnet50", 0.02), place("cnn", 1.0)
    assert {one.effect for one in deep.options} == {"little"} and {one.effect for one in small.options} == {"unknown"}
    # 10 / 9.98 rounded up, 10 / 9.
    assert describe(deep.options[0].outcome) == "not significant; 1.01x at the most"
    assert describe(small.options[0].outcome) == "not significant; 1.12x at the most"
    for options, bound in ((deep, 10 / 9.98), (small, 10 / 9)):
        assert [effect.names for effect in options.finding.effects] == [("prefetch",), ("cache",)]
        assert [effect.bound for effect in options.finding.effects] == pytest.approx([bound, bound])
    both = brought_everywhere([deep, small])
    assert both.places == 2
    assert [(effect.effect, effect.places) for effect in both.effects] == [
        ("little", ("resnet50",)), ("little", ("resnet50",)), ("unknown", ("cnn",)), ("unknown", ("cnn",)),
    ]  # fmt: skip


@pytest.mark.parametrize(("bound", "words"), [(1.0, "1.00x"), (1.001, "1.01x"), (1.25, "1.25x"), (1.111, "1.12x")])
def test_a_bound_is_rounded_up(bound: float, words: str) -> None:
    assert wording.at_most(bound) == words
