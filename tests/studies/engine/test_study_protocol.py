"""How a study measures: energy runs among timing runs, cooling down, repetitions of variants and scales."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from plain_runs import run_info
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.studies.catalogue import load_scaled
from sonda.studies.engine.measurement import measuring
from sonda.studies.engine.plan import ENERGY, StudyPoint, configurations, count_points, energy_order, plan_points
from sonda.studies.file.check import Vocabulary
from sonda.studies.file.loader import read_study
from sonda.studies.file.mistakes import StudyMistakes
from sonda.studies.file.study import Study
from sonda.targets.job import Job
from sonda.targets.pipeline import RunLabels

ANYTHING = Vocabulary(
    workload=lambda name: "", option=lambda *words: "", configuration=lambda all_of: "", target=lambda text: ""
)
FILE = """
[study]
name = "try"
protocol = "energy-interleaved"
repeat = 10
base = "one"

[workload]
name = "mlp"
train = true

[variant."slow"]
on = "cpu"
repeat = 1
energy = 1

[variant."one"]
on = "cuda:0"

[variant."two"]
on = "ddp=cuda:0+cuda:1"
repeat = 5

[scale.small]
repeat = 2
energy = 2
rest_s = 0

[scale.small.variant."one"]
on = "cpu/1"

[scale.small.variant."slow"]
on = "cpu/2"
batch = 4
"""


def read(text: str = FILE) -> Study:
    return read_study(text, "try.toml", ANYTHING)


def letters(points: list[StudyPoint]) -> str:
    return "".join("E" if point.measures == ENERGY else "T" for point in points)


def of(study: Study, variant: str) -> list[StudyPoint]:
    return [point for point in plan_points(study) if point.configuration["variant"] == variant]


@pytest.mark.parametrize(
    ("energy", "repeat", "order"),
    [(3, 10, "ETTTTTETTTTTE"), (1, 1, "ET"), (2, 3, "ETTTE"), (0, 3, "TTT"), (3, 5, "ETTETTTE"), (3, 0, "EEE")],
)
def test_energy_runs_part_the_timing_runs(energy: int, repeat: int, order: str) -> None:
    found = energy_order(energy, repeat)
    assert "".join(kind[0].upper() for kind, _ in found) == order
    for kind, count in (("energy", energy), ("time", repeat)):
        assert [number for one, number in found if one == kind] == list(range(1, count + 1))


def test_every_configuration_has_its_turn_as_a_whole_and_variants_have_their_own_repetitions() -> None:
    study = read()
    assert (study.energy, study.cool_down_s, study.rest_s) == (3, 60.0, 10.0)
    assert letters(plan_points(study)) == "ET" + "ETTTTTETTTTTE" + "ETTETTTE"
    assert count_points(study) == len(plan_points(study)) == 2 + 13 + 8
    assert letters(of(study, "slow")) == "ET"


def test_a_scale_keeps_the_variants_it_names_changes_them_and_caps_their_repetitions() -> None:
    small = read().at_scale("small")
    assert [(one["variant"], one["on"], one.get("batch")) for one in configurations(small)] == [
        ("slow", "cpu/2", 4), ("one", "cpu/1", None),
    ]  # fmt: skip
    assert letters(of(small, "one")) == "ETTE"
    assert letters(of(small, "slow")) == "ET", "a variant that has fewer of its own keeps them"
    assert (small.rest_s, small.cool_down_s) == (0.0, 60.0)


def test_repetitions_asked_for_on_the_command_line_cap_too(tmp_path: Path) -> None:
    path = tmp_path / "try.toml"
    path.write_text(FILE.replace("mlp", "resnet34"))
    study = load_scaled(str(path), "", 4)
    assert [len(of(study, name)) for name in ("slow", "one", "two")] == [2, 3 + 4, 3 + 4]


def test_energy_runs_have_identities_and_groups_of_their_own() -> None:
    points = plan_points(read())
    assert len({point.identity for point in points}) == len(points)
    by_group: dict[str, set[str]] = {}
    for point in points:
        by_group.setdefault(point.group, set()).add(point.measures)
    assert sorted(map(sorted, by_group.values())) == [["energy"]] * 3 + [["time"]] * 3
    other = {point.identity for point in plan_points(dataclasses.replace(read(), energy_probe="energy:10ms"))}
    kept = {point.identity for point in points if point.measures == "time"}
    assert {point.identity for point in points} & other == kept, "another probe measures energy anew, and no time"


def test_the_record_says_what_was_measured() -> None:
    first, second = plan_points(read())[:2]
    assert (first.record()["measures"], second.record()["measures"]) == ("energy", "time")
    plain = Study("one", {"workload": "mlp"}, {})
    assert "measures" not in plan_points(plain)[0].record()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"energy-interleaved"', '"energy"', "study.protocol: 'energy' is not a protocol"),
        ('protocol = "energy-interleaved"', "energy = 3", 'study.energy: is for protocol = "energy-interleaved"'),
        ("repeat = 10", "repeat = 10\nenergy = -1", "study.energy: must be between 0 and 10000, not -1"),
        ("repeat = 10", "repeat = 10\ncool_down_s = true", "study.cool_down_s: must be a number, not true"),
        ("repeat = 10", "repeat = 10\nrest_s = 1e9", "study.rest_s: must be between 0 and 86400"),
        ("repeat = 10", 'repeat = 10\nenergy_probe = "pmu"', "study.energy_probe: reads no energy"),
        ("repeat = 10", 'repeat = 10\nenergy_probe = "energy:fast"', "study.energy_probe: 'fast' is not a time"),
        ("repeat = 10", 'repeat = 10\nstatistics = ["mode"]', "study.statistics[0]: 'mode' is no statistic"),
        ("repeat = 10", 'repeat = 10\nstatistics = ["mean", "mean"]', "study.statistics[1]: 'mean' is there twice"),
        ('base = "one"', 'base = "on"', "study.base: 'on' is no variant; did you mean 'one'?"),
        ('small.variant."one"', 'small.variant."two"', "scale.small.variant: leaves out the base 'one'"),
        ('small.variant."one"', 'small.variant."won"', "scale.small.variant.won: 'won' is no variant"),
        ("train = true", 'train = true\nprobe = "pmu,energy:10ms"', "workload.probe: would read energy in timing runs"),
        ("batch = 4", 'batch = 4\nprobe = "energy"', "scale.small.variant.slow.probe: would read energy"),
        ("repeat = 5", "repeat = 0", "variant.two.repeat: must be between 1 and 10000, not 0"),
    ],
)
def test_mistakes_are_named(old: str, new: str, said: str) -> None:
    with pytest.raises(StudyMistakes) as raised:
        read(FILE.replace(old, new, 1))
    assert said in str(raised.value)


def test_energy_runs_are_measured_with_the_probe_and_timing_runs_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, RunLabels]] = []

    def measure(job: Job, store: Store, place: RunLabels, say: Callable[[str], None]) -> Run:
        asked.append((job.probe, place))
        return Run(tmp_path, run_info(id=place.identity, created="", status="complete"))

    monkeypatch.setattr("sonda.targets.pipeline.measure", measure)
    monkeypatch.setattr("sonda.targets.cooling.Cooling.wait", lambda cooling: {"waited_s": cooling.most_s})
    study = dataclasses.replace(read(), workload={"workload": "mlp", "probe": "pmu"}, cool_down_s=1.0, rest_s=0.0)
    measure_point = measuring(Store(tmp_path), study)
    for point in of(study, "slow"):
        measure_point(point)
    assert [probe for probe, _ in asked] == ["pmu,energy", "pmu"]
    assert [place.point["measures"] for _, place in asked] == ["energy", "time"]
    assert [place.cool_down for _, place in asked] == [{"waited_s": 1.0}] * 2
