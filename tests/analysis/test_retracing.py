"""Why functions are traced again, and the verdict that says so: no framework is needed for either."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plain_runs import target_of, workload_of
from report_examples import training as example
from sonda.analysis.rules.advice import SeveralStepsAtOnce, TraceOnce
from sonda.analysis.rules.judge import verdicts
from sonda.analysis.rules.limit_findings import Retraced
from sonda.analysis.rules.limits import retracing
from sonda.analysis.rules.remedies import compiled, graphs, remedies
from sonda.frameworks.collector.traces import MOST_FUNCTIONS, FunctionTraces, Traces, code_place

MS = 1_000_000


def tensor(*shape: int, kind: str = "float32") -> tuple[str, str]:
    return "tensor", f"{kind}[{', '.join(map(str, shape))}]"


def traced(*signatures: dict[str, Any], made_anew: bool = False) -> dict[str, Any]:
    """A function called once with each signature, traced for 5 ms each time, run for 1 ms."""
    traces = Traces()
    function = traces.find_function("step", "train.py:12")
    for number, signature in enumerate(signatures):
        function.calls += 1
        function.call_ns += 6 * MS
        traces.add_trace(function, number if made_anew else 7, signature, 5 * MS, 1 * MS)
    return dict(traces.facts()[0])


def test_the_cause_is_what_changed() -> None:
    by_shape = traced({"x": tensor(3, 4)}, {"x": tensor(2, 4)}, {"x": tensor(1, 4)})
    assert (by_shape["cause"], by_shape["argument"], by_shape["times"]) == ("shape", "x", 2)
    assert by_shape["examples"] == ["float32[3, 4]", "float32[2, 4]", "float32[1, 4]"]
    by_type = traced({"x": tensor(3)}, {"x": tensor(3, kind="float64")})
    assert (by_type["cause"], by_type["examples"]) == ("type", ["float32[3]", "float64[3]"])
    by_value = traced({"x": tensor(3), "n": ("python", "1")}, {"x": tensor(3), "n": ("python", "2")})
    assert (by_value["cause"], by_value["argument"]) == ("python", "n")
    now_a_tensor = traced({"n": ("python", "1")}, {"n": tensor()})
    assert now_a_tensor["cause"] == "python"
    by_object = traced({"o": ("object", "<A 1>")}, {"o": ("object", "<A 2>")})
    assert by_object["cause"] == "object"
    by_structure = traced({"x": tensor(3)}, {"x": tensor(3), "mask": tensor(3)})
    assert (by_structure["cause"], by_structure["argument"]) == ("structure", "mask")
    assert traced({"x": tensor(3)}, {"x": tensor(3)}, made_anew=True)["cause"] == "new"
    assert traced({"x": tensor(3)}, {"x": tensor(3)})["cause"] == "other"


def test_a_trace_is_compared_with_the_most_similar_one_before_it() -> None:
    """The third call differs from the first in its value alone, from the second in both."""
    found = traced(
        {"x": tensor(3), "n": ("python", "1")},
        {"x": tensor(5), "n": ("python", "2")},
        {"x": tensor(3), "n": ("python", "9")},
        {"x": tensor(3), "n": ("python", "8")},
    )
    assert (found["cause"], found["argument"], found["times"]) == ("python", "n", 3)


def test_functions_are_counted_by_their_place_and_never_without_bound() -> None:
    traces = Traces()
    for number in range(MOST_FUNCTIONS + 50):
        function = traces.find_function(f"step{number}", "train.py:1")
        traces.add_trace(function, number, {}, 1 * MS, 0)
    facts = traces.facts()
    assert len(facts) == MOST_FUNCTIONS + 1
    assert facts[-1]["function"] == "other functions" and facts[-1]["traces"] == 50


def test_a_place_is_that_of_the_function_inside_its_decorators() -> None:
    def inner() -> None: ...

    def outer() -> None: ...

    outer.__wrapped__ = inner  # type: ignore[attr-defined]
    assert code_place(outer) == f"test_retracing.py:{inner.__code__.co_firstlineno}"
    assert code_place(len) == "" and code_place(None) == ""


def function(traces: int, calls: int, run: float = 0.001, usual: float = 0.001, **more: Any) -> dict[str, Any]:
    """Traced for 10 ms each time; a first run takes `run` s, a usual one `usual` s."""
    return {
        "function": "step", "where": "train.py:12", "calls": calls, "traces": traces, "trace_s": 0.01 * traces,
        "first_s": 0.01, "run_s": run * traces, "call_s": (0.01 + run) * traces + usual * (calls - traces),
        "cause": "shape", "argument": "x", "times": traces - 1, "examples": ["float32[3]", "float32[4]"], **more,
    }  # fmt: skip


def judged(*functions: dict[str, Any], framework: str = "tensorflow") -> Any:
    made = example()
    return retracing.rule(replace(made, workload=workload_of({"framework": framework, "traced": list(functions)})))


def test_the_verdict_names_function_cause_and_remedy() -> None:
    said = judged(function(20, 20))
    # 19 of 20 traces can be avoided: 190 of 220 ms.
    assert said.share == pytest.approx(0.19 / 0.22)
    found = said.finding
    assert isinstance(found, Retraced) and (found.function, found.where) == ("step", "train.py:12")
    assert (found.traces, found.calls, found.share.value) == (20, 20, pytest.approx(0.19 / 0.22))
    assert (found.cause, found.argument, found.examples) == ("shape", "x", ("float32[3]", "float32[4]"))
    assert not found.by_xla and not found.at_most
    advised = TraceOnce("step", "train.py:12", "shape", "x", "tensorflow", by_xla=False)
    assert [remedy.advice for remedy in said.remedies] == [advised]


def test_a_first_run_counts_for_what_it_takes_beyond_a_usual_one() -> None:
    """3 traces of 10 ms and first runs of 5 ms in 10 calls; the 7 others take 1 ms: 2 x (10 + 4) of 52 ms are lost."""
    said = judged(function(3, 10, run=0.005))
    assert said.share == pytest.approx(0.028 / 0.052)


def test_what_xla_compiles_in_every_call_is_lost_too() -> None:
    """7 calls of 170 ms tracing and 1.27 s compiling with the run in it: 6 of 7 calls, and no more is known."""
    said = judged(function(7, 7, run=1.27, xla=True, trace_s=7 * 0.17, first_s=0.17, call_s=7 * 1.44))
    assert said.share == pytest.approx(6 / 7)
    assert said.finding.by_xla and said.finding.at_most and said.finding.share.value == pytest.approx(6 / 7)
    assert said.remedies[0].advice.by_xla, "XLA compiles for each shape, however general the graph is"


def test_what_xla_compiled_is_told_from_a_run_where_there_was_one() -> None:
    """12 times 10 ms tracing and 1 s compiling in 24 calls; a usual one takes 100 ms: 11 x (10 + 900) of 13.32 s."""
    said = judged(function(12, 24, run=1.0, usual=0.1, xla=True))
    assert said.share == pytest.approx(11 * 0.91 / (12 * 1.01 + 12 * 0.1)) and not said.finding.at_most


def test_xla_is_no_remedy_for_a_function_that_it_compiles_already() -> None:
    step, helper = function(1, 100, xla=True), function(1, 10, function="helper")
    made = replace(
        example(), target=target_of({}), workload=workload_of({"framework": "tensorflow", "traced": [step, helper]})
    )
    assert [one.advice for one in remedies(made, compiled, graphs)] == [SeveralStepsAtOnce("tensorflow")]
    made = replace(
        made,
        workload=workload_of({"framework": "tensorflow", "traced": [{**step, "xla": False}, {**helper, "xla": True}]}),
    )
    assert len(remedies(made, compiled, graphs)) == 2, "the function that takes most of the time is not compiled"


def test_few_traces_and_cheap_ones_are_no_verdict() -> None:
    assert judged() is None
    assert judged(function(2, 2)) is None, "full batches and the last one"
    assert judged(function(3, 1000)) is None, "20 ms of 1.03 s"
    assert judged(function(3, 100)) is not None, "20 ms of 0.13 s"


def test_a_function_that_is_seldom_called_is_no_verdict() -> None:
    """20 of its 33 ms, beside 1 s of another's."""
    steady = function(1, 991, function="train")
    assert judged(function(3, 3)) is not None and judged(function(3, 3), steady) is None
    # 190 of 220 ms are its own share, and of all functions' time, 320 ms, it is 59 %.
    said = judged(function(20, 20), function(1, 90, function="train"))
    assert said.share == pytest.approx(0.19 / 0.32) and said.finding.share.value == pytest.approx(0.19 / 0.22)


