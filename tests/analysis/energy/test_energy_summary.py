"""What energy means: devices, idle, EDP, coverage, regions, epochs, steps, phases; every figure by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from charts import boxes_of, series_of
from energy_summary_cases import BOARD, MS, WATTS, S, counter, found_in, keep, phases_of, readings, rising, training
from plain_runs import load_plain
from sonda.analysis.energy.findings import (
    FinishSooner,
    IntegralOff,
    NoEnergy,
    SpentEnergy,
    ThrottledTimes,
    UnreadCounter,
)
from sonda.analysis.energy.meters import Meter
from sonda.analysis.energy.run import summarise_energy
from sonda.analysis.energy.windows import powers
from sonda.analysis.run_summary import summarise
from sonda.record.conventions.counter_series import CounterSeries
from sonda.record.errors import SondaError
from sonda.record.readings import EnergyCounter
from sonda.record.run import Run
from sonda.record.samples import Sample
from sonda.record.spans import Spans, Words
from sonda.report.blocks import Detail
from sonda.report.page import page_text
from sonda.report.views.energy import EnergyView, energy_bars, power_figure, windows_table


@pytest.fixture
def two_devices(tmp_path: Path) -> Run:
    """2 s of idling at 60 + 20 W, then 4 s: packages at 100, 150, 150, 100 W, memory at 10, a GPU that idles at 90."""
    samples = [
        *rising("package-0 energy", "cpu", [60, 60, 100, 150, 150, 100]),
        *rising("package-0/dram energy", "cpu", [20, 20, 10, 10, 10, 10]),
        *rising("energy", "cuda:0", [90] * 6),
        *(Sample(at * S, "power", 99.0, "W", "measured", device="cuda:0") for at in range(-2, 5)),
        # Twice before the program, once between its last two readings.
        *(
            Sample(at * S, "package-0 throttle count", 5.0 + min(at, 0) + (at > 3), "1", "measured")
            for at in range(-2, 5)
        ),
        Sample(-2 * S, "throttle reasons", 0x1, "1", "measured", device="cuda:0"),
        Sample(3 * S, "throttle reasons", 0x4 | 0x40, "1", "measured", device="cuda:0"),
        Sample(-2 * S, "temperature", 41, "°C", "measured", device="cuda:0"),
        Sample(2 * S, "temperature", 55, "°C", "measured", device="cuda:0"),
    ]
    energy = {
        "interval": 1.0, "readings": 7, "idle": [-2 * S, 0], "used": ["cpu"], "devices": {"cuda:0": "NVIDIA H200"},
        "counters": [
            counter("package-0 energy"), counter("package-0/dram energy", covers="DRAM"),
            counter("psys energy", total=False, state="dead", reason="it stood still"), counter("energy", "cuda:0"),
        ],
        "regions": [["hot", S, 3 * S], ["hot", 3 * S, 4 * S], ["brief", S, S + 1000]], "missing": [],
    }  # fmt: skip
    return keep(tmp_path, energy, samples)


def test_energy_power_idle_and_edp_of_a_device(two_devices: Run) -> None:
    cpu = found_in(two_devices).devices[0]
    assert cpu.cost.energy.value == pytest.approx(500 + 40)
    assert cpu.cost.power.value == pytest.approx(540 / 4)
    assert cpu.cost.idle.value == pytest.approx(80)
    assert cpu.cost.above.value == pytest.approx(540 - 4 * 80)
    assert cpu.cost.product.value == pytest.approx(4 * 540)
    assert cpu.counters["package-0/dram energy"].value == pytest.approx(40)
    assert cpu.counters["psys energy"].value is None
    assert "dead" in cpu.counters["psys energy"].reason


def test_energy_that_is_mostly_idling_is_told_to_be_spent_faster(two_devices: Run) -> None:
    """320 J of 540 on the devices in use would have been spent idling; with 200 of 540 there is nothing to say."""
    found = found_in(two_devices)
    assert isinstance(found.remedy, FinishSooner) and found.remedy.idling.value == pytest.approx(320 / 540)
    cost = found.used["measured"]
    used = {"measured": replace(cost, above=replace(cost.above, value=340.0))}
    assert replace(found, used=used).remedy is None


def test_totals_with_and_without_the_idle_device_say_what_they_cover(two_devices: Run) -> None:
    found = found_in(two_devices)
    assert found.all["measured"].energy.value == pytest.approx(540 + 360)
    assert found.all["measured"].product.value == pytest.approx(4 * 900)
    assert found.used["measured"].energy.value == pytest.approx(540)
    assert found.covers == ("CPU packages", "DRAM", BOARD)
    assert found.not_covered == ("disks, network, fans, power supply",)
    assert isinstance(found.finding, SpentEnergy)
    assert (found.finding.covers, found.finding.lacking) == (found.covers, found.not_covered)
    assert [total.energy.value for total in found.finding.totals] == pytest.approx([900])
    assert [(one.name, one.used) for one in found.devices] == [("cpu", True), ("cuda:0", False)]


def test_the_power_integral_stands_beside_the_counter(two_devices: Run) -> None:
    gpu = found_in(two_devices).devices[1]
    assert gpu.integral is not None and gpu.integral.value == pytest.approx(4 * 99)
    assert gpu.disagreement is not None and gpu.disagreement.value == pytest.approx(0.1)
    assert IntegralOff("cuda:0", gpu.disagreement.value) in found_in(two_devices).warnings


def test_throttling_and_temperature_are_weighed_by_time(two_devices: Run) -> None:
    gpu = found_in(two_devices).devices[1]
    assert gpu.throttled == pytest.approx({"power limit": 0.25, "hot (hardware)": 0.25})
    assert gpu.states["temperature"].value == 55
    assert found_in(two_devices).devices[0].states["throttled"].value == 1
    assert ThrottledTimes("cpu", 1) in found_in(two_devices).warnings


def test_regions_are_means_of_their_windows_and_too_short_ones_are_missing(two_devices: Run) -> None:
    hot, brief = found_in(two_devices).regions
    assert (hot.name, hot.count, hot.time.value) == ("hot", 2, 1.5 * S)
    assert hot.devices["cpu"].value == pytest.approx((150 + 150 + 100 + 30) / 2)
    assert hot.total.value == pytest.approx((430 + 270) / 2)
    assert brief.total.value is None
    assert "1.0 µs long, and energy is known every 1.0 s" in brief.total.reason


def test_windows_are_of_all_devices_and_of_those_in_use(two_devices: Run) -> None:
    found = found_in(two_devices)
    # The region `hot`: 150 + 150 + 100 W of packages and 10 of memory for 3 s, beside a GPU that idles at 90 W; twice.
    hot, brief = found.regions
    assert hot.total.value == pytest.approx((400 + 30 + 270) / 2)
    assert hot.used.value == pytest.approx((400 + 30) / 2)
    assert brief.used.value is None and brief.used.reason
    heads = [column.name for column in windows_table([hot]).columns]
    assert heads[-2:] == ["all devices, J", "devices in use, J"]
    document = EnergyView(found).document()["regions"][0]
    assert (document["energy"]["value"], document["energy_in_use"]["value"]) == pytest.approx((350, 215))


def test_a_missing_part_makes_no_silent_zero(tmp_path: Path) -> None:
    lacks = [{"what": "RAPL (powercap) package-0", "reason": "only root may read energy_uj", "remedy": "run as root"}]
    dead = counter("energy", "cuda:0", state="dead", reason="the counter stood at the same value for 9.0 s")
    found = found_in(keep(tmp_path, {"counters": [dead], "missing": lacks, "interval": 0.5, "readings": 3}, []))
    assert found.all == {}
    assert found.devices[0].cost.energy.value is None
    assert "stood at the same value" in found.devices[0].cost.energy.reason
    assert found.finding == NoEnergy("the counter stood at the same value for 9.0 s")
    assert UnreadCounter("RAPL (powercap) package-0", "only root may read energy_uj", "run as root") in found.notes
    assert "missing" in EnergyView(found).text(width=140, detail=Detail.ALL)


def test_an_estimate_is_an_interval_and_is_never_added_to_what_was_measured(tmp_path: Path) -> None:
    samples = [
        *rising("package-0 energy", "cpu", [100] * 6),
        *(Sample(at * S, "modelled energy", 50.0 * (at + 2), "J", "estimated") for at in range(-2, 5)),
    ]
    model = counter("modelled energy", source="estimated", uncertain=0.4, covers="CPU packages")
    run = keep(tmp_path, {"counters": [counter("package-0 energy"), model], "interval": 1.0, "readings": 7}, samples)
    found = found_in(run)
    assert found.all["measured"].energy.value == pytest.approx(400)
    estimate = found.all["estimated"].energy
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((200, 120, 280))
    assert estimate.source == "estimated"
    # No statistics gave the ends: the model's are a convention, those of a sensor lie between two readings.
    assert estimate.bounds == found.all["estimated"].product.bounds == "bounds of the power model"
    assert found.all["measured"].energy.bounds == found.all["measured"].power.bounds == "bounds of the readings"
    assert found.all["estimated"].idle.reason == "idle power was not measured"
    figure = energy_bars(found)
    assert figure is not None
    assert boxes_of(figure)[""].hatched == (False, True)
    lines = power_figure(found)
    assert lines is not None
    assert [line.line for line in series_of(lines)] == ["solid", "dot"]
    assert "~200 (120–280 J)" in EnergyView(found).text(width=140, detail=Detail.ALL)


def test_screen_document_and_page_show_it(two_devices: Run) -> None:
    found = found_in(two_devices)
    text = EnergyView(found).text(width=140, detail=Detail.ALL)
    for words in (
        "all devices",
        "devices in use",
        "cuda:0 NVIDIA H200 (idle)",
        "EDP, J·s",
        "hot",
        "throttled for 25 %",
        "± is half of an interval: bounds of the readings",
    ):
        assert words in text
    document = EnergyView(found).document()
    assert document["all_devices"]["measured"]["energy"]["value"] == pytest.approx(900)
    assert document["devices"][1]["disagreement"]["value"] == pytest.approx(0.1)
    page = page_text([summarise(two_devices)], [two_devices])
    assert "Power over time" in page and "Energy by device" in page


def test_a_run_of_another_version_is_left_alone(tmp_path: Path) -> None:
    """What another version adds is passed over; where it means something else by a name, that is said in one line."""
    counters = [counter("package-0 energy", update=0.001)]
    energy = {"counters": counters, "interval": 0.01, "readings": 3}
    samples = rising("package-0 energy", "cpu", [100, 100, 100, 100])
    known = found_in(keep(tmp_path / "known", energy, samples))
    later = {**energy, "counters": [{**counters[0], "later": [1]}], "later": {"a": 3}}
    assert found_in(keep(tmp_path / "later", later, samples)) == known
    without = load_plain(tmp_path, target={"device": "cpu", "alone": "energy", "later": {"counters": 3}})
    assert summarise_energy(without) is None
    with pytest.raises(SondaError, match=r"^[^\n]* is damaged: run\.json: [^\n]*\$\.target\.metered\.counters[^\n]*$"):
        load_plain(tmp_path, target={"device": "cpu", "metered": {"counters": 3}, "alone": "energy"})


# ---- steps and phases -----------------------------------------------------------------------------------------------


def test_long_phases_are_integrated(tmp_path: Path) -> None:
    spans, moments, spent = training({"forward": 400 * MS, "backward": 700 * MS}, 6)
    energy = {"counters": [counter("package-0 energy", update=0.001)], "interval": 0.01, "readings": 3}
    run = keep(tmp_path, energy, readings(moments, spent, 0.01013), spans=spans)
    found = phases_of(run)
    for name, watts in (("forward", 150.0), ("backward", 250.0)):
        phase = found[f"train {name}"]
        assert phase.count == 5
        assert phase.total.source == "measured"
        expected = watts * phase.time.value / S
        assert phase.total.value == pytest.approx(expected, rel=0.02)
        assert phase.total.low <= expected <= phase.total.high
    step = found["train"]
    assert step.total.value == pytest.approx(
        sum(found[f"train {name}"].total.value for name in ("forward", "backward"))
    )


def test_short_phases_are_told_apart_over_many_steps_or_left_out(tmp_path: Path) -> None:
    spans, moments, spent = training({"forward": 12 * MS, "backward": 25 * MS, "optimizer": 3 * MS}, 1000)
    energy = {"counters": [counter("package-0 energy", update=0.001)], "interval": 0.05, "readings": 3}
    run = keep(tmp_path / "often", energy, readings(moments, spent, 0.05067), spans=spans)
    found = phases_of(run)
    for name in ("forward", "backward"):
        phase = found[f"train {name}"]
        assert phase.total.source == "derived"
        assert phase.total.value == pytest.approx(WATTS[name] * phase.time.value / S, rel=0.1)
        assert phase.total.low < phase.total.value < phase.total.high
    assert "too short against the updates" in found["train optimizer"].total.reason
    seldom = phases_of(keep(tmp_path / "seldom", energy, readings(moments, spent, 5.067), spans=spans))
    assert seldom["train forward"].total.value is None
    assert "too few to tell" in seldom["train forward"].total.reason
    # A counter that is updated ten times a second knows nothing of phases of 12 ms.
    slow = {**energy, "counters": [counter("package-0 energy", update=0.1)]}
    late = phases_of(keep(tmp_path / "late", slow, readings(moments, spent, 0.0107, update=0.1), spans=spans))
    assert late["train forward"].total.value is None


def test_the_95_percent_interval_of_a_phase_holds_its_power() -> None:
    held = 0
    for seed in range(30):
        chance = np.random.default_rng(seed)
        lengths = np.abs(np.tile([12.0, 25.0, 3.0], 500) * (1 + 0.03 * chance.standard_normal(1500))) * MS
        watts = np.tile([150.0, 250.0, 80.0], 500) * (1 + 0.05 * chance.standard_normal(1500))
        moments = np.concatenate(([0.0], np.cumsum(lengths)))
        spent = np.concatenate(([0.0], np.cumsum(lengths * watts / S)))
        times = np.arange(chance.uniform(0, 50 * MS), moments[-1], 50.7 * MS)
        series = CounterSeries(times.astype(np.int64), np.interp(np.floor(times / MS) * MS, moments, spent), MS)
        meter = Meter(
            "cpu", "measured", ((EnergyCounter(sensor="package-0 energy", device="cpu", update=0.001), series),)
        )
        phases = {name: (moments[at:-1:3], moments[at + 1 :: 3]) for at, name in enumerate(("forward", "backward"))}
        solved = powers(meter, phases, moments[:1], moments[-1:])
        assert not isinstance(solved, str)
        held += abs(solved["forward"][0] - 150.0) <= solved["forward"][1]
    # 95 % of 30 are 28.5; 24 or fewer have a probability of 0.3 %.
    assert held >= 25


def test_epochs_are_numbered_and_only_the_first_rank_counts(tmp_path: Path) -> None:
    spans = Spans(
        {"start": np.array([0, 0, 0, 2 * S, 0]), "duration": np.array([4, 4, 2, 2, 4]) * S,
         "parent": np.array([-1, 0, 1, 1, 0]), "rank": np.array([0, 0, 0, 0, 1])},
        {"kind": Words.of(["run", "part", "epoch", "epoch", "epoch"]), "name": Words.of(["", "train", "", "", ""])},
    )  # fmt: skip
    samples = rising("package-0 energy", "cpu", [60, 60, 100, 150, 150, 100])
    found = found_in(keep(tmp_path, {"counters": [counter("package-0 energy")], "interval": 1.0}, samples, spans=spans))
    assert [(one.name, one.total.value) for one in found.windows] == [
        ("train 1", pytest.approx(250)), ("train 2", pytest.approx(250)),
    ]  # fmt: skip
