"""A finite buffer on the screen: stalls as a part of the cycle stack, bytes, rows; shown only where there is one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import snapshot_files as snapshots
from simulated_examples import CLOCKED, FINITE, LAYER, SMALL_LAYER, TRAFFIC, given_traffic, nested, nested_run
from sonda.accelerators.description.settings import with_settings
from sonda.accelerators.mapping.placement import Placement
from sonda.analysis.run_summary import summarise
from sonda.analysis.simulated.run import MEMORY
from sonda.record.quantities import CYCLE_STACK
from sonda.report.blocks import Detail
from sonda.report.page import page_text
from sonda.report.views.steps.view import StepsView
from sonda.report.words import describe
from sonda.targets.simulated import launcher as simulated
from sonda.targets.simulated.launcher import simulate

WHOLE = 2 * LAYER + SMALL_LAYER + 3 * TRAFFIC.stall_cycles
SLOW = "memory.buffer_KiB=4 memory.bytes_per_cycle=1 memory.latency_cycles=100 memory.row_bytes=1024 " \
       "memory.row_miss_cycles=10"  # fmt: skip


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every operation moves the same bytes and waits 2,000 cycles."""
    monkeypatch.setattr(simulated, "with_memory", given_traffic)


@pytest.mark.usefixtures("by_hand")
def test_stalls_are_cycles_and_a_part_of_the_stack() -> None:
    simulation = simulate(nested(), Placement(FINITE), curious=False)
    spans = simulation.spans
    cycles = spans.metric("cycles", "simulated")
    (step,) = np.flatnonzero(spans.where(kind="step"))
    assert cycles[step] == WHOLE
    assert spans.metric("memory_cycles", "simulated")[step] == 6_000
    assert spans.number("duration")[step] == WHOLE  # ns at 1 GHz
    stack = sum(spans.metric(f"{part}_cycles", "simulated") for part in (*CYCLE_STACK, MEMORY))
    known = ~np.isnan(cycles)
    assert np.array_equal(np.asarray(stack)[known], cycles[known])
    # Multipliers could have worked while they waited.
    assert spans.metric("multiplier_cycles", "simulated")[step] == 256 * WHOLE
    assert [(one["cycles"], one["stall_cycles"]) for one in simulation.mapping] == [
        (LAYER + 2_000, 2_000),
        (SMALL_LAYER + 2_000, 2_000),
    ]


@pytest.mark.usefixtures("by_hand")
def test_the_summary_has_bytes_rows_and_the_verdict(tmp_path: Path) -> None:
    what_if = [{"set": "memory.bytes_per_cycle=32", "words": "twice the memory's bandwidth", "cycles": WHOLE // 2}]
    summary = summarise(nested_run(FINITE, tmp_path, what_if=what_if))
    (part,) = summary.parts
    whole = part.simulated
    assert whole is not None
    assert whole.traffic is not None
    assert (whole.traffic.reads.value, whole.traffic.writes.value) == (3 * 43_008, 3 * 5_120)
    assert whole.traffic.row_hits.value == pytest.approx(730 / 752)
    (phase,) = part.phases
    assert phase.cost.bytes.value == 3 * (43_008 + 5_120)
    assert phase.cost.bandwidth.value == pytest.approx(3 * 48_128 / (WHOLE * 1e-9))
    assert phase.counters["dram_read_bytes:simulated"].value == 3 * 43_008
    (verdict,) = summary.verdicts
    assert verdict.kind == "memory"
    # Two of three operations wait 2,000 of 3,356 cycles.
    assert "60 % of them spent waiting for the memory behind the global buffer" in describe(verdict.finding)
    (remedy,) = verdict.remedies
    assert describe(remedy.advice) == "--set memory.bytes_per_cycle=32 (twice the memory's bandwidth)"
    assert remedy.speedup is not None
    assert remedy.speedup.value == pytest.approx(2.0)
    assert "buffer of 64 KiB, memory of 16 B/cycle" in summary.subtitle


@pytest.mark.usefixtures("by_hand")
@pytest.mark.parametrize("width", [120, 80])
def test_screens(width: int, tmp_path: Path) -> None:
    what_if: list[dict[str, Any]] = [
        {"set": "memory.bytes_per_cycle=32", "words": "twice the memory's bandwidth", "cycles": 6_000},
        {"set": "memory.buffer_KiB=128", "words": "twice the global buffer", "cycles": WHOLE},
    ]
    summary = summarise(nested_run(FINITE, tmp_path, what_if=what_if))
    text = StepsView(summary).text(width, short="abcd", color=False, detail=Detail.ALL)
    assert max(len(line) for line in text.splitlines()) <= width
    snapshots.check(f"summary_simulated_memory_{width}", text)


def test_an_unlimited_buffer_shows_no_memory(tmp_path: Path) -> None:
    run = nested_run(CLOCKED, tmp_path)
    assert "memory_cycles:simulated" not in run.spans.metrics
    summary = summarise(run)
    whole = summary.parts[0].simulated
    assert whole is not None
    assert whole.traffic is None
    assert MEMORY not in whole.stack
    text = StepsView(summary).text(200, color=False, detail=Detail.ALL)
    assert "DRAM" not in text
    metrics = StepsView(summary).document()["parts"][0]["metrics"]
    assert not [name for name in metrics if name.startswith(("dram", "memory", "row"))]
    assert summary.parts[0].phases[0].cost.bytes.reason == "the global buffer is unlimited, so no memory is behind it"
    snapshots.check("summary_simulated_120", StepsView(summary).text(120, short="abcd", color=False, detail=Detail.ALL))


@pytest.mark.usefixtures("by_hand")
def test_documents_pages_and_notebooks_have_it(tmp_path: Path) -> None:
    summary = summarise(nested_run(FINITE, tmp_path))
    metrics = json.loads(json.dumps(StepsView(summary).document()))["parts"][0]["metrics"]
    assert metrics["memory_cycles:simulated"]["value"] == 6_000
    assert metrics["dram_write_bytes:simulated"] == {"value": 15_360.0, "unit": "B", "source": "simulated"}
    assert metrics["row_hit_share:derived"]["value"] == pytest.approx(730 / 752)
    page = page_text([summary])
    assert "DRAM written" in page
    assert "cycles in memory, simulated" in page, "a part of the figure's bars"
    assert "memory" in StepsView(summary).fragment(), "a part of the bar"


def test_a_slow_memory_of_the_real_model_is_seen_and_widening_it_helps(tmp_path: Path) -> None:
    slow = with_settings(CLOCKED, SLOW)
    simulation = simulate(nested(), Placement(slow))
    by_change = {change.set: change.cycles for change in simulation.what_if}
    assert list(by_change) == ["memory.bytes_per_cycle=2", "memory.buffer_KiB=8"]
    for change, cycles in by_change.items():
        again = simulate(nested(), Placement(with_settings(slow, change)), curious=False)
        assert sum(one["cycles"] * one["count"] for one in again.mapping) == cycles
    now = sum(one["cycles"] * one["count"] for one in simulation.mapping)
    assert by_change["memory.bytes_per_cycle=2"] < now
    # Weights alone are 2 x 32 KiB and 8 KiB, a byte in a cycle.
    assert now > 2 * 32_768 + 8_192
    assert replace(slow, memory=None) == replace(CLOCKED, notes=slow.notes)
