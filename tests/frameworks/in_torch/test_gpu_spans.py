"""A GPU's marks and kernels in the spans, without a GPU: a fake device, and a real trace with constructed kernels."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from itertools import count
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
import pytest

from gpu_spans_cases import FakeDevice, facts, fake_torch
from plain_runs import run_info
from sonda.analysis.run_summary import summarise
from sonda.analysis.steps.device_time import union
from sonda.frameworks.collector.clock import CLOCK, MARKS
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.collector.sampling.schedule import KERNEL_STEPS, KERNELS_FROM, Schedule
from sonda.frameworks.reconstruction.assembly import Assembly, assemble
from sonda.frameworks.torch.observe.device.device_marks import MOST_WAITING, DeviceMarks
from sonda.frameworks.torch.observe.device.kernel_pass import KernelPass
from sonda.frameworks.torch.observe.observer import TorchObserver
from sonda.record.errors import SondaError
from sonda.record.readings import DeviceStand
from sonda.record.run import Run, new_id, now
from sonda.record.spans import Spans, Words
from sonda.report.blocks import Detail
from sonda.report.views.steps.view import StepsView
from sonda.targets.profiles.kernels import _innermost, tie_clocks, with_kernels

torch = pytest.importorskip("torch")
nn = torch.nn

AHEAD = 7_000_000
"""ns that a constructed trace's clock is ahead of the collector's."""
LATE = 500.0
"""µs from a constructed launch to its kernel, at least."""
LONG = 40.0
"""µs of a constructed kernel."""


def test_marks_are_read_in_their_order_and_their_events_used_again() -> None:
    device, recorder = FakeDevice(), Recorder("")
    marks = DeviceMarks(recorder, fake_torch(device))
    for number in range(2 * MOST_WAITING):
        device.now = 1000.0 * number
        assert marks.mark() == number
    marks.finish()
    times = [tuple(mark) for fact in facts(recorder) for mark in fact.get("device_times", ())]
    assert times == [(number, 0, 1000 * number) for number in range(2 * MOST_WAITING)]
    assert device.made <= 1.3 * MOST_WAITING
    assert facts(recorder)[-1]["tf32"] == {"matmul": True, "convolution": True}
    about = facts(recorder)[-1]["devices"]["0"]
    assert (about["name"], about["peak_allocated"], about["peak_reserved"]) == ("a card 0", 1000, 2000)


def test_nothing_is_marked_while_a_graph_is_captured() -> None:
    device = FakeDevice()
    marks = DeviceMarks(Recorder(""), fake_torch(device))
    device.capturing = True
    assert marks.mark() == -1
    device.capturing = False
    assert marks.mark() == 0


def test_a_device_that_hangs_does_not_keep_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sonda.frameworks.torch.observe.device.device_marks.LONGEST_WAIT_NS", 1_000_000)
    device, recorder = FakeDevice(), Recorder("")
    marks = DeviceMarks(recorder, fake_torch(device))
    marks.mark()
    device.reached = False
    marks.finish()
    assert not any("device_times" in fact for fact in facts(recorder))


def test_kernels_are_recorded_for_a_few_steps_once() -> None:
    schedule = Schedule(count=False, profile=True)
    recorded = []
    for step in range(30):
        if schedule.kernels:
            recorded.append(step)
        schedule.end_step(0, 0)
    assert recorded == list(range(KERNELS_FROM, KERNELS_FROM + KERNEL_STEPS))
    late = Schedule(count=False, first=12, last=14, profile=True)
    recorded = []
    for step in range(30):
        if late.kernels:
            recorded.append(step)
        late.end_step(0, 0)
    assert recorded == [12, 13]


# ---- a training program whose device has a clock of its own ----------------------------------------------------------


def observe(directory: Path, steps: int = 4, profiled: int = 2) -> tuple[Assembly, int, int]:
    """Train a small model with marks on a fake device: every phase takes it 1 ms, and 0.5 ms lie between phases."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    recorder = Recorder(str(directory))
    device = FakeDevice()
    observer = TorchObserver(recorder, torch, Schedule(count=False))
    observer.marks = DeviceMarks(recorder, fake_torch(device))
    observer.kernel_pass = KernelPass(recorder, torch)
    mark, ticks = observer.marks.mark, count()

    def ticking() -> int:
        # Marks come in pairs, begin and end: 0.5 ms before a begin, 1 ms before an end.
        device.now += 1_000_000.0 if next(ticks) % 2 else 500_000.0
        return mark()

    observer.marks.mark = ticking  # type: ignore[method-assign]
    begin = perf_counter_ns()
    observer.install()

    def step() -> None:
        with observer.span("step", "train"):
            optimizer.zero_grad()
            output = model(torch.randn(2, 8))
            loss = output.square().mean()
            loss.backward()
            optimizer.step()

    try:
        for _ in range(steps):
            step()
        observer.kernel_pass.begin(recorder.stream())
        for _ in range(profiled):
            step()
        observer.kernel_pass.end()
    finally:
        observer.remove()
        recorder.state(finished=True)
        recorder.close()
    end = perf_counter_ns()
    return assemble(directory, begin, end), begin, end


