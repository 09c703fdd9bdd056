"""Code between steps, in programs whose stages are written down by hand. Of ten seconds six are steps."""

from __future__ import annotations

import dataclasses

import pytest

from sonda.analysis.code.summary import (
    Activity,
    CodeFunction,
    CodeLead,
    CodePlace,
    CodeSummary,
    CodeTime,
    PartCode,
)
from sonda.analysis.rules.judge import verdicts
from sonda.analysis.rules.program import between
from sonda.analysis.steps.program import Program, ProgramStage
from sonda.analysis.summary import Summary, Value, Verdict
from sonda.report.words import describe
from verdicts_cases import cost, layer, summary

S = 1e9
LINE = CodePlace("train.py", "Report.write", 41)


def lead(share: float, activity: Activity = Activity.UNKNOWN) -> CodeLead:
    """A function of which one line takes this part of the time between the first step and the last."""
    time = CodeTime(python=share * 10 * S, samples=100)
    return CodeLead(LINE, "json.dumps(rows)", "json.dumps", time, Value(share, "1", "measured"), activity)


def program(*leads: CodeLead, between_steps: float = 0.4, evaluates: bool = False) -> Summary:
    """A program whose steps and the rest share its ten seconds; `Report.write` evaluates where that is said."""
    function = CodeFunction(LINE, CodeTime(), CodeTime(), Value(0.1, "1", "measured"), ())
    parts = (PartCode("validate", 10, (), (function,), (), None),) if evaluates else ()
    stages = tuple(
        ProgramStage(name, Value(share * 10 * S, "ns", "measured"), share, count)
        for name, share, count in (("train", 1 - between_steps, 60), ("between", between_steps, 0))
    )
    seen = summary(layers=[layer("a", "Conv2d", cost(90, "compute", 0.8))])
    return dataclasses.replace(
        seen, code=CodeSummary(parts, None, leads), program=Program(Value(10 * S, "ns", "measured"), stages)
    )


def first_of(seen: Summary) -> Verdict:
    said, failures = verdicts(seen)
    assert not failures
    return said[0]


def test_nothing_is_said_without_a_lead() -> None:
    assert between.rule(program()) is None
    assert between.rule(dataclasses.replace(program(), code=None)) is None


@pytest.mark.parametrize("activity", [activity for activity in Activity if activity is not Activity.UNKNOWN])
def test_what_lies_between_steps_is_called_by_its_purpose(activity: Activity) -> None:
    verdict = between.rule(program(lead(0.35, activity)))
    assert verdict is not None
    assert (verdict.kind, verdict.share) == (activity.value, pytest.approx(0.35))
    assert verdict.place is not None and (verdict.place.file, verdict.place.line) == ("train.py", 41)
    assert verdict.remedies and "train.py:41" in describe(verdict.finding)


def test_leads_of_one_purpose_are_added_up_and_others_are_not() -> None:
    verdict = between.rule(program(lead(0.3, Activity.LOG), lead(0.2, Activity.COPY), lead(0.1, Activity.LOG)))
    assert verdict is not None and (verdict.kind, verdict.share) == ("logging", pytest.approx(0.4))


def test_a_function_that_runs_evaluating_steps_validates() -> None:
    verdict = between.rule(program(lead(0.35), evaluates=True))
    assert verdict is not None and verdict.kind == "validation"
    trained = program(lead(0.35))
    assert trained.code is not None
    plain = between.rule(trained)
    assert plain is not None and (plain.kind, plain.remedies) == ("code", ()), "nobody knows what it is for"


def test_it_comes_before_the_limit_of_steps_that_are_the_lesser_part() -> None:
    """Seven tenths between steps against nine tenths of three."""
    assert first_of(program(lead(0.65, Activity.LOG), between_steps=0.7)).kind == "logging"
    said, _ = verdicts(program(lead(0.15, Activity.LOG), between_steps=0.2))
    assert "logging" in [verdict.kind for verdict in said]


def test_steps_that_are_most_of_the_time() -> None:
    """Nothing takes time between them: it is left out."""
    assert between.share_of_steps(program(between_steps=0.25)) == pytest.approx(0.75)
    assert between.share_of_steps(dataclasses.replace(program(), program=None)) == 1.0
