"""TensorFlow's strategies as targets, without TensorFlow: what may be written, who is started, what a profile means."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns as now

import pytest

from plain_runs import run_info
from sonda.analysis.doubts import InsideFused
from sonda.analysis.rules.limits import communication
from sonda.analysis.run_summary import summarise
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.harness.announcer import AnnouncedObserver
from sonda.frameworks.harness.attribution import Piece, Place, order_pieces, write_call
from sonda.frameworks.reconstruction.assembly import assemble
from sonda.frameworks.tensorflow.profile.operations import ProfileEvent, place_of, split_calls, time_by_place
from sonda.record.errors import SondaError
from sonda.record.run import Run, write_run
from sonda.targets.adapters.registry import check_framework
from sonda.targets.job import Job
from sonda.targets.ranks import strategy_agent as tensorflow_agent
from sonda.targets.ranks import strategy_plan as tensorflow_plan
from sonda.targets.ranks.outcomes import RankOutcome, write_outcome
from sonda.targets.ranks.plan import Plan, describe_plan
from sonda.targets.ranks.strategy_agent import cluster_configurations, plan_members, run_members
from sonda.targets.ranks.strategy_plan import make_strategy_plan
from sonda.targets.ranks.strategy_rank import split_evenly
from sonda.targets.target import parse_target
from sonda.targets.training.supervisor import LostError

CLASSES = {
    "": "Net", "features": "Sequential", "features.0": "Conv2d", "features.1": "ReLU", "features.2": "MaxPool2d",
    "classifier": "Sequential", "classifier.0": "Flatten", "classifier.1": "Linear",
}  # fmt: skip


def plan(on: str, **settings: object) -> Plan:
    job = {"workload": "mlp", "train": True, "framework": "tensorflow", "on": on, **settings}
    return make_strategy_plan(Job(**job), parse_target(on))  # type: ignore[arg-type]


# ---- what may be written --------------------------------------------------------------------------------------------


def test_a_strategy_is_a_mode_with_its_devices() -> None:
    found = plan("mirrored=cpu/2+cpu/1")
    assert (found.devices, found.threads, found.equal, found.servers) == (("cpu/2", "cpu/1"), (2, 1), True, 0)
    assert describe_plan(found) == {"mode": "mirrored", "backend": "ring", "batch": "all"}
    assert plan("centralstorage=cpu/1+cpu/1").backend == "copies"
    assert plan("multiworker=cpu/1+cpu/1@batch=each,timeout=9").each
    served = plan("parameterserver=cpu/1+cpu/1@servers=2")
    assert describe_plan(served) == {"mode": "parameterserver", "backend": "grpc", "batch": "all", "servers": 2}


@pytest.mark.parametrize(
    ("on", "settings", "said"),
    [
        ("mirrored=cpu/1+cpu/1@servers=2", {}, "mirrored has no option 'servers'"),
        ("parameterserver=cpu/1@servers=0", {}, "servers '0' is not a whole number from 1 on"),
        ("multiworker=cpu/1+sim:maeri", {}, "a simulated accelerator cannot train with others"),
        ("mirrored=cpu/1+cuda:0", {}, "devices of one kind"),
        ("mirrored=cuda:0+cuda:1", {}, "no driver of a GPU is loaded"),
        ("mirrored=cpu/1+cpu/1", {"train": False}, "several devices train together; add --train"),
        ("mirrored=cpu/1+cpu/1", {"compile": True}, "--compile is for one device in TensorFlow"),
        ("mirrored=cpu/1+cpu/1", {"workload": "tf-models:resnet_imagenet"}, "runs on one device"),
        ("mirrored=cpu+cpu", {"threads": 2}, "--threads does not say which rank"),
    ],
)
def test_what_a_strategy_cannot_do_is_one_line(
    on: str, settings: dict[str, object], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorflow_plan, "has_gpu", lambda: False)
    with pytest.raises(SondaError, match=said):
        plan(on, **settings)


def test_a_gpu_stands_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorflow_plan, "has_gpu", lambda: True)
    assert plan("multiworker=cuda:0+cuda:1").backend == "nccl"
    with pytest.raises(SondaError, match="cuda:0 stands twice"):
        plan("mirrored=cuda:0+cuda:0")


@pytest.mark.parametrize(("framework", "on", "whose"), [
    ("torch", "mirrored=cpu+cpu", "tensorflow"), ("jax", "parameterserver=cpu", "tensorflow"),
    ("tensorflow", "ddp=cpu+cpu", "torch"),
])  # fmt: skip
def test_another_framework_is_told_whose_mode_it_is(framework: str, on: str, whose: str) -> None:
    with pytest.raises(SondaError, match=f"does not run on .*; use --framework {whose}, or one device"):
        check_framework(Job(workload="mlp", train=True, framework=framework, on=on))


def test_what_is_left_over_of_a_batch_goes_to_the_first() -> None:
    assert split_evenly(3, 8) == (3, 3, 2)
    assert split_evenly(3, 2) == (1, 1, 0)


# ---- who is started -------------------------------------------------------------------------------------------------


def test_processes_of_a_strategy_know_each_other() -> None:
    alone = plan("mirrored=cpu/1+cpu/1")
    assert cluster_configurations(alone, plan_members(alone)) == [""]
    served = plan("parameterserver=cpu/1+cpu/1@servers=1")
    known = plan_members(served)
    assert [(one.role, one.number, one.trains) for one in known] == [
        ("ps", 0, False), ("worker", 0, False), ("worker", 1, False), ("chief", 0, True),
    ]  # fmt: skip
    found = [json.loads(text) for text in cluster_configurations(served, known)]
    clusters = [one["cluster"] for one in found]
    assert all(cluster == clusters[0] for cluster in clusters)
    assert {kind: len(places) for kind, places in clusters[0].items()} == {"ps": 1, "worker": 2, "chief": 1}
    ports = [place for places in clusters[0].values() for place in places]
    assert len(set(ports)) == 4 and all(place.startswith("127.0.0.1:") for place in ports)
    both = plan("multiworker=cpu/1+cpu/1")
    tasks = [json.loads(text)["task"] for text in cluster_configurations(both, plan_members(both))]
    assert tasks == [{"type": "worker", "index": 0}, {"type": "worker", "index": 1}]


def started(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Have the agent start this code instead of TensorFlow; ROLE and NUMBER are its words."""
    popen = tensorflow_agent.subprocess.Popen

    def start(command: list[str], **how: object) -> object:
        return popen([sys.executable, "-c", code, *command[-3:-1]], **how)  # type: ignore[call-overload]

    monkeypatch.setattr(tensorflow_agent.subprocess, "Popen", start)


