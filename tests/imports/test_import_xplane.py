"""Profiles of TensorFlow and JAX as runs: steps, what they are spent on, operations; held against xprof's answers."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sonda.analysis.traces.profile import ProfileSummary, StepTimes, summarise_profile
from sonda.analysis.traces.step_breakdown import PARTS
from sonda.analysis.traces.summary import summarise_trace
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.report.blocks import Detail
from sonda.report.section import section_of
from sonda.report.views.imported import TraceView
from sonda.report.words import describe
from sonda.targets.imported.launcher import import_files
from xplane_examples import H200, PROFILES, PlaneMaker, space, training

ANSWERS: dict[str, Any] = json.loads((PROFILES / "xprof.json").read_text())
CLOSE = 1e-9
"""The bar is 1 %; both read the same ps, so they agree to the last digit that xprof writes."""


def imported(name: str, place: Path) -> Run:
    return import_files([PROFILES / f"{name}.xplane.pb.gz"], place)


def profile(name: str, place: Path) -> ProfileSummary:
    return summarise_profile(imported(name, place))


def made(content: bytes, place: Path) -> Run:
    path = place / "made.xplane.pb"
    path.write_bytes(content)
    return import_files([path], place / "runs")


def ns(steps: StepTimes) -> dict[str, float | None]:
    return {part: value.value for part, value in steps.parts.items()}


def test_every_moment_of_a_step_counts_for_one_thing(tmp_path: Path) -> None:
    plane = PlaneMaker("/host:CPU", shown={"a/Mul:Mul": "Mul"})
    main = [
        plane.event("train", 0, 100, step_num=0, _r=1),
        plane.event("EagerLocalExecute: IteratorGetNext", 0, 20),
        plane.event("Session", 20, 70),
        plane.event("tf.function-graph_building", 25, 10),
        plane.event("train", 100, 50, step_num=1, _r=1),
    ]
    worker = [plane.event("a/Mul:Mul", 30, 20), plane.event("a/Mul:Mul", 45, 15)]
    ahead = [plane.event("Iterator::Prefetch", 90, 60)]
    plane.line(1, "python", main).line(2, "tf_Compute/2", worker).line(3, "tf_data_iterator/3", ahead)
    (steps,) = summarise_profile(made(space(plane), tmp_path)).steps
    assert steps.durations == (100, 50)
    # 0-20 input; 20-25 the session; 25-35 tracing, which hides the operation; 35-60 operations; 60-90 the session;
    # then nothing, and in the second step nothing but the pipeline's own thread.
    assert ns(steps) == {
        "compute": None, "communication": None, "transfer": None, "compile": 10, "operations": 25, "input": 20,
        "launch": None, "host": 35, "idle": 60,
    }  # fmt: skip
    assert {steps.parts[part].reason for part in ("compute", "launch")} == {"the profile has no device"}


def test_a_device_hides_what_the_host_does_and_is_linked_to_its_launch(tmp_path: Path) -> None:
    host, device = PlaneMaker("/host:CPU"), PlaneMaker("/device:GPU:0", own={"gpu_device_name": "Toy"})
    main = [
        host.event("train", 0, 100, step_num=0),
        host.event("cuLaunchKernel", 10, 20, correlation_id=5),
        host.event("gemm", 40, 10, correlation_id=6),
    ]
    stream = [
        device.event("gemm", 20, 30, correlation_id=5, tf_op="model/dense/MatMul:MatMul"),
        device.event("MemcpyH2D", 60, 10, correlation_id=6, memcpy_details="kind_src:pinned size:4096 async:1"),
        device.event("ncclDevKernel_AllReduce", 65, 15),
    ]
    repeated = [device.event("jit_step", 20, 60)]
    host.line(1, "python", main)
    device.line(14, "Stream #14(Compute)", stream).line(2, "XLA Modules", repeated)
    run = made(space(host, device), tmp_path)
    (steps,) = summarise_profile(run).steps
    # 20-50 the kernel; 65-80 the collective, 60-65 the copy alone; 10-20 the first launch, the second is hidden.
    assert ns(steps) == {
        "compute": 30, "communication": 15, "transfer": 5, "compile": 0, "operations": 0, "input": 0, "launch": 10,
        "host": 0, "idle": 40,
    }  # fmt: skip
    assert steps.device == (50,)
    names = run.spans.words("name").decoded().tolist()
    kernel, call = names.index("gemm"), names.index("cuLaunchKernel")
    assert run.spans.number("parent")[kernel] == call
    assert run.spans.metric("launch_latency", "measured")[kernel] == 10
    assert run.spans.words("path").decoded()[kernel] == "model/dense/MatMul"
    assert "launch of gemm" in names
    assert run.spans.metric("bytes", "counted")[names.index("MemcpyH2D")] == 4096
    assert run.info.machine.processor == "Toy"
    assert "1 events are on lines of a device that are no streams: left out" in run.info.notes


def test_marked_steps_of_a_profile_made_by_hand(tmp_path: Path) -> None:
    (steps,) = summarise_profile(made(training(5), tmp_path)).steps
    assert (steps.name, steps.durations) == ("train", (90,) * 5)
    assert ns(steps)["operations"] == 150 and ns(steps)["host"] == 150 and ns(steps)["idle"] == 150


@pytest.mark.parametrize(
    "name", ["jax_marked", "keras_marked", "loop_marked"]
)  # fmt: skip
def test_step_times_are_those_of_xprof(name: str, tmp_path: Path) -> None:
    answers = ANSWERS[f"{name}.xplane.pb.gz"]["steps"]
    (steps,) = profile(name, tmp_path).steps
    # xprof leaves the first and the last step out.
    assert len(answers) == len(steps.durations) - 2
    for (called, milliseconds), duration in zip(answers, steps.durations[1:-1], strict=True):
        assert called.startswith("train ")
        assert duration / 1e6 == pytest.approx(float(milliseconds), rel=CLOSE)


def test_step_times_of_a_gpu_are_those_of_xprof(tmp_path: Path) -> None:
    # Where there is a device, xprof's step reaches from its first activity to its last.
    (steps,) = summarise_profile(import_files([H200], tmp_path)).steps
    answers = [float(milliseconds) for _, milliseconds in ANSWERS["h200.xplane.pb"]["steps"]]
    assert [one / 1e6 for one in steps.device] == pytest.approx(answers, rel=CLOSE)


@pytest.mark.parametrize("name", sorted(name for name, one in ANSWERS.items() if one["operations"]))
def test_operations_are_those_of_xprof(name: str, tmp_path: Path) -> None:
    ours = {
        (one.path.removeprefix("tf.data/"), one.name): one
        for one in profile(name.removesuffix(".xplane.pb.gz"), tmp_path).operations
    }
    answers = [one for one in ANSWERS[name]["operations"] if one[2] not in ("Dataset", "")]
    assert len(answers) >= 6
    for place, operation, kind, calls, total, own in answers:
        found = ours[operation, kind]
        assert (found.place.capitalize(), found.calls) == (place, calls)
        assert found.total / 1e3 == pytest.approx(total, rel=CLOSE)
        assert found.own / 1e3 == pytest.approx(own, rel=CLOSE)


@pytest.mark.parametrize(
    ("name", "count", "function"),
    [("keras_fit", 8, "multi_step_on_iterator"), ("keras_cold", 8, "multi_step_on_iterator"),
     ("keras_xla", 8, "multi_step_on_iterator"), ("loop_plain", 8, "train"), ("loop_eager", 4, "step"),
     ("jax_plain", 6, "step"), ("jax_shapes", 3, "step")],
)  # fmt: skip
def test_steps_are_found_where_nothing_marks_them(name: str, count: int, function: str, tmp_path: Path) -> None:
    # The counts are those of the programs that were recorded: 256 images in batches of 32, six calls, three shapes.
    run = imported(name, tmp_path)
    (steps,) = summarise_profile(run).steps
    assert len(steps.durations) == count
    assert steps.name.startswith(function)
    assert any(note.startswith("the profile marks no steps: a step is taken from one") for note in run.info.notes)


def test_training_and_validation_are_told_apart(tmp_path: Path) -> None:
    # Two epochs of 8 batches, each followed by 3 batches of validation.
    train, validate = profile("keras_validated", tmp_path).steps
    assert (len(train.durations), len(validate.durations)) == (16, 6)
    assert train.name != validate.name


def test_marked_and_found_steps_of_the_same_program_agree(tmp_path: Path) -> None:
    run = imported("keras_marked", tmp_path)
    spans = run.spans
    start, end = spans.number("start"), spans.number("start") + spans.number("duration")
    calls = np.flatnonzero(spans.words("name").equal("multi_step_on_iterator"))
    steps = np.flatnonzero(spans.where(kind="step"))
    assert len(calls) == len(steps) == 8
    assert (start[calls] < end[steps]).all() and (end[calls] > start[steps]).all()


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_the_parts_of_steps_add_up(name: str, tmp_path: Path) -> None:
    path = H200 if name == H200.name else PROFILES / name
    found = summarise_profile(import_files([path], tmp_path))
    assert found.steps
    for steps in found.steps:
        assert sum(steps.parts[part].value or 0 for part in PARTS) == sum(steps.durations)


def test_compiling_in_every_step_is_named_with_its_cause(tmp_path: Path) -> None:
    found = summarise_trace(imported("jax_shapes", tmp_path))
    first = found.summary.verdicts[0]
    assert first.kind == "compile"
    assert "step in 3 of 3 calls" in describe(first.finding)
    assert "same shapes" in describe(first.remedies[0].advice)
    assert found.profile is not None and found.profile.traced == {"step": (3, 3)}


def test_a_first_call_that_compiles_is_told_from_compiling_again(tmp_path: Path) -> None:
    verdict = summarise_trace(imported("keras_cold", tmp_path)).summary.verdicts[0]
    assert verdict.kind == "compile"
    assert "multi_step_on_iterator in 1 of 8 calls" in describe(verdict.finding)
    assert describe(verdict.remedies[0].advice) == "begin the profile after the first steps"


def test_gradients_have_a_direction_and_operations_a_path(tmp_path: Path) -> None:
    spans = imported("keras_fit", tmp_path).spans
    path, direction = spans.words("path").decoded(), spans.words("direction").decoded()
    backward = {one for one, word in zip(path, direction, strict=True) if word == "backward"}
    assert any("conv2d" in one and "Conv2DBackpropFilter" in one for one in backward)
    assert all("gradient_tape/" in one for one in backward)


def test_frames_of_python_and_marks_without_time_are_left_out_and_counted(tmp_path: Path) -> None:
    run = imported("jax_marked", tmp_path)
    assert not any(word.startswith("$") for word in run.spans.words("name").words)
    assert any("are frames of Python: left out" in note for note in run.info.notes)


def test_screen_page_and_document_show_the_profile(tmp_path: Path) -> None:
    found = summarise_trace(imported("keras_fit", tmp_path))
    screen = TraceView(found).text(120, rows=12, color=False, detail=Detail.ALL)
    for words in ("steps of", "operations on the host", "the framework itself", "the profile has no device",
                  "_MklNativeFusedConv2D", "operations on"):  # fmt: skip
        assert words in screen
    page = section_of(TraceView(found), 0, True).html
    assert "conv2d" in page and "the framework itself" in page
    document = TraceView(found).document()["profile"]
    assert document["steps"][0]["parts"]["compute"]["value"] is None
    assert len(document["steps"][0]["durations_ns"]) == 8
    assert document["placement"]["host"]["calls"] > 1000


def log_directory(place: Path, runs: dict[str, dict[str, bytes]]) -> Path:
    for run, hosts in runs.items():
        (place / "plugins" / "profile" / run).mkdir(parents=True)
        for host, content in hosts.items():
            (place / "plugins" / "profile" / run / f"{host}.xplane.pb").write_bytes(content)
    return place


def test_of_a_log_directory_the_newest_run_is_read_and_the_others_are_named(tmp_path: Path) -> None:
    runs = {"2026_01_02_03_04_05": {"a": training(2)}, "2026_11_02_03_04_05": {"a": training(4)}}
    place = log_directory(tmp_path / "logs", runs)
    run = import_files([place], tmp_path / "runs")
    assert len(summarise_profile(run).steps[0].durations) == 4
    said = "read is the run 2026_11_02_03_04_05; not read: 2026_01_02_03_04_05 (choose with --run)"
    assert said in run.info.notes
    older = import_files([place], tmp_path / "runs", run="2026_01_02_03_04_05")
    assert len(summarise_profile(older).steps[0].durations) == 2
    with pytest.raises(SondaError, match="has no run 'x'; give --run one of 2026_01"):
        import_files([place], tmp_path / "runs", run="x")
    with pytest.raises(SondaError, match="--run means nothing for a file"):
        import_files([H200], tmp_path / "runs", run="x")


def test_hosts_of_one_run_are_ranks_on_one_clock(tmp_path: Path) -> None:
    def host(began: int) -> bytes:
        plane = PlaneMaker("/host:CPU")
        environment = PlaneMaker("Task Environment", own={"profile_start_time": began})
        return space(plane.line(1, "main", [plane.event("train", 0, 90, step_num=0)], begin=10), environment)

    year = 1_700_000_000_000_000_000
    place = log_directory(tmp_path / "logs", {"first": {"beta": host(year + 500), "alpha": host(year)}})
    (place / "plugins" / "profile" / "first" / "alpha.trace.json.gz").write_bytes(gzip.compress(b"[]"))
    run = import_files([place / "plugins" / "profile" / "first"], tmp_path / "runs")
    assert run.spans.number("rank").tolist() == [0, 1]
    assert run.spans.number("start").tolist() == [0, 500]
    assert "hosts by rank: 0 is alpha, 1 is beta" in run.info.notes
    assert "not read: alpha.trace.json.gz" in run.info.notes


def test_a_profile_is_known_by_what_is_in_it(tmp_path: Path) -> None:
    shutil.copy(H200, tmp_path / "renamed.bin")
    assert import_files([tmp_path / "renamed.bin"], tmp_path / "runs").info.workload.imported == "xplane"


def calling(traced: bool) -> bytes:
    """Four calls of a function, 90 ns each; where it is traced, that takes 80 of them."""
    plane = PlaneMaker("/host:CPU")
    events = []
    for call in range(4):
        events.append(plane.event("step", 100 * call, 90, tf_function_call="traced-nonXla" if traced else "concrete"))
        if traced:
            events.append(plane.event("tf.function-graph_building", 100 * call + 1, 80))
    return space(plane.line(1, "python", events))


def test_what_any_host_traced_is_said_with_the_host(tmp_path: Path) -> None:
    place = log_directory(tmp_path / "logs", {"first": {"a": calling(False), "b": calling(True), "c": calling(True)}})
    found = summarise_trace(import_files([place], tmp_path / "runs"))
    assert found.profile is not None and found.profile.traced == {"step": (8, 8)}
    said = [describe(one.finding) for one in found.summary.verdicts if one.kind == "compile"]
    assert len(said) == 1 and said[0].endswith("step in 8 of 8 calls on ranks 1 and 2 (rank 1).")


def test_an_empty_file_of_one_host_leaves_the_others(tmp_path: Path) -> None:
    place = log_directory(tmp_path / "logs", {"first": {"a": training(2), "b": b""}})
    run = import_files([place], tmp_path / "runs")
    assert len(summarise_profile(run).steps[0].durations) == 2
    assert "b.xplane.pb is empty: what its host did is missing" in run.info.notes
    (place / "plugins" / "profile" / "first" / "a.xplane.pb").write_bytes(b"")
    with pytest.raises(SondaError, match=r"a\.xplane\.pb"):
        import_files([place], tmp_path / "runs")


@pytest.mark.parametrize("below", ["plugins", "plugins/profile", "plugins/profile/first"])
def test_a_directory_inside_a_log_directory_is_known_too(tmp_path: Path, below: str) -> None:
    place = log_directory(tmp_path / "logs", {"first": {"a": training(2)}, "0": {"a": training(3)}})
    run = import_files([place / below], tmp_path / "runs", run="" if below.endswith("first") else "first")
    assert len(summarise_profile(run).steps[0].durations) == 2


@pytest.mark.parametrize(
    ("operation", "kind", "sentence"),
    [
        ("CollectiveReduceV2", "communication",
         "Communication-bound: exchanging with other ranks, or waiting for them, takes 80 % of the step (80.0 ns)."),
        ("TransferToDevice", "transfer",
         "Transfer-bound: copying between devices takes 80 % of the step (80.0 ns), in which nothing is computed."),
        ("cuLaunchKernel", "overhead",
         "Overhead-bound: launching work on a device takes 80 % of the step (80.0 ns), in which no device works."),
    ],
)  # fmt: skip
def test_without_a_device_every_part_has_its_verdict(operation: str, kind: str, sentence: str, tmp_path: Path) -> None:
    """80 of 100 ns; the session around it has 15 of the rest."""
    plane = PlaneMaker("/host:CPU")
    main = [plane.event("train", 0, 100, step_num=0, _r=1), plane.event("Session", 0, 95)]
    plane.line(1, "python", main).line(2, "tf_Compute/1", [plane.event(operation, 5, 80)])
    first = summarise_trace(made(space(plane), tmp_path)).summary.verdicts[0]
    assert (first.kind, describe(first.finding)) == (kind, sentence)
    assert first.share == pytest.approx(0.8)