def real_marks(trace: Path) -> int:
    return sum(str(event.get("name")).startswith(CLOCK) for event in json.loads(trace.read_text())["traceEvents"])


def launch_kernels(
    trace: Path, assembly: Assembly, begin: int, wanted: dict[tuple[str, str], int], thread: bool = True
) -> list[float]:
    """Put a trace in the place of the recorded one: `wanted` kernels by (layer, direction) in every step recorded.

    Launches lie evenly in the layer's span; the device takes them up in their order, `LATE` after the launch or when it
    is free. The trace's clock is `AHEAD` of the collector's and its marks say so to the ns, so nothing here depends on
    how fast this machine is. Returns the µs from launch to kernel, in the order of the launches.
    """
    spans = assembly.spans
    start, long = spans.number("start"), spans.number("duration")
    path, way = spans.words("path").decoded(), spans.words("direction").decoded()
    launches = sorted(
        (float(begin + start[row] + long[row] * (place + 1) / (wanted[path[row], way[row]] + 1)), int(row))
        for row in np.flatnonzero(spans.where(kind="layer", **{"pass": "kernels"}))
        if (path[row], way[row]) in wanted
        for place in range(wanted[path[row], way[row]])
    )
    # A mark ends when the next one is written: the difference of the clocks is known exactly.
    marks = [moment + 100 * place for moment in (begin, int(launches[-1][0]) + 10**9) for place in range(MARKS)]
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "user_annotation", "name": f"{CLOCK}{moment}", "pid": 1, "tid": 1, "dur": 0.1,
         "ts": (moment + AHEAD) / 1000}
        for moment in marks
    ]  # fmt: skip
    free, latencies = 0.0, []
    for number, (moment, row) in enumerate(launches, start=1):
        at = round(moment + AHEAD) / 1000
        shared = {"ph": "X", "args": {"correlation": number, "device": 0, "stream": 7}}
        begins = max(at + LATE, free)
        free = begins + LONG
        latencies.append(begins - at)
        events += [
            {**shared, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1,
             "tid": int(spans.number("thread")[row]) if thread else 1, "ts": at, "dur": 0.001},
            {**shared, "cat": "kernel", "name": f"kernel of {path[row]}", "pid": 0, "tid": 7, "ts": begins,
             "dur": LONG},
        ]  # fmt: skip
    trace.write_text(json.dumps({"traceEvents": events}))
    return latencies


def test_phases_and_steps_have_the_devices_times(tmp_path: Path) -> None:
    assembly, _, _ = observe(tmp_path)
    spans = assembly.spans
    phases = spans.where(kind="phase")
    time = spans.metric("device_time", "measured")
    name = spans.words("name").decoded()
    own = phases & np.isin(name, ("forward", "backward", "optimizer"))
    assert (time[own] == 1_000_000).all()
    # Between forward and backward lies the loss, which nothing marks: 0.5 ms.
    assert (time[phases & (name == "loss")] == 500_000).all()
    # zero_grad, forward, (loss), backward, step: four phases and three gaps.
    assert (time[spans.where(kind="step")] == 4 * 1_000_000 + 3 * 500_000).all()
    assert assembly.devices["0"]["name"] == "a card 0"
    assert np.isnan(time[spans.where(kind="layer")]).all()


