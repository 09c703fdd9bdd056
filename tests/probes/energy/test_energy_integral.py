"""A GPU whose power can be read and whose energy is not counted: the integral of its power, derived, with no bounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from energy_coverage_cases import NO_COUNTER, PACKAGE, REST
from energy_summary_cases import BOARD, MS, S, counter, found_in, keep, training
from plain_runs import change_target
from sonda.analysis.energy.summary import EnergySummary
from sonda.analysis.reasons import POWER_SAMPLED
from sonda.analysis.steps.training import summarise_training
from sonda.probes.energy.channels import Channel
from sonda.probes.energy.meter import _judge_probe
from sonda.probes.energy.readings import ChannelSeries, EnergyReadings
from sonda.record.samples import Sample
from sonda.record.stored import plain
from sonda.report.blocks import Detail
from sonda.report.views.energy import EnergyView
from sonda.report.words import describe
from training_examples import trained

RAMP = [Sample(at * S, "power", 100.0 + 25.0 * at, "W", "measured", device="cuda:1") for at in range(-2, 5)]
"""100 W when the program begins, 200 W when it ends 4 s later: 600 J."""


def summary(root: Path, used: list[str] | None = None) -> EnergySummary:
    energy = {
        "counters": [counter("package-0 energy")], "interval": 1.0, "readings": 7, "missing": [NO_COUNTER],
        "used": used or [], "regions": [["late", 2 * S, 4 * S]], "devices": {"cuda:1": "Tesla K20m"},
    }  # fmt: skip
    return found_in(keep(root, energy, [*PACKAGE, *RAMP]))


def test_its_energy_is_the_integral_of_its_power_and_says_so(tmp_path: Path) -> None:
    found = summary(tmp_path)
    gpu = found.devices[1]
    assert (gpu.cost.energy.value, gpu.cost.energy.source) == (pytest.approx(600), "derived")
    assert (gpu.cost.energy.low, gpu.cost.energy.high, gpu.disagreement) == (None, None, None)
    assert gpu.cost.power.value == pytest.approx(150)
    # From 150 to 200 W in the last two seconds, beside 100 W of the processor.
    (late,) = found.regions
    assert late.devices["cuda:1 (derived)"].value == pytest.approx(350)
    assert (late.total.value, late.total.source, late.total.low) == (pytest.approx(550), "derived", None)


def test_what_was_measured_stays_apart_from_the_sum_with_it(tmp_path: Path) -> None:
    found = summary(tmp_path)
    assert found.all["measured"].energy.value == pytest.approx(400)
    total = found.all["derived"].energy
    assert (total.value, total.source, total.reason) == (pytest.approx(1000), "derived", "")
    assert found.all["derived"].product.value == pytest.approx(4000)
    assert describe(found.finding) == (
        f"400 J measured in 4.0 s, 100 W on average: CPU packages; not DRAM, {BOARD}, {REST}. "
        "1.0 kJ derived in 4.0 s: CPU packages and cuda:1 by the integral of its power."
    )
    assert list(summary(tmp_path / "idle", ["cpu"]).used) == ["measured"]
    text = EnergyView(found).text(width=140, detail=Detail.ALL)
    assert "cuda:1 Tesla K20m" in text and "derived" in text


def test_a_training_on_it_counts_it(tmp_path: Path) -> None:
    """Walks of 120 s at 100 W of the processor, by a counter, and 50 W of the GPU."""
    run = trained([50, 48], [5, 5], 12, [0.4, 0.7], 0.75, watts={"cpu": 100.0}, used=["cpu", "cuda:1"])
    change_target(run, metered={**plain(run.info.target.metered), "missing": [NO_COUNTER]})
    run.samples = [
        *run.samples,
        *(Sample(at * S, "power", 50.0, "W", "measured", device="cuda:1") for at in range(133)),
    ]
    found = summarise_training(run)
    assert found is not None and found.energy is not None
    spent = found.energy
    assert (spent.used.value, spent.used.source, spent.used.low) == (pytest.approx(18_000), "derived", None)
    assert spent.devices["cuda:1"].value == pytest.approx(6_000)
    assert spent.covers == ("CPU packages", "cuda:1 by the integral of its power")


def test_short_phases_are_not_solved_from_samples(tmp_path: Path) -> None:
    spans, moments, _ = training({"forward": 12 * MS, "backward": 25 * MS}, 200)
    times = np.arange(0, moments[-1] + 50 * MS, 50 * MS).tolist()
    samples = [Sample(int(at), "power", 100.0, "W", "measured", device="cuda:1") for at in times]
    found = found_in(keep(tmp_path, {"counters": [], "interval": 0.05, "readings": len(times)}, samples, spans=spans))
    phases = {one.name: one for one in found.windows if one.kind == "phase"}
    assert POWER_SAMPLED in phases["train forward"].total.reason
    step = next(one for one in found.windows if one.kind == "step")
    assert step.time.value is not None
    assert step.total.value == pytest.approx(100.0 * step.time.value / S)


def test_the_probe_is_there_where_power_is_all_that_can_be_read() -> None:
    power = Channel(sensor="power", device="cuda:1", unit="W", kind="power", origin="nvmlDeviceGetPowerUsage")
    state = _judge_probe(EnergyReadings([ChannelSeries(power, np.array([1]), np.array([55.0]))]))
    assert (state.state, state.reason) == ("ok", "cuda:1: integral of nvmlDeviceGetPowerUsage")
