"""The plugin of pytest: options and fixtures. Every pytest loads it, so it imports nothing until `--sonda` is given.

def test_training(sonda_profile):         # profiled with --sonda: where its time goes is said below the results
    train(model, steps=20)

def test_training(sonda_no_slower):       # with --sonda-baseline, fails where its steps became surely slower
    train(model, steps=20)
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

DEFAULT_LIMIT = "5%"
ASKING = ("sonda_profile", "sonda_no_slower")
"""Fixtures that ask for a profile."""
LIMIT = pytest.StashKey[float]()
"""The limit of a test, where it set one: 0.05 for 5 %."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("sonda", "profiles of tests that ask for one (fixtures sonda_profile, sonda_no_slower)")
    group.addoption("--sonda", action="store_true", help="Profile tests that ask for it.")
    group.addoption("--sonda-tag", metavar="NAME", help="Give their runs a tag, to compare with later.")
    group.addoption(
        "--sonda-baseline", metavar="RUNS",
        help="What sonda_no_slower compares with: a tag, a run, or a file of --sonda-json or pytest-benchmark.",
    )  # fmt: skip
    group.addoption(
        "--sonda-fail-above", metavar="PERCENT",
        help="Fail a test that is surely slower by more than this (5%% unless given).",
    )  # fmt: skip
    group.addoption(
        "--sonda-json", metavar="FILE", help="Write the times of steps, as pytest-benchmark writes those of rounds."
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("sonda"):
        from sonda.integrations.measured_tests import measure_tests

        measure_tests(config)
        return
    names = ("sonda_tag", "sonda_baseline", "sonda_fail_above", "sonda_json")
    given = [f"--{name.replace('_', '-')}" for name in names if config.getoption(name)]
    if given:
        raise pytest.UsageError(f"{given[0]} means nothing without --sonda: add it")


@pytest.fixture
def sonda_profile() -> None:
    """With --sonda the test is profiled: its run is kept, and where its time goes is said below the results."""


@pytest.fixture
def sonda_no_slower(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """With --sonda the test is profiled, and fails where its steps are surely slower than those of --sonda-baseline.

    Calling it sets the limit of this test: `sonda_no_slower("10%")`. Raises SondaError for what is not a percentage.
    """

    def set_limit(fail_above: str) -> None:
        if request.config.getoption("sonda"):
            from sonda.analysis.comparison.runs import parse_percent

            request.node.stash[LIMIT] = parse_percent(fail_above)

    return set_limit