def test_kernels_hang_on_the_layer_that_launched_them(tmp_path: Path) -> None:
    assembly, begin, _ = observe(tmp_path)
    trace = next(tmp_path.glob("*.kernels.json"))
    assert real_marks(trace) == 2 * MARKS
    wanted = {("0", "forward"): 1, ("1", "forward"): 1, ("2", "forward"): 1,
              ("2", "backward"): 2, ("1", "backward"): 1, ("0", "backward"): 1}  # fmt: skip
    latencies = launch_kernels(trace, assembly, begin, wanted)
    joined = with_kernels(assembly, tmp_path, begin)
    assert not joined.notes
    spans = joined.spans
    rows = np.flatnonzero(spans.where(kind="kernel"))
    name, path = spans.words("name").decoded(), spans.words("path").decoded()
    direction = spans.words("direction").decoded()
    assert all(name[row] == f"kernel of {path[row]}" for row in rows)
    # Two steps were recorded.
    assert Counter((path[row], direction[row]) for row in rows) == {layer: 2 * many for layer, many in wanted.items()}
    latency = spans.metric("launch_latency", "measured")[rows]
    assert np.sort(latency) == pytest.approx(1000 * np.sort(latencies), abs=2)
    parent = spans.number("parent")[rows]
    start = spans.number("start")
    assert (start[rows] - start[parent] >= 1000 * LATE - 2).all()
    assert set(spans.words("pass").decoded()[rows]) == {"kernels"} and set(spans.words("clock").decoded()[rows]) == {
        "device"
    }


def test_a_launch_on_a_thread_that_was_not_observed_belongs_to_the_phase(tmp_path: Path) -> None:
    assembly, begin, _ = observe(tmp_path)
    wanted = {("0", "forward"): 1, ("2", "forward"): 1}
    launch_kernels(next(tmp_path.glob("*.kernels.json")), assembly, begin, wanted, thread=False)
    spans = with_kernels(assembly, tmp_path, begin).spans
    rows = np.flatnonzero(spans.where(kind="kernel"))
    kind, name = spans.words("kind").decoded(), spans.words("name").decoded()
    assert len(rows) == 4
    assert {(kind[row], name[row]) for row in spans.number("parent")[rows]} == {("phase", "forward")}


def test_a_summary_holds_the_devices_and_the_hosts_times(tmp_path: Path) -> None:
    assembly, begin, _ = observe(tmp_path)
    wanted = {("0", "forward"): 1, ("2", "forward"): 1, ("2", "backward"): 2, ("0", "backward"): 1}
    launch_kernels(next(tmp_path.glob("*.kernels.json")), assembly, begin, wanted)
    spans = with_kernels(assembly, tmp_path, begin).spans
    info = run_info(
        id=new_id(), created=now(), status="complete", workload={"name": "mlp", "train": True, "batch": 2},
        target={"spec": "cuda:0", "device": "cuda", "devices": {"cuda:0": assembly.devices["0"]}},
    )  # fmt: skip
    devices = info.target.devices
    assert devices is not None and devices["cuda:0"].state == DeviceStand(missing="nvidia-ml-py is not installed")
    run = Run(tmp_path, info)
    run.__dict__["spans"] = spans
    summary = summarise(run)
    part = summary.parts[0]
    assert part.steps == 4  # those whose kernels were recorded are apart
    assert part.step.value == 5_500_000
    side = part.device
    assert side is not None and side.steps == 2 and side.launches.value == 5
    layers = {row.path: row for row in part.layers}
    assert layers["2"].forward.value == pytest.approx(1000 * LONG, abs=1)
    assert layers["2"].backward.value == pytest.approx(2000 * LONG, abs=2)
    assert layers["1"].own.value == 0
    assert layers["2"].host is not None and layers["2"].host.value > 0
    # One after another: five kernels of 40 µs a step.
    assert side.busy.value == pytest.approx(5 * 1000 * LONG, abs=10)
    phases = {row.name: row for row in part.phases}
    assert phases["forward"].cost.time.value == 1_000_000 and phases["forward"].host is not None
    # 200 µs of kernels in 5.5 ms: the device waits for 96.4 % of it.
    assert summary.verdicts[0].kind == "host" and summary.verdicts[0].share == pytest.approx(0.964, abs=0.001)
    text = StepsView(summary).text(140, color=False, detail=Detail.ALL)
    assert "busy" in text and "a card 0" in text and "kernel of 2" in text
    document = json.loads(json.dumps(StepsView(summary).document()))
    assert document["device"]["launches"]["value"] == 5


