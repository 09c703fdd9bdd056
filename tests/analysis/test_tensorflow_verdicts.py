"""What is advised to programs in TensorFlow: a step that runs operation by operation should be a graph first."""

from __future__ import annotations

import pytest

from plain_runs import target_of, workload_of
from sonda.analysis.findings import Finding
from sonda.analysis.rules.advice import Change, FuseOperations, LaunchAtOnce, SeveralStepsAtOnce, TryChange
from sonda.analysis.rules.remedies import compiled, graphs
from sonda.analysis.summary import Cost, PartSummary, PhaseRow, Summary, Value

STEP = Value(1e7, "ns", "measured")


def told(framework: str, *phases: str) -> Summary:
    """A program of which these phases were seen."""
    nothing = Value(None, "1", "derived")
    cost = Cost(STEP, 0.5, *[nothing] * 5, "", nothing)
    rows = tuple(PhaseRow(name, cost, nothing) for name in phases)
    part = PartSummary("train", STEP, 20, 0, (1e7,) * 20, 0.01, nothing, nothing, rows, (), {})
    return Summary(
        "7f3a", "", "", "complete", (part,), (), (), notes=(), ceilings={},
        workload=workload_of({"framework": framework}), target=target_of({"spec": ""}),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("framework", "phases", "advice"),
    [
        ("tensorflow", ("data", "forward", "loss", "backward", "optimizer"), TryChange(Change.RUN_AS_GRAPH)),
        ("tensorflow", ("data", "fused"), FuseOperations("tensorflow", partly=False)),
        ("torch", ("forward", "backward"), FuseOperations("torch", partly=False)),
    ],
)
def test_a_step_that_is_no_graph_should_be_one_first(framework: str, phases: tuple[str, ...], advice: Finding) -> None:
    remedy = compiled(told(framework, *phases))
    assert remedy is not None and remedy.advice == advice


@pytest.mark.parametrize(
    ("framework", "phases", "advice"),
    [
        ("jax", ("data", "fused"), SeveralStepsAtOnce("jax")),
        ("jax", ("forward", "backward"), LaunchAtOnce("jax")),
        ("tensorflow", ("data", "fused"), LaunchAtOnce("tensorflow")),
    ],
)
def test_a_step_that_is_one_function_need_not_become_one(
    framework: str, phases: tuple[str, ...], advice: Finding
) -> None:
    """XLA launches every kernel of a jitted step by itself; only a call for several steps launches less often."""
    remedy = graphs(told(framework, *phases))
    assert remedy is not None and remedy.advice == advice