SLEEPS = "import os, sys, time; role, number = sys.argv[1:]; "


def test_a_killed_process_is_named_and_the_others_are_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started(monkeypatch, SLEEPS + "role == 'ps' and os.kill(os.getpid(), 9); time.sleep(600)")
    with pytest.raises(
        LostError, match=r"parameter server 0 was ended by SIGKILL \(out of memory\?\); the others were"
    ):
        run_members(plan("parameterserver=cpu/1+cpu/1"), tmp_path)


def test_a_rank_that_says_why_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_outcome(tmp_path, RankOutcome(rank=1, device="cpu/1", cause="too few samples", remedy="use more"))
    started(monkeypatch, SLEEPS + "number == '1' and sys.exit(1); time.sleep(600)")
    with pytest.raises(SondaError, match="too few samples; use more"):
        run_members(plan("multiworker=cpu/1+cpu/1"), tmp_path)


def test_servers_are_stopped_when_training_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(2):
        write_outcome(tmp_path, RankOutcome(rank=rank, device="cpu/1", samples=[4]))
    started(monkeypatch, SLEEPS + "role == 'chief' or time.sleep(600)")
    report = run_members(plan("parameterserver=cpu/1+cpu/1"), tmp_path)
    assert [(one.rank, one.samples) for one in report.ranks] == [(0, [4]), (1, [4])]


# ---- what a profile means -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "phase", "path"),
    [
        ("forward/features.2/MaxPool2d:_MklNativeMaxPool", "forward", "features.2"),
        ("replica_1/forward/features.0/Conv2D/ReadVariableOp:ReadVariableOp", "forward", "features.0"),
        ("gradient_tape/replica_1/forward/features.0/Conv2DBackpropFilter:Conv2D", "backward", "features.0"),
        ("gradient_tape/loss/SparseSoftmax/mul:Mul", "backward", "loss"),
        ("replica_1/loss/SparseSoftmax:SparseSoftmax", "loss", ""),
        ("communicate/CollectiveReduceV2_1:CollectiveReduceV2", "communicate", ""),
        ("optimizer/update_1_6/AssignSubVariableOp:AssignSubVariableOp", "optimizer", ""),
        # A product that swallowed its bias and activation has the name of the activation.
        ("forward/features.1/Relu:_MklNativeFusedConv2D", "forward", "features.0"),
        ("forward/classifier.1/BiasAdd:_FusedMatMul", "forward", "classifier.1"),
        # A value that goes from one device to another, in whatever scope.
        ("replica_1/forward/features.0/Conv2D/ReadVariableOp/_11:_Recv", "communicate", ""),
    ],
)
def test_an_operation_belongs_where_its_scopes_say(name: str, phase: str, path: str) -> None:
    assert place_of(name, CLASSES) == Place(phase, path)


def test_an_operation_without_a_phase_belongs_nowhere() -> None:
    assert place_of("AddN_3:AddN", CLASSES) is None
    assert place_of("ExecutorState::Process", CLASSES) is None


