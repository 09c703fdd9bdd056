"""What a summary says of ranks that train together, and settings that only whole trainings have."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from builders import MS, RunBuilder
from plain_runs import change_target, target_of
from sonda.analysis.ranks.findings import CriticalRank
from sonda.analysis.rules import remedies
from sonda.analysis.rules.limit_findings import CommunicationBound
from sonda.analysis.rules.limits import communication, none
from sonda.analysis.rules.work import explained
from sonda.analysis.run_summary import summarise
from sonda.analysis.steps.training import devices_of
from sonda.analysis.summary import Summary
from sonda.record.errors import SondaError
from sonda.record.training import FINAL, WEIGHTS, Trained
from sonda.report.views.steps.ranks import rank_phases_table
from sonda.report.views.steps.view import StepsView
from sonda.report.words import describe
from sonda.studies.file.loader import load_study
from sonda.targets.job import Job, make_job
from sonda.targets.training.supervisor import SupervisedTraining
from sonda.workloads.data.prepared import load
from sonda.workloads.data.training_set import divide, make_ready, parse_split


def unequal_ranks() -> Summary:
    """The first rank computes 3e9 FLOP in 60 ms and exchanges 20 ms, the second 1e9 in 10 ms and waits 70 ms; both call
    their only input shape 1."""
    builder = RunBuilder()
    part = builder.part("train")
    ranks = [0] * len(builder.rows)

    def step(rank: int, forward: float, pass_: str = "timed") -> dict[str, int]:
        phases = {"forward": forward, "communicate": 80 - forward}
        rows = builder.step(part, 100, phases, pass_=pass_, metrics={"shape:counted": 1})
        ranks.extend([rank] * (len(builder.rows) - len(ranks)))
        return rows

    second = step(1, 10, "count")  # it came first, and must not speak for the other
    builder.op(second["forward"], "mm", 1e9, 1e6)
    first = step(0, 60, "count")
    builder.op(first["forward"], "mm", 3e9, 1e6)
    for _ in range(6):
        step(0, 60)
        step(1, 10)
    run = builder.run()
    run.spans.number("rank")[: len(ranks)] = ranks
    change_target(run, mode="hybrid", ranks=[{"rank": 0, "device": "cpu/2"}, {"rank": 1, "device": "cpu/1"}])
    return summarise(run)


def test_work_and_time_of_a_rate_are_those_of_the_rank_that_works_longest():
    summary = unequal_ranks()
    forward = next(row.cost for row in summary.parts[0].phases if row.name == "forward")
    assert forward.time.value == 60 * MS
    assert forward.flops.value == 3e9
    assert forward.achieved.value == pytest.approx(3e9 / 0.060)
    assert summary.parts[0].steps == 6
    (critical,) = (note for note in summary.notes if isinstance(note, CriticalRank))
    assert (critical.rank, critical.device, critical.alike) == (0, "cpu/2", False)
    assert (critical.waiting, critical.waiting_device, critical.share) == (1, "cpu/1", pytest.approx(0.7))


def test_every_rank_has_its_own_phases():
    summary = unequal_ranks()
    first, second = summary.parts[0].ranks
    assert (first.critical, second.critical) == (True, False)
    assert [first.work.value, second.work.value] == [80 * MS, 30 * MS]
    assert {name: value.value for name, value in second.phases.items()} == {
        "forward": 10 * MS, "communicate": 70 * MS, "other": 20 * MS,
    }  # fmt: skip
    assert [first.flops.value, second.flops.value] == [3e9, 1e9]
    assert [first.lag.value, second.lag.value] == [0.25, -0.25], "of a step of 100 ms; 55 ms are what both work"
    table = rank_phases_table(summary.parts[0])
    assert [cell.text for cell in table.rows[1]] == ["rank 1", "cpu/1", "100", "30", "10", "70", "20"]
    assert table.rows[0][0].text == "rank 0 *"
    kept = StepsView(summary).document()["parts"][0]["ranks"]
    assert [one["critical"] for one in kept] == [True, False]
    assert kept[1]["phases"]["communicate"]["value"] == 70 * MS


def test_what_is_exchanged_inside_of_phases_is_communication():
    builder = RunBuilder()
    part = builder.part("train")
    for _ in range(4):
        rows = builder.step(part, 100, {"forward": 50, "backward": 40})
        start = builder.rows[rows["forward"]]["start"]
        builder.add("layer", "Norm", rows["forward"], start, 20 * MS, path="a", metrics={"communication:measured": 8e6})
        builder.add("layer", "Norm", rows["forward"], start, 20 * MS, path="b", metrics={"communication:measured": 4e6})
        # Where layers are not recorded it stands on the phase; never more than the phase itself.
        builder.rows[rows["backward"]]["metrics"]["communication:measured"] = 60e6
    phases = {row.name: row.cost.time.value for row in summarise(builder.run()).parts[0].phases}
    assert phases == {"forward": 38 * MS, "backward": 0, "communicate": 52 * MS, "other": 10 * MS}


def test_layers_of_a_long_training_are_those_of_the_steps_that_recorded_them():
    builder = RunBuilder()
    part = builder.part("train")
    for step in range(30):
        rows = builder.step(part, 100, {"forward": 50})
        if step < 8:
            builder.layer(rows["forward"], "conv", "Conv2d", 40)
    found = summarise(builder.run()).parts[0]
    assert found.steps == 30
    assert [(row.path, row.forward.value, row.cost.share) for row in found.layers] == [("conv", 40 * MS, 0.4)]


def test_where_shares_move_rates_are_those_of_the_counted_share():
    builder = RunBuilder()
    part = builder.part("train")
    counted = builder.step(part, 100, {"forward": 40}, pass_="count", metrics={"shape:counted": 2})
    builder.op(counted["forward"], "mm", 2e9, 1e6)
    for shape, forward in ((1, 20), (1, 20), (1, 20), (2, 40), (2, 40)):
        builder.step(part, 100, {"forward": forward}, metrics={"shape:counted": shape})
    forward = summarise(builder.run()).parts[0].phases[0].cost
    assert forward.time.value == 20 * MS
    assert forward.achieved.value == pytest.approx(2e9 / 0.040)


def test_time_in_which_ranks_only_exchange_is_named():
    summary = unequal_ranks()
    verdict = communication.rule(summary)
    assert verdict is not None
    assert isinstance(verdict.finding, CommunicationBound)
    assert (verdict.finding.share.value, verdict.finding.time.value) == (pytest.approx(0.2), pytest.approx(20 * MS))
    assert verdict.remedies[-1] == communication.AUTO
    running = dataclasses.replace(
        summary, target=target_of({**summary.target.plain(), "spec": "hybrid=cpu/1+cpu/1@auto,h=2"})
    )
    assert communication.AUTO not in communication.rule(running).remedies
    assert explained(summary.parts[0])["communication"] == pytest.approx(0.2)
    other = none.rule(summary)
    assert other is None or "communicate" not in describe(other.finding)


def test_what_a_target_refuses_is_not_advised():
    summary = unequal_ranks()
    assert remedies.compiled(summary) is None
    assert (
        remedies.compiled(dataclasses.replace(summary, target=target_of({**summary.target.plain(), "mode": "ddp"})))
        is not None
    )


def test_files_that_were_left_out_are_named_and_counted(tmp_path: Path):
    for kind, shade in (("dark", b"\x10"), ("light", b"\xf0")):
        (tmp_path / "raw" / kind).mkdir(parents=True)
        for number in range(4):
            (tmp_path / "raw" / kind / f"{number}.pgm").write_bytes(b"P5 4 3 255\n" + shade * 12)
    (tmp_path / "raw" / "dark" / "cut.pgm").write_bytes(b"P5 4 3 255\n" + b"\x10" * 5)
    place = make_ready(str(tmp_path / "raw"), tmp_path / "store")
    said = divide(load(place), "0.5/0.25/0.25").skipped
    assert said.startswith("raw: 1 file left out: dark/cut.pgm (")


def test_devices_are_ranks_that_trained_and_all_of_one_process():
    assert devices_of(target_of({})) == 1
    assert devices_of(target_of({"ranks": [{"rank": 0}, {"rank": 1}, {"rank": 2, "left_out": True}]})) == 2
    assert devices_of(target_of({"mode": "dp", "ranks": [{"rank": 0, "devices": ["cuda:0", "cuda:1"]}]})) == 2


@pytest.mark.parametrize(
    ("name", "value"), [("split", "0.5/0.25/0.25"), ("images", 8), ("transfer", "up-front"), ("checkpoint", "there")]
)
def test_settings_of_whole_trainings_are_refused_without_epochs(name: str, value: object):
    with pytest.raises(SondaError, match=f"--{name} is for a whole training"):
        make_job({"workload": "cnn", "train": True, name: value})
    make_job({"workload": "cnn", "train": True, "epochs": 1, name: value})


@pytest.mark.parametrize("split", ["0.9/0.5/0.1", "1.2/-0.2/0", "nan/1/0", "3/1/0"])
def test_fractions_that_are_no_shares_are_refused_whatever_the_set(split: str):
    with pytest.raises(SondaError, match="fractions"):
        parse_split(split)


def test_a_study_that_trains_before_it_serves_takes_other_images(tmp_path: Path):
    changed = load_study("serving").with_data(str(tmp_path))
    assert changed.workload["data"] == str(tmp_path)
    with pytest.raises(SondaError, match="reads no images"):
        load_study("six-operations").with_data(str(tmp_path))


@pytest.mark.parametrize(("resumed", "said"), [(1, "epoch 1 was trained"), (3, "epochs 1 to 3 were trained")])
def test_epochs_of_an_interrupted_process_are_named(resumed: int, said: str):
    notes = SupervisedTraining(Job(workload="cnn", epochs=5), trained=Trained(resumed=resumed)).notes()
    assert notes == [f"{said} by a process that was interrupted, with times of its own"]


def test_a_file_of_the_users_beside_the_checkpoints_stays(tmp_path: Path):
    (tmp_path / WEIGHTS).write_text("mine")
    (tmp_path / FINAL).write_text("final")
    training = SupervisedTraining(Job(workload="cnn", epochs=1, checkpoint=str(tmp_path)), trained=Trained())
    assert [(name, path.read_text()) for name, path in training.files().items()] == [(WEIGHTS, "final")]
    training.discard_checkpoints()
    assert [path.name for path in tmp_path.iterdir()] == [WEIGHTS]
    assert (tmp_path / WEIGHTS).read_text() == "mine"
