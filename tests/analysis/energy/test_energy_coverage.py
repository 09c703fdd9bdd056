"""A total says what it covers: counters that are dead, refused or too short are named, and the total is marked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from energy_coverage_cases import NO_COUNTER, PACKAGE, REST
from energy_summary_cases import BOARD, S, counter, found_in, keep, rising
from plain_runs import change_target
from sonda.analysis.energy.findings import LostCounters, NodesEnergy, SpentEnergy
from sonda.analysis.energy.nodes import energy_of_nodes
from sonda.analysis.energy.summary import EnergySummary
from sonda.analysis.energy.training import training_energy
from sonda.analysis.steps.training import summarise_training
from sonda.record.samples import Sample
from sonda.record.stored import plain
from sonda.report.blocks import Detail
from sonda.report.views.energy import EnergyView
from training_examples import trained

FORBIDDEN = {
    "what": "RAPL (powercap) package-1", "reason": "only root may read energy_uj", "remedy": "run as root",
    "covers": "CPU packages", "device": "cpu", "sensor": "package-1 energy",
}  # fmt: skip


def summary(
    root: Path, counters: list[dict[str, Any]], samples: list[Sample], missing: list[dict[str, str]], **more: Any
) -> EnergySummary:
    return found_in(
        keep(root, {"counters": counters, "interval": 1.0, "readings": 7, "missing": missing, **more}, samples)
    )


@pytest.mark.parametrize(
    ("counters", "missing"),
    [
        ([counter("package-1 energy", state="dead", reason="it stood still")], []),
        ([counter("package-1 energy", state="short", reason="too short")], []),
        ([counter("package-1 energy")], []),  # it was never read twice
        ([], [FORBIDDEN]),
        ([counter("package-1 energy", state="lost", reason="it could not be read any more")], [FORBIDDEN]),
    ],
    ids=["dead", "short", "unread", "forbidden", "twice"],
)
def test_half_of_the_packages_is_no_total(
    tmp_path: Path, counters: list[dict[str, Any]], missing: list[dict[str, str]]
) -> None:
    found = summary(tmp_path, [counter("package-0 energy"), *counters], PACKAGE, missing)
    assert found.covers == ("CPU packages (1 of 2)",)
    assert found.not_covered == ("DRAM", BOARD, "package-1", REST)
    assert isinstance(found.finding, SpentEnergy)
    assert [(total.energy.source, total.energy.value) for total in found.finding.totals] == [
        ("measured", pytest.approx(400))
    ]
    assert (found.finding.covers, found.finding.lacking) == (found.covers, found.not_covered)
    for cost in (found.all["measured"], found.used["measured"], found.devices[0].cost):
        assert (cost.energy.value, cost.energy.reason) == (pytest.approx(400), "without package-1")
    assert found.warnings == (LostCounters(("package-1",)),)
    assert "≥400" in EnergyView(found).text(width=140, detail=Detail.ALL)
    assert EnergyView(found).document()["all_devices"]["measured"]["energy"]["reason"] == "without package-1"


def test_a_gpu_without_a_counter_is_named_in_the_sums_that_lack_it(tmp_path: Path) -> None:
    samples = [*PACKAGE, *rising("energy", "cuda:0", [90] * 6)]
    found = summary(
        tmp_path, [counter("package-0 energy"), counter("energy", "cuda:0")], samples, [NO_COUNTER],
        used=["cpu", "cuda:0"], devices={"cuda:0": "NVIDIA H200", "cuda:1": "NVIDIA H200"},
    )  # fmt: skip
    assert found.covers == ("CPU packages", f"{BOARD} (1 of 2)")
    assert found.not_covered == ("DRAM", "cuda:1", REST)
    assert found.all["measured"].energy.reason == "without cuda:1"
    assert found.used["measured"].energy.reason == "", "the program did not work on it"
    assert [one.cost.energy.reason for one in found.devices] == ["", ""]


def test_a_part_without_any_counter_is_named_once_and_marks_nothing(tmp_path: Path) -> None:
    found = summary(tmp_path, [counter("package-0 energy")], PACKAGE, [NO_COUNTER])
    assert (found.covers, found.not_covered) == (("CPU packages",), ("DRAM", BOARD, REST))
    assert found.all["measured"].energy.reason == ""
    assert found.warnings == ()


def test_a_counter_of_the_platform_holds_the_packages(tmp_path: Path) -> None:
    platform = counter("psys energy", covers="the platform (psys)")
    found = summary(tmp_path, [platform], rising("psys energy", "cpu", [100] * 6), [FORBIDDEN])
    assert (found.covers, found.not_covered) == (("the platform (psys)",), (REST,))
    assert found.all["measured"].energy.reason == ""


def test_what_a_training_cost_says_it_too() -> None:
    """Of a package and a GPU that trained, and a second one that refuses its counter and did not."""
    run = trained([50, 48], [5, 5], 12, [0.4, 0.7], 0.75, watts={"cpu": 100.0, "cuda:0": 16.0}, used=["cpu", "cuda:0"])
    change_target(run, metered={**plain(run.info.target.metered), "missing": [NO_COUNTER, FORBIDDEN]})
    found = summarise_training(run)
    assert found is not None and found.energy is not None
    assert found.energy.covers == ("CPU packages (1 of 2)", BOARD)


def test_nodes_are_counted_together(tmp_path: Path) -> None:
    whole = [counter("package-0 energy"), counter("package-1 energy")]
    samples = [*PACKAGE, *rising("package-1 energy", "cpu", [100] * 6)]
    left = summary(tmp_path / "left", whole, samples, [])
    right = summary(tmp_path / "right", [counter("package-0 energy")], PACKAGE, [FORBIDDEN])
    found = energy_of_nodes([("left", left), ("right", right)])
    assert found.covers == ("CPU packages (3 of 4)",)
    assert found.not_covered == ("DRAM", BOARD, REST, "right package-1")
    cost = found.all["measured"].energy
    assert (cost.value, cost.reason) == (pytest.approx(1200), "node right: without package-1")


def test_what_a_model_stands_for_is_said_of_nodes_too(tmp_path: Path) -> None:
    """100 W for 4 s, ± 40 %, of a GPU on one node and of its memory on the other."""
    made = []
    for name, covers in (("left", BOARD), ("right", "DRAM")):
        modelled = counter("modelled energy", source="estimated", uncertain=0.4, covers=covers)
        rows = rising("modelled energy", "cpu", [100] * 6)
        samples = [msgspec.structs.replace(one, source="estimated") for one in rows]
        made.append((name, summary(tmp_path / name, [modelled], samples, [])))
    found = energy_of_nodes(made)
    assert found.modelled == f"{BOARD} (on left); DRAM (on right)"
    cost = found.all["estimated"].energy
    assert cost.value is not None and cost.low == pytest.approx(0.6 * cost.value)
    assert isinstance(found.finding, NodesEnergy)
    assert (found.finding.nodes, found.finding.machines, found.finding.modelled) == (2, 2, found.modelled)
    assert [total.energy for total in found.finding.totals] == [cost]
    assert energy_of_nodes([("a", made[0][1]), ("b", made[0][1])]).modelled == BOARD


def test_what_was_sensed_of_a_device_wins_over_what_a_model_says(tmp_path: Path) -> None:
    """500 W by the counter and 300 W by the model for 3 s: the device and the sum agree."""
    watts = {("energy", "measured"): 500.0, ("modelled energy", "estimated"): 300.0}
    samples = [
        Sample(at * S, sensor, power * (at + 2), "J", source, device="cuda:0")
        for (sensor, source), power in watts.items() for at in range(-2, 6)
    ]  # fmt: skip
    counters = [
        {
            **counter(sensor, source=source, uncertain=0.4 if source == "estimated" else 0, covers=BOARD),
            "device": "cuda:0",
        }
        for sensor, source in watts
    ]
    run = keep(tmp_path, {"counters": counters, "interval": 1.0, "readings": 8, "used": ["cuda:0"]}, samples)
    found = training_energy(run, [(0, 3 * S)], [3 * S])
    assert found is not None
    assert found.devices["cuda:0"].value == found.used.value == pytest.approx(1500)
    assert found.devices["cuda:0"].source == "measured"