def test_communication_counts_where_nothing_is_computed() -> None:
    """Replica 0 waits from 10 to 90 for replica 1, which computes from 20 to 60."""
    events = [
        ProfileEvent("gradient_tape/forward/features.0/Conv2D:Conv2D", 0, 10),
        ProfileEvent("communicate/CollectiveReduceV2:CollectiveReduceV2", 10, 90),
        ProfileEvent("gradient_tape/replica_1/forward/features.0/Conv2D:Conv2D", 20, 60),
        ProfileEvent("gradient_tape/replica_1/forward/features.2/MaxPoolGrad:MaxPoolGrad", 50, 60),
        ProfileEvent("optimizer/update/AssignSub:AssignSub", 90, 95),
        ProfileEvent("NoOp:NoOp", 0, 200),
    ]
    assert time_by_place(events, lambda name: place_of(name, CLASSES)) == {
        Place("backward", "features.0"): 40, Place("backward", "features.2"): 10, Place("communicate", ""): 40,
        Place("optimizer", ""): 5,
    }  # fmt: skip


def test_events_are_those_of_the_call_around_them() -> None:
    one, two = ProfileEvent("forward/a:A", 11, 15), ProfileEvent("forward/a:A", 31, 39)
    events = [
        ProfileEvent("EagerLocalExecute: __inference__step_532", 30, 40), two, ProfileEvent("forward/a:A", 22, 25), one,
        ProfileEvent("EagerLocalExecute: __inference__step_532", 10, 20),
        ProfileEvent("EagerLocalExecute: __inference__judged_77", 20, 28),
    ]  # fmt: skip
    assert split_calls(events, "_step") == [[one], [two]]
    assert split_calls(events, "other") == []


def test_pieces_stand_in_the_order_of_a_step() -> None:
    times = {
        Place("communicate", ""): 7, Place("optimizer", ""): 3, Place("backward", "features.0"): 9,
        Place("backward", "loss"): 1, Place("forward", "features.0"): 5, Place("backward", "classifier.1"): 2,
        Place("loss", ""): 4,
    }  # fmt: skip
    found = [(one.phase, one.path, one.lasted) for one in order_pieces(times, "CrossEntropyLoss", CLASSES)]
    assert found == [
        ("forward", "features.0", 5), ("loss", "CrossEntropyLoss", 4), ("backward", "CrossEntropyLoss", 1),
        ("backward", "classifier.1", 2), ("backward", "features.0", 9), ("communicate", "", 7), ("optimizer", "", 3),
    ]  # fmt: skip


# ---- what is said of it ---------------------------------------------------------------------------------------------


def observed(tmp_path: Path) -> Run:
    """Three timed steps of one function, and two in pieces: three fifths exchanged and two forward in each."""
    (tmp_path / "events").mkdir()
    begin = now()
    recorder = Recorder(str(tmp_path / "events"))
    observer = AnnouncedObserver(recorder, None, "Net")
    observer.open({}, 1)
    for _ in range(3):
        with observer.span("step", "train"), observer.phase("fused"):
            pass
    with observer.span("pass", "pieces"):
        for _ in range(2):
            with observer.span("step", "train"):
                start = now()
                while now() < start + 1_000_000:
                    pass
                lasted = now() - start
            pieces = [Piece("forward", "", "Net", lasted * 2 // 5), Piece("communicate", "", "", lasted * 3 // 5)]
            write_call(observer, start, start + lasted, pieces, {"": "Net"})
    observer.finish(1)
    recorder.close()
    spans = assemble(tmp_path / "events", begin, now()).spans
    info = run_info(
        id="0123456789ab", status="complete", workload={"name": "mlp", "train": True, "samples": 8},
        target={"spec": "mirrored=cpu/1+cpu/1", "mode": "mirrored", "device": "cpu", "threads": 2}, seed=0,
        created="2026-01-01T00:00:00Z", machine={}, versions={}, probes=[], notes=[], disturbed=[], overhead={},
    )  # fmt: skip
    return write_run(tmp_path / "store", info, spans, [])


def test_what_replicas_exchange_inside_one_function_is_told_and_judged(tmp_path: Path) -> None:
    run = observed(tmp_path)
    summary = summarise(run)
    part = summary.parts[0]
    assert part.inside["communicate"] / part.inside["forward"] == pytest.approx(3 / 2, rel=1e-4)
    fused = next(phase.cost.share for phase in part.phases if phase.name == "fused")
    assert set(part.inside) <= {"forward", "communicate", "other"} and sum(part.inside.values()) == pytest.approx(fused)
    [inside] = [dict(note.shares) for note in summary.notes if isinstance(note, InsideFused)]
    assert inside["communicate"] / inside["forward"] == pytest.approx(3 / 2, rel=1e-4)
    for share in (0.05, 0.6):
        told = replace(summary, parts=(replace(part, inside={"communicate": share}),))
        verdict = communication.rule(told)
        assert (verdict is not None) == (share > 0.1)
    assert verdict is not None and verdict.share == 0.6
    assert verdict.evidence["communicate"].value == pytest.approx(0.6 * (part.step.value or 0.0))
