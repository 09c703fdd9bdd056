"""Tests that are profiled: each that asks becomes a run, is compared with its baseline and reported at the end."""

from __future__ import annotations

import re
import warnings
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from sonda.analysis.comparison.limit import SLOWER, UNCLEAR, check_limit
from sonda.analysis.comparison.runs import compare, compare_steps, parse_percent
from sonda.analysis.comparison.summary import ComparedRow, Comparison
from sonda.analysis.summary import PartSummary, Summary, Value
from sonda.api import Profile, profile
from sonda.integrations.benchmark_file import read_benchmarks, write_benchmarks
from sonda.integrations.pytest_plugin import ASKING, DEFAULT_LIMIT, LIMIT
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.record.target import NO_STEP_OF_BLOCK
from sonda.report import quantities
from sonda.report.annotations import describe_slower
from sonda.report.output import refuse_folders
from sonda.report.views.compare.tables import possible_words
from sonda.report.words import verdict_sentences

ALONE = "one process: how much the next one differs is not seen; keep several baselines under one tag"


@dataclass(frozen=True)
class MeasuredTest:
    """A test that was profiled, and what is said of it."""

    name: str
    run: str
    part: str
    """Of the steps: train, validate or test; '' without any."""
    times: tuple[float, ...]
    """ns of every timed step."""
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Held:
    """A test compared with its baseline."""

    outcome: str
    """That of the limit; UNCLEAR also where there is nothing to compare with."""
    sentence: str
    details: tuple[str, ...] = ()


def measure_tests(config: pytest.Config) -> None:
    """Let a session of pytest profile the tests that ask for it. Raises pytest.UsageError for wrong options."""
    if config.getoption("numprocesses", default=None) or hasattr(config, "workerinput"):
        raise pytest.UsageError("tests side by side disturb each other's times: measure with --sonda -n 0")
    try:
        config.pluginmanager.register(MeasuredSession(config), "sonda-session")
    except SondaError as error:
        raise pytest.UsageError(str(error)) from None


class MeasuredSession:
    """Hooks of a session whose tests are profiled. Raises SondaError for a baseline that is not there."""

    def __init__(self, config: pytest.Config) -> None:
        self.store = Store()
        self.tag: str = config.getoption("sonda_tag") or ""
        self.limit = parse_percent(config.getoption("sonda_fail_above") or DEFAULT_LIMIT)
        self.file = Path(config.getoption("sonda_json")) if config.getoption("sonda_json") else None
        self.baseline: str = config.getoption("sonda_baseline") or ""
        self.tests: list[MeasuredTest] = []
        self._times: dict[str, list[float]] = {}
        """Of a baseline that is a file, ns of steps by test."""
        self._runs: Sequence[Run] = ()
        """Of one that is runs."""
        refuse_folders(self.file)
        if self.tag:
            self.store.check_tag(self.tag)
        if Path(self.baseline).is_file():
            self._times = read_benchmarks(Path(self.baseline))
        elif self.baseline:
            self._runs = self.store.find(self.baseline)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        asked = getattr(item, "fixturenames", ())
        if not any(name in asked for name in ASKING):
            return (yield)
        with warnings.catch_warnings():
            # Said below the results.
            warnings.filterwarnings("ignore", re.escape(NO_STEP_OF_BLOCK))
            with profile(item.nodeid, store=self.store) as measured:
                result = yield
        if self.tag:
            self.store.tag(measured.id, self.tag)
        held = self._hold(item, measured) if ASKING[1] in asked and self.baseline else None
        self.tests.append(_describe_test(item.nodeid, measured, held))
        if held is not None and held.outcome == SLOWER:
            where = f"look at it with: sonda show {self.store.short(measured.id)} -v"
            pytest.fail("\n".join([f"{item.nodeid} is {held.sentence}", *held.details, where]), pytrace=False)
        return result

    def _hold(self, item: pytest.Item, measured: Profile) -> Held:
        """A test's run against its baseline."""
        limit = item.stash.get(LIMIT, self.limit)
        part = _first_part(measured.summary)
        if part is None:
            return Held(UNCLEAR, f"cannot tell whether it is slower than {self.baseline}: no step was seen")
        if self._runs:
            runs = [run for run in self._runs if run.info.workload.name == item.nodeid]
            if not runs:
                return Held(UNCLEAR, f"cannot tell whether it is slower: {self.baseline} has no run of this test")
            try:
                comparison = compare(runs, [measured.run])
            except SondaError as error:
                return Held(UNCLEAR, f"cannot tell whether it is slower than {self.baseline}: {error}")
            return _judge(comparison.parts[0].step, limit, self.baseline, comparison)
        times = self._times.get(item.nodeid)
        if not times:
            return Held(UNCLEAR, f"cannot tell whether it is slower: {self.baseline} has no such test")
        return _judge(compare_steps(times, part.timed), limit, self.baseline)

    def pytest_sessionfinish(self) -> None:
        if self.file is None:
            return
        about = {test.name: {"sonda_run": test.run, "part": test.part} for test in self.tests}
        try:
            write_benchmarks(self.file, {test.name: test.times for test in self.tests}, about)
        except SondaError as error:
            raise pytest.UsageError(str(error)) from None

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("sonda")
        for test in self.tests:
            terminalreporter.line(test.name)
            for line in (*test.lines, f"sonda show {self.store.short(test.run)}"):
                terminalreporter.line(f"  {line}")
        if not self.tests:
            terminalreporter.line(f"no test asked for a profile: give it the fixture {' or '.join(ASKING)}")
        if self.file is not None:
            terminalreporter.line(f"times of steps: {self.file}")


