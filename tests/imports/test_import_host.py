"""Traces of programs that use no device: what the host did, operation by operation, and what steps are spent on."""

from __future__ import annotations

import json
from pathlib import Path

from sonda.analysis.traces.summary import summarise_trace
from sonda.report.blocks import Detail
from sonda.report.views.imported import TraceView
from sonda.report.words import describe
from sonda.targets.imported.launcher import import_files
from trace_examples import imported, op, step

ENGINE = "autograd::engine::evaluate_function: AddmmBackward0"


def test_operations_without_those_inside_them(tmp_path: Path) -> None:
    """Constructed: 100 µs in a linear layer, of which 80 in a product; 60 µs of autograd, of which 40 in a product."""
    events = [op("aten::linear", 0, 100), op("aten::addmm", 10, 80), op(ENGINE, 200, 60), op("aten::mm", 210, 40)]
    found = summarise_trace(imported(tmp_path, events))
    assert found.profile is not None
    own = {one.name: (one.calls, one.own) for one in found.profile.operations}
    assert own == {"aten::addmm": (1, 80_000), "aten::mm": (1, 40_000), "aten::linear": (1, 20_000)}
    (verdict,) = found.summary.verdicts
    assert describe(verdict.finding).endswith(
        "Of 140 µs in operations, aten::addmm 57 %, aten::mm 29 % and aten::linear 14 %."
    )
    screen = TraceView(found).text(80, color=False, detail=Detail.ALL)
    assert "aten::addmm" in screen and max(map(len, screen.splitlines())) <= 80


def test_steps_are_divided_into_operations_input_and_the_rest(tmp_path: Path) -> None:
    """Constructed: of 1 ms a step, 600 µs wait for data, 300 µs are an operation, 100 µs are nothing that is known."""
    events = []
    for number in range(3):
        begin = 1000 * number
        waiting = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        events += [step(number, begin, 1000), op(waiting, begin, 600), op("aten::mm", begin + 650, 300)]
    found = summarise_trace(imported(tmp_path, events))
    assert found.profile is not None
    (steps,) = found.profile.steps
    parts = {name: value.value for name, value in steps.parts.items() if value.value}
    assert parts == {"input": 3 * 600_000, "operations": 3 * 300_000, "idle": 3 * 100_000}
    assert found.summary.verdicts[0].kind == "input"


def test_a_trace_of_torch_profiler(tmp_path: Path) -> None:
    """Real: as many products as were done, in times that do not exceed the trace's own."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    torch.set_num_threads(1)
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(7):
            torch.mm(a, b)
    path = tmp_path / "trace.json"
    profiler.export_chrome_trace(str(path))
    events = [one for one in json.loads(path.read_text())["traceEvents"] if one.get("name") == "aten::mm"]
    found = summarise_trace(import_files([path], tmp_path / "runs"))
    assert found.profile is not None
    product = next(one for one in found.profile.operations if one.name == "aten::mm")
    assert product.calls == 7 == len(events)
    assert abs(product.total / 1000 - sum(one["dur"] for one in events)) < 0.01 * 7


def test_operations_of_a_step_are_named_by_their_own_time(tmp_path: Path) -> None:
    """Constructed: 900 of 1000 µs are a linear layer, 800 of them its product."""
    events = [step(0, 0, 1000), op("aten::linear", 50, 900), op("aten::addmm", 100, 800)]
    (verdict,) = summarise_trace(imported(tmp_path, events)).summary.verdicts
    assert verdict.kind == "compute"
    assert describe(verdict.finding).startswith("Compute-bound on the host: operations take 90 % of the step")
    assert describe(verdict.finding).endswith("89 % of it aten::addmm.")
