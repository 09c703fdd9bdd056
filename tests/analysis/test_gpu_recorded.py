"""Runs that a real H200 made: their numbers hang together, whichever way they are added up."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from places import TESTS
from sonda.analysis.rules.limit_findings import HostBound
from sonda.analysis.run_summary import summarise
from sonda.analysis.steps.device_time import union
from sonda.analysis.summary import Summary
from sonda.analysis.traces.summary import device_work
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.report.blocks import Detail
from sonda.report.views.steps.view import StepsView

RUNS = TESTS / "corpus" / "runs"
ALL = {"mlp": "534b", "cnn": "726d", "program": "1332", "jax": "a7a8"}


@pytest.fixture(params=list(ALL))
def run(request: pytest.FixtureRequest) -> Run:
    return Store(RUNS).one(ALL[request.param])


def summary_of(name: str) -> Summary:
    return summarise(Store(RUNS).one(ALL[name]))


def test_phases_and_the_rest_add_up_to_every_step(run: Run) -> None:
    part = summarise(run).parts[0]
    total = sum(np.array(values) for values in part.phase_steps.values())
    assert np.abs(total - np.array(part.durations)).max() <= 1
    assert part.phase_steps["other"] and min(part.phase_steps["other"]) >= 0


def test_the_union_of_kernels_is_the_devices_busy_time(run: Run) -> None:
    """Once as intervals joined, once as a sweep over their ends: two algorithms, one number."""
    spans = run.spans
    rows = np.flatnonzero(np.isin(spans.words("kind").decoded(), ("kernel", "copy", "collective")))
    start = spans.number("start")[rows]
    joined = union(start, start + spans.number("duration")[rows])
    (device,) = device_work(run).devices
    assert joined == device.busy
    side = summarise(run).parts[0].device
    assert side is not None and side.busy.value == pytest.approx(joined / side.steps)


def test_every_activity_hangs_on_a_layer_or_phase_of_a_recorded_step(run: Run) -> None:
    spans = run.spans
    rows = np.flatnonzero(np.isin(spans.words("kind").decoded(), ("kernel", "copy", "collective")))
    parent = spans.number("parent")[rows]
    assert set(spans.words("kind").decoded()[parent]) <= {"layer", "phase"}
    assert set(spans.words("pass").decoded()[parent]) == {"kernels"}
    # Nothing begins on the device before the host has begun to launch it; 5 µs are the clocks'.
    assert (spans.metric("launch_latency", "measured")[rows] > -5_000).all()
    assert (spans.number("start")[rows] - spans.number("start")[parent] > -5_000).all()


def test_layers_have_all_kernels_once(run: Run) -> None:
    spans = run.spans
    rows = np.flatnonzero(spans.where(kind="kernel"))
    in_layers = spans.words("kind").decoded()[spans.number("parent")[rows]] == "layer"
    copies = np.flatnonzero(spans.where(kind="copy"))
    copied = spans.words("kind").decoded()[spans.number("parent")[copies]] == "layer"
    expected = spans.number("duration")[rows][in_layers].sum() + spans.number("duration")[copies][copied].sum()
    part = summarise(run).parts[0]
    assert part.device is not None
    # Per step: the median of three steps is not their mean, and kernels take a few per cent more or less.
    own = sum(row.own.value or 0.0 for row in part.layers)
    assert own == pytest.approx(expected / part.device.steps, rel=0.05)


def test_a_step_that_the_host_holds_up_is_called_so(run: Run) -> None:
    summary = summarise(run)
    side = summary.parts[0].device
    assert side is not None and side.share < 0.5
    verdict = summary.verdicts[0]
    assert verdict.kind == "host"
    # What waiting for data takes is not launching: it is no part of the time that the launches are held against.
    launching = (summary.parts[0].step.value or 0.0) * (
        1 - sum(row.cost.share for row in summary.parts[0].phases if row.name == "data" and row.cost.time.value)
    )
    assert isinstance(verdict.finding, HostBound) and verdict.finding.launching.value == pytest.approx(launching)
    assert "NVIDIA H200" in StepsView(summary).text(120, color=False, detail=Detail.ALL)


def test_backward_counts_twice_the_flops_of_forward() -> None:
    """Of a layer whose input needs a gradient, two products of the forward's size."""
    layers = {row.path: row for row in summary_of("cnn").parts[0].layers}
    conv = layers["features.3"]
    assert conv.cost.flops.value is not None
    # 32 samples, 32 to 64 channels, 3 x 3, 13 x 13 places; the bias is added and its gradient summed, 0.2 % of it.
    product = 2 * 32 * 32 * 64 * 3 * 3 * 13 * 13
    assert conv.cost.flops.value == pytest.approx(3 * product, rel=0.003)


def test_counted_flops_of_products_are_near_the_nominal_ones() -> None:
    found = summary_of("cnn").kernel_counters
    assert found is not None
    ratios = {place.path: place.counted.value / place.nominal.value for place in found.places
              if place.path.startswith("features") and place.name == "Conv2d"
              and place.counted.value and place.nominal.value}  # fmt: skip
    # cuDNN's own kernels compute padding too, and Winograd's transform computes less.
    assert len(ratios) == 3 and all(0.4 < ratio < 1.6 for ratio in ratios.values())


def test_energy_of_a_command_names_what_is_dead_and_what_it_covers() -> None:
    run = Store(RUNS).one("352b")
    states = {one.sensor: one.state for one in run.info.target.metered.counters}
    assert states == {"psys energy": "dead", "energy": "ok"}
    joules = [sample.value for sample in run.samples if sample.sensor == "energy" and sample.time >= 0]
    assert len(joules) > 15 and all(later >= sooner for sooner, later in pairwise(joules))
    # 6 s of products near the card's limit of 700 W, and some seconds of starting: more than idle, less than the limit.
    assert 100 * 10 < joules[-1] - joules[0] < 700 * 10


def test_a_network_in_jax_has_kernels_and_counts_too() -> None:
    """The step is one function; its FLOPs are those of 3 convolutions and 2 dense layers, forward and backward."""
    summary = summary_of("jax")
    (fused,) = (row for row in summary.parts[0].phases if row.name == "fused")
    # Outputs 30 x 30, 13 x 13 and 4 x 4; of the first layer no gradient of the input is asked for.
    first, second, third = 2 * 32 * 27 * 32 * 900, 2 * 32 * 288 * 64 * 169, 2 * 32 * 576 * 64 * 16
    dense, last = 2 * 32 * 1024 * 64, 2 * 32 * 64 * 10
    products = 2 * first + 3 * (second + third + dense + last)
    assert fused.cost.flops.value == pytest.approx(products, rel=0.005)  # and biases, pooling, the loss, the optimizer
    counters = summary.kernel_counters
    assert counters is not None
    counted = sum(place.counted.value or 0.0 for place in counters.places)
    assert 1.0 < counted / products < 1.3  # cuDNN's kernels compute padding too