def _describe_test(name: str, measured: Profile, held: Held | None) -> MeasuredTest:
    summary = measured.summary
    part = _first_part(summary)
    step = (
        [f"{quantities.amount(part.step.value, 'ns')} a step, {part.steps:,} timed steps ({part.name})"] if part else []
    )
    lines = [*step, *verdict_sentences(summary)[:1], *([held.sentence] if held is not None else [])]
    return MeasuredTest(name, measured.id, part.name if part else "", part.timed if part else (), tuple(lines))


def _first_part(summary: Summary) -> PartSummary | None:
    return summary.parts[0] if summary.parts and summary.parts[0].timed else None


def _judge(step: ComparedRow, limit: float, baseline: str, comparison: Comparison | None = None) -> Held:
    """The verdict on a step, in words."""
    ratio = step.ratio
    slowdown = Value(
        None if ratio.value is None else ratio.value - 1, "1", "derived",
        None if ratio.low is None else ratio.low - 1, None if ratio.high is None else ratio.high - 1, ratio.reason,
    )  # fmt: skip
    check = check_limit(slowdown, limit, ())
    before, after = (quantities.amount(value.value, "ns") for value in (step.a, step.b))
    shown, times = f"{100 * limit:g} %", f"{after} a step instead of {before}"
    if ratio.low is None or ratio.high is None:
        return Held(
            check.outcome, f"cannot tell whether it is slower than {baseline} by more than {shown}: {ratio.reason}"
        )
    if check.outcome == UNCLEAR:
        sentence = f"cannot tell whether it is slower than {baseline} by more than {shown}: {times}"
        return Held(check.outcome, f"{sentence}; it {possible_words(ratio.low, ratio.high)} (95 %)")
    interval = f"95 %: {quantities.ratio(ratio.low)} to {quantities.ratio(ratio.high)} times"
    if check.outcome == SLOWER:
        details = describe_slower(comparison.parts[0]) if comparison is not None else ()
        several = comparison is not None and len(comparison.a) > 1
        sentence = f"{step.text} than {baseline}: {times} ({interval}), above the limit of {shown}"
        return Held(check.outcome, sentence, (*details, *(() if several else (ALONE,))))
    sentence = f"{step.text} than {baseline}" if step.significant else f"no significant difference from {baseline}"
    return Held(check.outcome, f"{sentence}, within {shown}: {times} ({interval})")
