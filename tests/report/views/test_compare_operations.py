"""Two traces of processors alone: they hold no kernel, and are compared operation by operation."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sonda import api
from sonda.analysis.comparison.kernels import compare_kernels
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.report.screen import render
from sonda.report.views.compare.kernels import kernel_comparison_blocks, kernel_comparison_document


def imported(place: Path, name: str, operations: dict[str, list[int]], cat: str = "cpu_op") -> Run:
    """A trace of PyTorch's with these operations, durations in µs, one after the other."""
    events, at = [], 1000
    for called, durations in operations.items():
        for lasted in durations:
            events.append({"ph": "X", "cat": cat, "name": called, "pid": 1, "tid": 1, "ts": at, "dur": lasted})
            at += lasted + 1
    path = place / f"{name}.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return api.import_trace(path, store=place / "store").run


def test_operations_are_compared_where_there_is_no_device(tmp_path: Path) -> None:
    a = imported(tmp_path, "a", {"aten::mm": [10, 12, 14], "aten::add": [5], "aten::relu": [2]})
    b = imported(tmp_path, "b", {"aten::mm": [20, 24, 28, 24], "aten::add": [5], "aten::tanh": [3]})
    found = compare_kernels([a], [b])
    assert found.on_host and not found.per_step
    rows = {row.name: row for row in found.rows}
    product = rows["aten::mm"]
    assert (product.launches_a, product.launches_b, product.a.value, product.b.value) == (3, 4, 36_000, 96_000)
    assert product.ratio.value == pytest.approx(2.0)
    assert rows["aten::add"].ratio.value == pytest.approx(1.0)
    assert [one.name for one in found.only_a] == ["aten::relu"]
    assert [one.name for one in found.only_b] == ["aten::tanh"]
    assert [(name, one.value, other.value) for name, one, other in found.totals] == [("operations", 43_000, 104_000)]
    text = render(kernel_comparison_blocks(found), 140)
    assert "operation (largest change first)" in text and "calls A" in text and "launch" not in text
    assert re.search(r"^  aten::mm +3 +4 +36", text, re.MULTILINE), "whole numbers of calls"
    assert kernel_comparison_document(found)["on_host"] is True


def test_a_trace_with_kernels_is_not_held_against_one_without(tmp_path: Path) -> None:
    a = imported(tmp_path, "a", {"aten::mm": [10]})
    b = imported(tmp_path, "b", {"gemm": [10]}, "kernel")
    with pytest.raises(SondaError, match=f"{a.id} holds no kernel"):
        compare_kernels([a], [b])
