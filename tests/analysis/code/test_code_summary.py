"""Shares of functions and lines, from samples that were placed by hand in steps of 100 ms."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from builders import RunBuilder
from sonda.analysis.code.regions import find_callee
from sonda.analysis.code.summary import OTHER, WORKERS, CodePlace, CodeSummary, Doing
from sonda.analysis.rules.advice import advice_kind
from sonda.analysis.rules.code import busy_line, input, logging, waiting
from sonda.analysis.rules.code_findings import CodeTakes
from sonda.analysis.rules.judge import verdicts
from sonda.analysis.rules.limit_findings import InputBound
from sonda.analysis.rules.limits import none
from sonda.analysis.run_summary import summarise
from sonda.analysis.summary import CausePlace
from sonda.record.run import Run
from sonda.record.spans import Words
from sonda.record.workload import Workload
from sonda.report.words import describe
from stack_examples import a_frame, make_stacks

FRAMES = [
    a_frame(-1, "main", 40, "train(model)"),
    a_frame(0, "train", 30, "model(x)"),
    a_frame(0, "train", 31, "watch(step)"),
    a_frame(2, "Watch.__call__", 41, "json.dumps(rows)"),
    a_frame(3, "dumps", 200, origin="library", module="json"),
    a_frame(2, "Watch.__call__", 42, "time.sleep(0.02)"),
    a_frame(0, "train", 32, "helper.<locals>.<listcomp>"),
    a_frame(2, "Watch.__call__", 43, "crunch(rows)"),
]
FORWARD, WATCH, DUMPS, SLEEP, CRUNCH = 1, 2, 4, 5, 7
STEPS = 30


def program(
    places: list[int], phase: str = "forward", length: float = 40, worker: int = -1, **sample: float | str
) -> Run:
    """Steps of 100 ms, `length` of which are a phase, a sample in the middle of every 10 ms; the first is counted."""
    builder = RunBuilder()
    part = builder.part("train")
    builder.step(part, 100, {"forward": 40}, pass_="count")
    for _ in range(STEPS):
        builder.step(part, 100, {phase: length})
    run = builder.run(target={"spec": "", "device": "cpu", "threads": 1})
    samples = []
    for step in range(STEPS + 1):
        for place, stack in enumerate(places):
            row: dict[str, float | str] = {
                "time": 100 * step + 10 * place + 5,
                "stack": stack,
                "lasted": 10,
                "worker": worker,
                **sample,
            }
            if stack == SLEEP:
                row |= {"ran": 0.5, "call": "clock_nanosleep"}
            if stack == DUMPS:
                row |= {"late": 5, "waits": 2}
            samples.append(row)
    run.stacks = make_stacks(FRAMES, samples)
    return run


IN_FORWARD, LOGS = [FORWARD] * 4, [DUMPS] * 4 + [SLEEP] * 2


def code_of(run: Run) -> CodeSummary:
    code = summarise(run).code
    assert code is not None
    return code


def test_lines_and_functions_take_their_share_of_the_step() -> None:
    (part,) = code_of(program(IN_FORWARD + LOGS)).parts
    other = part.region(OTHER)
    assert other is not None and part.samples == 10 * STEPS, "the counted step is left out"
    dumps, sleep = other.lines
    assert (dumps.place, dumps.text, dumps.called) == (
        CodePlace("train.py", "Watch.__call__", 41), "json.dumps(rows)", "json.dumps",
    )  # fmt: skip
    # Each sample stands for 10 ms. One that is 5 ms late has those for itself, and shares only the other 5 with the
    # sample before it, which loses 2.5 ms: 42.5 ms of json.dumps, 20 of sleep, 37.5 of forward.
    assert dumps.share.value == pytest.approx(0.425, abs=0.005) and dumps.time.doing is Doing.PYTHON
    assert sleep.share.value == pytest.approx(0.20, abs=0.005) and sleep.time.doing is Doing.WAITING
    assert (sleep.called, sleep.time.call) == ("time.sleep", "clock_nanosleep")
    watch = other.function("Watch.__call__")
    assert watch is not None and watch.share.value == pytest.approx(0.625, abs=0.005)
    assert watch.inclusive == watch.own and watch.inclusive.steps == STEPS
    train = next(function for function in part.functions if function.place.function == "train")
    assert train.inclusive.total == pytest.approx(100e6, rel=0.01)
    assert train.own.total == pytest.approx(37.5e6, rel=0.01)
    assert set(train.phases) == {OTHER, "forward"}
    assert sum(region.time.total for region in part.regions) == pytest.approx(100e6, rel=0.01)


def test_the_tree_adds_up() -> None:
    (part,) = code_of(program(IN_FORWARD + LOGS)).parts
    other = part.region(OTHER)
    assert other is not None
    (root,) = other.tree
    assert root.place.function == "main" and [branch.place.line for branch in root.branches] == [31]
    below = root.branches[0].branches
    assert sum(branch.time.total for branch in below) == pytest.approx(root.time.total)
    assert [depth for depth, _ in root.walk()] == [0, 1, 2, 2]


def test_the_verdict_quotes_the_line() -> None:
    summary = summarise(program(IN_FORWARD + [CRUNCH] * 6))
    verdict = busy_line.rule(summary)
    assert verdict is not None and isinstance(verdict.finding, CodeTakes)
    assert verdict.place == CausePlace("train.py", 43, "Watch.__call__", "crunch(rows)")
    # The last step has no sample behind it: of 30 steps one lacks 5 ms of the 60.
    assert describe(verdict.finding) == (
        "train.py:43 Watch.__call__ takes 60 % of the step (59.8 ms, native code in crunch)."
    )
    assert verdict in verdicts(summary)[0]
    assert none.rule(summary) is None, "what the code takes is no longer unclear"


def test_what_a_line_calls_tells_its_cause() -> None:
    summary = summarise(program(IN_FORWARD + LOGS))
    logged, waited = logging.rule(summary), waiting.at_lines(summary)
    assert logged is not None and logged.place == CausePlace("train.py", 41, "Watch.__call__", "json.dumps(rows)")
    assert waited is not None and waited.place == CausePlace("train.py", 42, "Watch.__call__", "time.sleep(0.02)")
    assert (logged.share, waited.share) == (pytest.approx(0.425, abs=0.005), pytest.approx(0.20, abs=0.005))
    assert busy_line.rule(summary) is None, "nothing is left that is not told"
    assert [verdict.kind for verdict in verdicts(summary)[0]][:2] == ["logging", "waiting"]
    assert advice_kind(logged.remedies[0].advice) == "log_less" and "train.py:41" in describe(logged.remedies[0].advice)
    assert none.rule(summary) is None


def test_code_that_takes_less_than_a_tenth_is_no_verdict() -> None:
    assert busy_line.rule(summarise(program([FORWARD] * 10, length=100))) is None
    rare = program([FORWARD] * 9 + [DUMPS], length=90)  # a tenth, but not for sure
    assert busy_line.rule(summarise(rare)) is None and logging.rule(summarise(rare)) is None


def test_a_line_that_waits_takes_the_place_of_a_wait_without_one() -> None:
    run = program(IN_FORWARD + [SLEEP] * 6)
    waits = {"step_ns": 60_000_000, "steps": STEPS, "waited": STEPS}
    waited = dataclasses.replace(summarise(run), workload=_workload(run, waits))
    assert waiting.rule(waited) is None
    assert waiting.rule(dataclasses.replace(waited, code=None)) is not None


def _workload(run: Run, waits: dict[str, int]) -> Workload:
    return Workload.of({**run.info.workload.plain(), "waits": waits})


def test_code_that_makes_data_is_named_beside_the_wait_for_it() -> None:
    summary = summarise(program([DUMPS] * 4 + [FORWARD] * 6, "data"))
    verdict = input.rule(summary)
    assert verdict is not None and isinstance(verdict.finding, InputBound) and not verdict.finding.in_workers
    assert verdict.place == CausePlace("train.py", 41, "Watch.__call__", "json.dumps(rows)")
    assert logging.rule(summary) is None, "what makes data is input, whatever it calls"


def test_workers_are_told_by_their_own_time() -> None:
    run = program([FORWARD] * 10, "data")
    workers = program([DUMPS] * 8 + [SLEEP] * 2, worker=0, process=7, thread=7)
    assert run.stacks is not None and workers.stacks is not None
    both = make_stacks(FRAMES, [])
    numbers = {
        name: _joined(run.stacks.samples.numbers[name], workers.stacks.samples.numbers[name])
        for name in run.stacks.samples.numbers
    }
    calls = [*run.stacks.samples.words["call"].decoded(), *workers.stacks.samples.words["call"].decoded()]
    run.stacks = dataclasses.replace(
        both, samples=dataclasses.replace(both.samples, numbers=numbers, words={"call": Words.of(calls)})
    )
    (part,) = code_of(run).parts
    region = part.region(WORKERS)
    assert region is not None and region.share.value == pytest.approx(1)
    assert region.lines[0].share.value == pytest.approx(0.825, abs=0.005)
    verdict = input.rule(summarise(run))
    assert verdict is not None and "of the workers' time" in describe(verdict.finding)
    assert verdict.place == CausePlace("train.py", 41, "Watch.__call__", "json.dumps(rows)")


def _joined(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.concatenate((first, second))


def test_a_run_without_stacks_has_no_code() -> None:
    run = program([FORWARD])
    run.stacks = None
    assert summarise(run).code is None


@pytest.mark.parametrize(
    ("text", "callee"),
    [("time.sleep(0.1)", "time.sleep"), ("loss.item()", "loss.item"), ("print(f(x))", "print"), ("a + b", ""),
     ("rows[0]()", ""), ("for x in", ""), ("", ""), ("x" * 199 + "…", "")],
)  # fmt: skip
def test_what_an_expression_calls(text: str, callee: str) -> None:
    assert find_callee(text) == callee
