"""The benchmark of a GPU, without one: it says so, and its arithmetic is right on what an H200 recorded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from benchmarks import gpu, gpu_program
from benchmarks.gpu_reported import add_bar, counted_ratio, covered_ns, dot_bar, intervals, union_bar

from gpu_roofline_cases import gpu_run
from ncu_findings_cases import six_operations
from places import TESTS
from sonda.analysis.run_summary import summarise
from sonda.record.store import Store
from sonda.report.views.steps.view import StepsView

torch = pytest.importorskip("torch")
RUNS = TESTS / "corpus" / "runs"


def document_of(run: Any) -> dict[str, Any]:
    """As `--json` writes it."""
    return json.loads(json.dumps(StepsView(summarise(run)).document()))


def test_without_a_gpu_nothing_is_measured_and_that_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINETO_LOG_LEVEL", "99")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.run() == []
    assert capsys.readouterr().out == "no GPU that PyTorch can use: nothing to measure\n"


def test_the_product_that_an_h200_counted_is_held_against_theory() -> None:
    """At 2048: 2,048 multiply-adds an element, and one multiplication by alpha."""
    card = {"cuda:0": {"name": "NVIDIA H200"}}
    document = document_of(six_operations().run(target={"spec": "cuda:0", "device": "cuda", "devices": card}))
    assert counted_ratio(document, 2048) == 4097 / 4096
    bar = dot_bar(document, 2048)
    assert (bar.state, bar.figure) == ("PASS", "1.00024, bar 1 ± 0.01")
    # Of a larger product these would be far too few.
    assert dot_bar(document, 4096).state == "FAIL" and counted_ratio(document, 4096) == 4097 / 4096 / 8


def test_a_product_in_which_nothing_was_counted_fails() -> None:
    for document in ({}, {"device": None}, {"device": {"places": []}}):
        assert dot_bar(document).state == "FAIL"


def test_the_share_of_add_is_the_one_that_sonda_says() -> None:
    """1.2 GB in 0.5 ms are 2.4 of 4 TB/s."""
    document = document_of(gpu_run())
    bar = add_bar(document)
    assert (bar.state, bar.figure) == ("FAIL", "0.600, bound by memory; bar 0.85, bound by memory")
    (layer,) = (one for one in document["parts"][0]["layers"] if one["path"] == "add")
    layer["metrics"]["roof:derived"]["value"] = 0.86
    assert add_bar(document).state == "PASS"
    layer["bound"] = None
    assert add_bar(document).state == "FAIL"
    assert add_bar({"parts": []}).state == "FAIL"


@pytest.mark.parametrize("identity", ["534b0c2838db", "726d13c350b5", "13323e0bda99"])
def test_kernels_of_an_h200_cover_its_busy_time(identity: str) -> None:
    document = document_of(Store(RUNS).one(identity))
    activities = intervals(RUNS, document)
    bar = union_bar(document, activities)
    assert bar.state == "PASS" and len(activities) > 50
    longest = max(activities, key=lambda one: one[1] - one[0])
    assert union_bar(document, [one for one in activities if one != longest]).state == "FAIL"


def test_what_intervals_cover_is_counted_once() -> None:
    assert covered_ns([(0, 10), (5, 8), (20, 30), (21, 22), (30, 31)]) == 21
    assert covered_ns([]) == covered_ns([(5, 5)]) == 0


def test_the_program_says_how_long_its_later_steps_took(capsys: pytest.CaptureFixture[str]) -> None:
    torch.set_num_threads(1)
    gpu_program.main(["mlp", "cpu", "2"])
    assert gpu.said_ns("epoch 1\n" + capsys.readouterr().out + "saved\n") > 0


def test_ways_are_held_against_the_bare_one_of_their_round() -> None:
    found = gpu.later_ratios({"bare": [100.0, 200.0, 100.0], "Sonda": [102.0, 204.0, 102.0], "profiler": [120.0] * 3})
    assert found["Sonda"].median == pytest.approx(1.02) and found["Sonda"].high == pytest.approx(1.02)
    assert (found["profiler"].low, found["profiler"].high) == (pytest.approx(0.6), pytest.approx(1.2))
    assert "bare" not in found