# ---- clocks ----------------------------------------------------------------------------------------------------------


def marks_of(times: list[tuple[int, int, int]]) -> Spans:
    """Marks as (collector's time in the name, start, duration)."""
    return Spans(
        {"start": np.array([start for _, start, _ in times]), "duration": np.array([long for _, _, long in times])},
        {"name": Words.of([f"{CLOCK}{time}" for time, _, _ in times])},
    )


def test_clocks_are_tied_within_what_the_marks_leave_open() -> None:
    # The trace's clock is 1,000,000 ahead before the steps and 1,000,400 after them.
    before = [(100, 1_000_130, 20), (200, 1_000_210, 40), (300, 1_000_305, 90)]
    after = [(900_100, 1_900_540, 10), (900_200, 1_900_610, 60), (900_300, 1_900_703, 50)]
    clock = tie_clocks(marks_of([*before, *after]))
    # First group: starts allow at most 5 more than 1,000,000, ends at least 1,000,150 - 200 and 1,000,250 - 300.
    assert clock.offsets[0] == (1_000_005 + 999_950) / 2
    assert clock.offsets[1] == ((1_900_703 - 900_300) + max(1_900_550 - 900_200, 1_900_670 - 900_300)) / 2
    assert abs(clock.to_collector(np.array([1_000_200]))[0] - 200) <= 28
    assert abs(clock.to_collector(np.array([1_900_600]))[0] - 900_200) <= 28


def test_a_trace_without_marks_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(SondaError, match="no mark"):
        tie_clocks(Spans({"start": np.zeros(1)}, {"name": Words.of(["x"])}))


def test_why_there_are_no_kernels_is_said(tmp_path: Path) -> None:
    bare = Assembly(spans=Spans({"start": np.zeros(1)}, {"kind": Words.of(["run"])}), devices={"0": {}})
    assert "too few steps" in with_kernels(bare, tmp_path, 0).notes[0]
    bare.no_kernels = "somebody else uses the profiler"
    assert with_kernels(bare, tmp_path, 0).notes == ["no kernels were recorded: somebody else uses the profiler"]
    bare.no_kernels, bare.kernels = "", [("gone.json", 0)]
    (tmp_path / "gone.json").write_text("{not a trace")
    assert with_kernels(bare, tmp_path, 0).notes[0].startswith("kernels are missing")


def test_another_profiler_in_the_program_is_let_alone(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path))
    kernels = KernelPass(recorder, torch)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        kernels.begin(recorder.stream())
        assert not kernels.active
    assert any("torch.profiler itself" in fact.get("no_kernels", "") for fact in facts(recorder))
    with suppress(Exception):
        recorder.close()


def test_the_innermost_open_span_is_found_as_by_looking_at_each() -> None:
    rng = np.random.default_rng(0)
    starts, ends = [], []

    def grow(begin: int, end: int, depth: int) -> None:
        starts.append(begin)
        ends.append(end)
        at = begin
        while depth and at + 4 < end:
            inner = int(rng.integers(at + 1, end - 2))
            stop = int(rng.integers(inner + 1, end))
            grow(inner, stop, depth - 1)
            at = stop + 1

    for root in range(5):
        grow(1000 * root, 1000 * root + 900, 4)
    order = rng.permutation(len(starts))
    start, end = np.array(starts)[order], np.array(ends)[order]
    spans = Spans({"start": start, "duration": end - start}, {})
    moments = rng.integers(0, 5000, 500)
    innermost = _innermost(spans, np.arange(len(start)), moments)
    for moment, row in zip(moments.tolist(), innermost.tolist(), strict=True):
        holding = np.flatnonzero((start <= moment) & (moment < end))
        expected = holding[np.argmax(start[holding])] if len(holding) else -1
        assert row == expected or (row >= 0 and start[row] == start[expected] and end[row] == end[expected])


def test_a_union_counts_overlaps_once() -> None:
    assert union(np.array([0, 5, 20, 21]), np.array([10, 8, 30, 22])) == 20
    assert union(np.zeros(0), np.zeros(0)) == 0
