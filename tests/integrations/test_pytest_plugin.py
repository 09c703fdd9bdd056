"""The plugin of pytest: tests that ask for it are profiled, and fail where their steps are surely slower.

Profiles are played, by runs whose steps take what a test says; one test at the end measures really.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import stepped
from places import REPOSITORY
from sonda.api import Profile
from sonda.integrations import measured_tests
from sonda.record.run import write_run
from sonda.record.store import Store

pytest_plugins = ("pytester",)

PLUGIN = "sonda.integrations.pytest_plugin"
INSTALLED = any(entry.value == PLUGIN for entry in entry_points(group="pytest11"))
LOAD = () if INSTALLED else ("-p", PLUGIN)
"""Named to pytest where Sonda is not installed with it: a plugin that pytest meets under two names ends it."""
ASKS = "def test_training(sonda_no_slower): pass\n"
NAME = "test_it.py::test_training"


def steps_of(centre: float, spread: float = 0.001, count: int = 20) -> list[float]:
    """ms of steps around a centre."""
    return np.random.default_rng(7).normal(centre, spread * centre, count).tolist()


Play = Callable[..., None]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Play:
    """Let the profile of every test have steps of so many ms."""
    monkeypatch.setenv("SONDA_HOME", str(tmp_path / "runs"))
    made = iter(range(0xABCD0000, 0xABCDFFFF))

    def play_steps(durations: list[float]) -> None:
        @contextmanager
        def played(name: str, store: Store) -> Iterator[Profile]:
            profile = Profile()
            yield profile
            run = stepped(durations, id=f"{next(made):012x}", workload={"name": name, "train": True})
            profile._run = write_run(store.root, run.info, run.spans)

        monkeypatch.setattr(measured_tests, "profile", played)

    return play_steps


@pytest.fixture(scope="module", autouse=True)
def pandas_stays() -> None:
    """pytester forgets what is first imported while it lives. PyArrow imports pandas then, which cannot be imported
    twice: tests that come later would fail."""
    if find_spec("pandas"):
        import_module("pandas")


@pytest.fixture
def run_tests(pytester: pytest.Pytester) -> Callable[..., pytest.RunResult]:
    def run(source: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(test_it=source)
        return pytester.runpytest_inprocess(*LOAD, "-p", "no:cacheprovider", *options)

    return run


def test_without_sonda_the_fixtures_do_nothing(run_tests: Any, play: Play, tmp_path: Path) -> None:
    play([])
    result = run_tests("def test_a(sonda_profile, sonda_no_slower): sonda_no_slower('10%')")
    result.assert_outcomes(passed=1)
    assert "sonda show" not in result.stdout.str()
    assert not (tmp_path / "runs").exists()


def test_each_test_that_asks_for_it_becomes_a_run_of_its_name(run_tests: Any, play: Play, tmp_path: Path) -> None:
    play(steps_of(100))
    result = run_tests("def test_a(sonda_profile): pass\ndef test_b(): pass\n", "--sonda", "--sonda-tag", "main")
    result.assert_outcomes(passed=2)
    (run,) = Store(tmp_path / "runs").find("main")
    assert run.info.workload.name == "test_it.py::test_a"
    result.stdout.fnmatch_lines(["test_it.py::test_a", "*100 ms a step, 20 timed steps (train)*", "*sonda show *"])


@pytest.mark.parametrize("baseline", ["main", "base.json"])
@pytest.mark.parametrize(
    ("now", "spread", "outcome", "words"),
    [
        (120, 0.001, "failed", "1.20x slower than {}: 120 ms a step instead of 100 ms"),
        (103, 0.001, "passed", "1.03x slower than {}, within 5 %"),
        (80, 0.001, "passed", "1.25x faster than {}, within 5 %"),
        (104, 0.2, "passed", "cannot tell whether it is slower than {} by more than 5 %"),
    ],
)
def test_only_a_slowdown_that_is_surely_above_the_limit_fails(
    run_tests: Any, play: Play, baseline: str, now: float, spread: float, outcome: str, words: str
) -> None:
    play(steps_of(100, spread))
    run_tests(ASKS, "--sonda", "--sonda-tag", "main", "--sonda-json", "base.json").assert_outcomes(passed=1)
    play(steps_of(now, spread))
    result = run_tests(ASKS, "--sonda", "--sonda-baseline", baseline)
    result.assert_outcomes(**{outcome: 1})
    assert words.format(baseline) in result.stdout.str()
    assert ("FAILED" in result.stdout.str()) == (outcome == "failed")


def test_a_failure_names_what_became_slower_and_where_to_look(run_tests: Any, play: Play) -> None:
    play(steps_of(100))
    run_tests(ASKS, "--sonda", "--sonda-tag", "main")
    play(steps_of(120))
    result = run_tests(ASKS, "--sonda", "--sonda-baseline", "main")
    result.stdout.fnmatch_lines([
        f"{NAME} is 1.20x slower than main: *above the limit of 5 %",
        "forward is 1.20x slower: 60.0 ms per step instead of 50.0 ms.",
        "look at it with: sonda show * -v",
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("options", "source"),
    [(("--sonda-fail-above", "30%"), ASKS), ((), "def test_training(sonda_no_slower): sonda_no_slower('30%')\n")],
)
def test_the_limit_is_that_of_the_command_line_or_of_the_test(
    run_tests: Any, play: Play, options: tuple[str, ...], source: str
) -> None:
    play(steps_of(100))
    run_tests(source, "--sonda", "--sonda-tag", "main")
    play(steps_of(120))
    run_tests(source, "--sonda", "--sonda-baseline", "main", *options).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("first", "now", "words"),
    [
        (
            "def test_other(sonda_profile): pass\n",
            [100.0] * 9,
            "cannot tell whether it is slower: main has no run of this",
        ),
        (ASKS, [], "cannot tell whether it is slower than main: no step was seen"),
        (ASKS, [100.0], "cannot tell whether it is slower than main by more than 5 %: one step on a side"),
    ],
)
def test_what_cannot_be_told_does_not_fail_and_is_said(
    run_tests: Any, play: Play, first: str, now: list[float], words: str
) -> None:
    play(steps_of(100))
    run_tests(first, "--sonda", "--sonda-tag", "main")
    play(now)
    result = run_tests(ASKS, "--sonda", "--sonda-baseline", "main")
    result.assert_outcomes(passed=1)
    assert words in result.stdout.str()


@pytest.mark.parametrize(
    ("now", "words"),
    [([90.0] * 3 + [130.0] * 3, "x slower (95 %)"), ([1.0, 1.0, 1e6], "it may be more than 10x faster or slower")],
)
def test_what_the_interval_leaves_open_is_said_without_digits_that_say_nothing(
    run_tests: Any, play: Play, now: list[float], words: str
) -> None:
    play(steps_of(100))
    run_tests(ASKS, "--sonda", "--sonda-tag", "main")
    play(now)
    result = run_tests(ASKS, "--sonda", "--sonda-baseline", "main")
    result.assert_outcomes(passed=1)
    assert words in result.stdout.str()


def test_a_limit_that_is_no_percentage_fails_the_test_that_sets_it(run_tests: Any, play: Play) -> None:
    play(steps_of(100))
    result = run_tests("def test_training(sonda_no_slower): sonda_no_slower('lots')\n", "--sonda")
    result.assert_outcomes(failed=1)
    assert "'lots' is not a percentage" in result.stdout.str()
    assert "INTERNALERROR" not in result.stdout.str()


def test_a_test_that_fails_by_itself_is_held_against_nothing(run_tests: Any, play: Play) -> None:
    play(steps_of(100))
    run_tests(ASKS, "--sonda", "--sonda-tag", "main")
    result = run_tests("def test_training(sonda_no_slower): assert 1 == 2\n", "--sonda", "--sonda-baseline", "main")
    result.assert_outcomes(failed=1)
    assert "assert 1 == 2" in result.stdout.str()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--sonda-tag", "main"), "--sonda-tag means nothing without --sonda"),
        (("--sonda", "--sonda-baseline", "mian"), "no run, tag or path 'mian'"),
        (("--sonda", "--sonda-fail-above", "much"), "'much' is not a percentage"),
        (("--sonda", "--sonda-tag", "last"), "'last' cannot be a tag"),
        (("--sonda", "--sonda-json", "."), "is a folder"),
        (("--sonda", "-n", "2"), "tests side by side disturb each other's times: measure with --sonda -n 0"),
        (("--sonda", "--sonda-baseline", "test_it.py"), "test_it.py is no file of pytest-benchmark"),
    ],
)
def test_a_wrong_option_is_one_line_before_any_test(
    run_tests: Any, play: Play, options: tuple[str, ...], words: str
) -> None:
    play([])
    result = run_tests(ASKS, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert words in result.stderr.str()
    assert "Traceback" not in result.stderr.str()


def test_a_session_in_which_nothing_asks_says_how_to_ask(run_tests: Any, play: Play) -> None:
    play([])
    result = run_tests("def test_a(): pass\n", "--sonda")
    result.stdout.fnmatch_lines(["no test asked for a profile: give it the fixture sonda_profile or sonda_no_slower"])


def test_the_help_of_pytest_has_its_options(run_tests: Any) -> None:
    result = run_tests(ASKS, "--help")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["  --sonda  *Profile tests that ask for it.", "*slower by more than this (5%*"])


def test_the_plugin_is_announced_to_pytest() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"sonda": PLUGIN}


def test_loading_it_loads_nothing_else() -> None:
    """Every pytest of an environment loads it, also where nobody wants a profile."""
    code = f"import sys, pytest; before = set(sys.modules); import {PLUGIN}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["sonda", "sonda.integrations", PLUGIN, "sonda.version"]


@pytest.mark.slow
def test_a_real_training_is_profiled_and_its_step_that_sleeps_longer_fails(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "test_it.py").write_text(
        "import os, time, torch\n"
        "def test_training(sonda_no_slower):\n"
        "    model = torch.nn.Linear(4, 4)\n"
        "    optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "    for _ in range(12):\n"
        "        optimizer.zero_grad()\n"
        "        model(torch.randn(2, 4)).sum().backward()\n"
        "        time.sleep(float(os.environ['PAUSE']))\n"
        "        optimizer.step()\n"
    )
    words = [sys.executable, "-m", "pytest", *LOAD, "-p", "no:cacheprovider", "-q", "--sonda"]

    def measure(pause: str, *options: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PAUSE": pause, "SONDA_HOME": str(tmp_path / "runs")}
        return subprocess.run(
            [*words, *options], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    first = measure("0.1", "--sonda-json", "base.json")
    assert first.returncode == 0, first.stdout + first.stderr
    (benchmark,) = json.loads((tmp_path / "base.json").read_text())["benchmarks"]
    assert benchmark["fullname"] == NAME
    assert benchmark["stats"]["min"] >= 0.1
    slower = measure("0.4", "--sonda-baseline", "base.json")
    assert slower.returncode == 1, slower.stdout + slower.stderr
    assert "slower than base.json" in slower.stdout