def test_where_most_time_is_lost_nothing_else_is_looked_for() -> None:
    made = example()
    plain = replace(made.parts[0], noise=0.01, phases=made.parts[0].phases[:1], layers=())
    for functions, kinds in (([function(20, 20)], "retracing"), ([], "unknown")):
        summary = replace(made, parts=(plain,), workload=workload_of({**made.workload.plain(), "traced": functions}))
        assert verdicts(summary)[0][0].kind == kinds
    # 190 of 600 ms, and all else of the step nobody has counted: that it cannot be told goes without saying.
    (row,) = plain.phases
    uncounted = replace(plain, phases=(replace(row, cost=replace(row.cost, limits={})),))
    for functions, kinds in (([function(20, 20, run=0.02)], ["retracing"]), ([], ["unknown"])):
        summary = replace(
            made, parts=(uncounted,), workload=workload_of({**made.workload.plain(), "traced": functions})
        )
        assert [verdict.kind for verdict in verdicts(summary)[0]] == kinds


def test_the_function_that_lost_most_is_named() -> None:
    assert judged(function(3, 3), function(30, 30, function="worse")).finding.function == "worse"


@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
@pytest.mark.parametrize("cause", ["shape", "type", "python", "object", "structure", "new", "other"])
def test_the_remedy_follows_from_the_cause(cause: str, framework: str) -> None:
    advised = judged(function(9, 9, cause=cause), framework=framework).remedies[0].advice
    assert (advised.cause, advised.framework) == (cause, framework)


def test_noise_does_not_hide_it() -> None:
    made = example()
    noisy = replace(made.parts[0], noise=0.9)
    plain = replace(
        made,
        parts=(noisy, *made.parts[1:]),
        workload=workload_of({**made.workload.plain(), "traced": [function(20, 20)]}),
    )
    kinds = [verdict.kind for verdict in verdicts(plain)[0]]
    assert kinds == ["retracing", "noisy"]


def test_a_function_without_traces_is_not_kept() -> None:
    traces = Traces()
    traces.find_function("never", "").calls += 1
    assert traces.facts() == []
    assert FunctionTraces("a", "b").traces == 0
