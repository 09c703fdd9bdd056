"""Layers and phases agree in every framework: layers and what is outside of them are the time of their phase."""

from __future__ import annotations

from pathlib import Path

import pytest

from sonda.analysis.run_summary import summarise
from sonda.analysis.summary import LayerRow, PartSummary
from sonda.record.store import Store
from sonda.targets.adapters.registry import ADAPTERS
from sonda.targets.job import Job
from sonda.targets.pipeline import measure

SMALL: dict[str, dict[str, str]] = {
    "mlp": {"batch": "32"},
    "cnn": {"batch": "4", "image": "24x24"},
    "resnet18": {"batch": "2", "image": "32x32"},
    "lstm": {"batch": "4", "length": "8"},
    "transformer": {"batch": "2", "length": "8", "layers": "2", "width": "16", "vocabulary": "20"},
    "dlrm": {"batch": "16"},
}
CASES = [
    (framework, workload, train)
    for framework, adapter in ADAPTERS.items()
    for workload in SMALL
    for train in (True, False)
    if not adapter.workloads or workload in adapter.workloads
]


def summary_of(place: Path, framework: str, workload: str, train: bool) -> PartSummary:
    pytest.importorskip(framework)
    job = Job(
        workload=workload, options=SMALL[workload], framework=framework, train=train, steps=6, warmup=1, threads=1
    )
    return summarise(measure(job, Store(place))).parts[0]


def ns(value: float | None) -> float:
    assert value is not None
    return value


def outermost(part: PartSummary) -> list[LayerRow]:
    return [row for row in part.layers if row.depth == 0]


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "workload", "train"), CASES)
def test_layers_and_what_is_outside_are_their_phases(
    framework: str, workload: str, train: bool, tmp_path: Path
) -> None:
    part = summary_of(tmp_path, framework, workload, train)
    step = ns(part.step.value)
    phases = {row.name: ns(row.cost.time.value) for row in part.phases}
    inside = {name: share * step for name, share in part.inside.items()}
    if inside:
        assert sum(inside.values()) == pytest.approx(phases["fused"])
        phases |= inside
    assert part.layers and part.outside and set(part.outside) <= set(phases)
    outside = {name: ns(value.value) for name, value in part.outside.items()}
    assert all(value >= 0 for value in outside.values())
    own = sum(ns(row.own.value) for row in part.layers)
    assert own + sum(outside.values()) == pytest.approx(sum(phases[name] for name in outside))
    assert own <= step * (1 + 1e-9)
    if inside:  # there the columns add up, too
        backward = sum(row.backward.value or 0.0 for row in outermost(part))
        assert backward + outside["backward"] == pytest.approx(phases["backward"])
        forward = sum(ns(row.forward.value) for row in outermost(part))
        ahead = [name for name in outside if name != "backward"]
        assert forward + sum(outside[name] for name in ahead) == pytest.approx(sum(phases[name] for name in ahead))
