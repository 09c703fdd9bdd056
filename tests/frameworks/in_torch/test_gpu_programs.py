"""Programs that use a GPU in uncommon ways, without one: threads of autograd, replicas, failures, other profilers."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpu_spans_cases import FakeDevice, facts, fake_torch
from plain_runs import run_info
from sonda.analysis.doubts import HeldAgainstTf32
from sonda.analysis.roofline import tf32_note
from sonda.analysis.steps.device_time import Activities, device_side
from sonda.analysis.summary import Value
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.collector.sampling.schedule import Schedule
from sonda.frameworks.reconstruction.assembly import Assembly, assemble
from sonda.frameworks.torch.observe.device.device_marks import DeviceMarks
from sonda.frameworks.torch.observe.device.kernel_pass import KernelPass
from sonda.frameworks.torch.observe.observer import TorchObserver
from sonda.probes.machine.contamination import MachineConditions
from sonda.record.run import new_id, now
from sonda.record.spans import Spans, Words
from sonda.targets import circumstances
from sonda.targets.circumstances import describe_gpus

torch = pytest.importorskip("torch")
nn = torch.nn
DEPTH = 70
"""From 60 backwards inside each other on, autograd goes on in another thread, as it does at once on a GPU."""


def observed(directory: Path, program: Any, on_gpu: bool = False) -> Assembly:
    """What an observer sees of a program; `on_gpu`: with a fake device that holds no marks back."""
    torch.set_num_threads(1)
    recorder = Recorder(str(directory))
    observer = TorchObserver(recorder, torch, Schedule(count=False))
    if on_gpu:
        observer.marks = DeviceMarks(recorder, fake_torch(FakeDevice()))
    observer.kernel_pass = KernelPass(recorder, torch)
    begin = perf_counter_ns()
    observer.install()
    try:
        program()
    finally:
        observer.remove()
        recorder.state(finished=True)
        recorder.close()
    return assemble(directory, begin, perf_counter_ns())


def counted(spans: Spans, kind: str) -> list[str]:
    return [name for name, mine in zip(spans.words("name").decoded(), spans.where(kind=kind), strict=True) if mine]


# ---- threads ---------------------------------------------------------------------------------------------------------


class Noted(nn.Module):
    """Says in which threads it ran."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()

    def forward(self, x: Any) -> Any:
        self.threads.add(threading.get_ident())
        return torch.tanh(x)


class Again(torch.autograd.Function):
    """What a checkpoint does: its backward repeats the forward, here inside as many others as `depth` says."""

    @staticmethod
    def forward(ctx: Any, x: Any, module: nn.Module, depth: int) -> Any:
        ctx.save_for_backward(x)
        ctx.module, ctx.depth = module, depth
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            given = x.detach().requires_grad_()
            made = Again.apply(given, ctx.module, ctx.depth - 1) if ctx.depth else ctx.module(given)
        torch.autograd.backward(made, gradient)
        return given.grad, None, None


def test_a_forward_that_autograds_thread_repeats_is_no_step_of_its_own(tmp_path: Path) -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 4), Noted()

        def forward(self, x: Any) -> Any:
            return Again.apply(self.first(x), self.last, DEPTH)

    model = Deep()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train() -> None:
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()

    spans = observed(tmp_path, train).spans
    assert threading.get_ident() not in model.last.threads, "it ran in the program's thread: nothing was tried"
    assert spans.where(kind="part").sum() == 1
    assert spans.where(kind="step").sum() == 2
    phases = counted(spans, "phase")
    assert (phases.count("forward"), phases.count("backward")) == (2, 2)
    repeated = (
        spans.where(kind="layer") & spans.words("name").equal("Noted") & spans.words("direction").equal("forward")
    )
    assert repeated.sum() == 2
    name, parent = spans.words("name").decoded(), spans.number("parent")
    assert [str(name[row]) for row in parent[repeated]] == ["backward", "backward"]


def test_replicas_in_threads_are_a_part_of_the_forward_that_waits_for_them(tmp_path: Path) -> None:
    class Parallel(nn.Module):
        """What DataParallel does: a replica for each device, each called in a thread of its own."""

        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Any) -> Any:
            results: list[Any] = [None, None]

            def work(place: int) -> None:
                replica = self.module._replicate_for_data_parallel()
                replica.weight, replica.bias = self.module.weight, self.module.bias
                results[place] = replica(x)

            threads = [threading.Thread(target=work, args=(place,)) for place in (0, 1)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return torch.cat(results)

    model = Parallel(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train() -> None:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()

    spans = observed(tmp_path, train).spans
    assert spans.where(kind="step").sum() == 3
    assert counted(spans, "phase").count("forward") == 3
    replicas = (
        spans.where(kind="layer") & spans.words("name").equal("Linear") & spans.words("direction").equal("forward")
    )
    holders = spans.number("parent")[replicas]
    assert replicas.sum() == 6
    assert all(spans.words("name").decoded()[holder] == "forward" for holder in holders)


# ---- devices that fail, or do not say --------------------------------------------------------------------------------


def failing(*_: Any, **__: Any) -> Any:
    raise RuntimeError("CUDA error: device-side assert triggered")


def test_a_device_that_failed_raises_nothing_of_ours() -> None:
    device, recorder = FakeDevice(), Recorder("")
    marks = DeviceMarks(recorder, fake_torch(device))
    first = marks.mark()
    device.is_current_stream_capturing = failing  # type: ignore[method-assign]
    assert (first, marks.mark()) == (0, -1)
    device.max_memory_allocated = failing  # type: ignore[method-assign]
    marks.finish()
    assert facts(recorder)[-1]["devices"]["0"]["name"] == "a card 0"
    assert "peak_allocated" not in facts(recorder)[-1]["devices"]["0"]
    assert [fact["device_times"] for fact in facts(recorder) if "device_times" in fact] == [[(0, 0, 0)]]


@pytest.mark.parametrize(("asked", "expected"), [("tf32", True), ("ieee", False)])
def test_the_newer_way_to_ask_for_tf32_is_understood(asked: str, expected: bool) -> None:
    class Refusing:
        """PyTorch 2.9 and later, once `fp32_precision` was set."""

        fp32_precision = asked
        conv = SimpleNamespace(fp32_precision=asked)

        @property
        def allow_tf32(self) -> bool:
            raise RuntimeError("mix of the legacy and new APIs")

    recorder = Recorder("")
    torch_like = fake_torch(FakeDevice())
    torch_like.backends = SimpleNamespace(cuda=SimpleNamespace(matmul=Refusing()), cudnn=Refusing())
    marks = DeviceMarks(recorder, torch_like)
    marks.mark()
    marks.finish()
    assert facts(recorder)[-1]["tf32"] == {"matmul": expected, "convolution": expected}


def test_this_pytorch_is_asked_for_tf32_in_both_ways() -> None:
    marks = DeviceMarks(Recorder(""), torch)
    matmul = torch.backends.cuda.matmul
    if not hasattr(matmul, "fp32_precision"):
        pytest.skip("this PyTorch has only the older way")
    before = matmul.fp32_precision
    try:
        matmul.fp32_precision = "tf32"
        assert marks._tf32()["matmul"] is True
        matmul.fp32_precision = "ieee"
        assert marks._tf32()["matmul"] is False
    finally:
        matmul.fp32_precision = before


def test_what_a_program_set_for_tf32_is_in_its_run() -> None:
    assembly = Assembly(
        spans=Spans({"start": np.zeros(0)}, {}),
        devices={"0": {"name": "a card"}},
        tf32={"matmul": True, "convolution": False},
    )
    info = run_info(id=new_id(), created=now(), status="complete", target={"device": "cuda", **describe_gpus(assembly)})
    assert tf32_note(info, "float32") == HeldAgainstTf32(products=True, convolutions=False, assumed=False)
    assert describe_gpus(Assembly(spans=assembly.spans)) == {}


def step_once() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()


def test_a_killed_program_says_that_its_times_are_the_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that an end would state is stated."""
    monkeypatch.setattr(DeviceMarks, "finish", lambda self: None)
    killed = observed(tmp_path, step_once, on_gpu=True)
    assert killed.devices == {"0": {"name": "a card 0"}}
    assert [note for note in killed.notes if "those of steps and phases are the host's" in note]
    assert "device_time:measured" not in killed.spans.metrics


def test_phases_on_another_gpu_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward on the first GPU, the rest on the second: three phases of two marks each."""
    order = iter([0, 0, 1, 1, 1, 1])
    monkeypatch.setattr(FakeDevice, "current_device", lambda self: next(order))
    assembly = observed(tmp_path, step_once, on_gpu=True)
    assert sorted(assembly.devices) == ["0", "1"]
    assert [note for note in assembly.notes if note.startswith("2 of 6 marks lie on other GPUs")]


def test_threads_that_wait_for_a_gpu_were_not_held_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen threads of which one is busy are as they should be, whatever others do meanwhile."""
    begin = MachineConditions(time=0.0, cpu_time=0.0, cores=16, busy=0.0, steal=None, load=None, runnable=0)
    end = replace(begin, time=10.0, cpu_time=12.0, busy=130.0)
    monkeypatch.setattr(circumstances, "load_or_measure", lambda *args, **kwargs: {})
    monkeypatch.setattr(
        circumstances, "load_or_measure_gpu", lambda *args: SimpleNamespace(record=lambda: {"devices": {}})
    )
    signs = {}
    for device, on_gpu in (("cpu", False), ("cuda", True)):
        (tmp_path / device).mkdir()
        assembly = observed(tmp_path / device, step_once, on_gpu)
        assembly.crew.busiest.habits.pop("cores", None)  # the program is bound to none of the sixteen cores
        found = circumstances.observed_circumstances(assembly, 16, tmp_path, begin, end)
        signs[device] = found.machine["conditions"]["signs"]
    assert signs == {"cpu": ["others", "use"], "cuda": ["others"]}


# ---- other profilers -------------------------------------------------------------------------------------------------


def test_a_profiler_that_the_program_starts_later_goes_before_ours(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path))
    observer = TorchObserver(recorder, torch, Schedule(count=False))
    kernels = observer.kernel_pass = KernelPass(recorder, torch)
    observer.install()
    try:
        kernels.begin(recorder.stream())
        assert kernels.active
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as theirs:
            assert not kernels.active
            torch.ones(3).add(1)
        assert any(event.key == "aten::add" for event in theirs.key_averages())
        kernels.begin(recorder.stream())
        assert not kernels.active, "a schedule of the program's may want its profiler again"
    finally:
        observer.remove()
    stated = facts(recorder)
    assert not any("kernels" in fact for fact in stated)
    assert {fact["no_kernels"] for fact in stated if "no_kernels" in fact} == {"the program uses torch.profiler itself"}
    recorder.close()


# ---- several devices -------------------------------------------------------------------------------------------------


def activities(devices: list[str], ranks: list[int]) -> Spans:
    """One step of 1,000 ns for each rank, and a kernel of 400 ns at its beginning on each of these devices."""
    steps = sorted(set(ranks))
    return Spans(
        {
            "start": np.zeros(len(steps) + len(devices), dtype=np.int64),
            "duration": np.array([1000] * len(steps) + [400] * len(devices)),
            "rank": np.array([*steps, *ranks]),
            "parent": np.array([-1] * len(steps) + [steps.index(rank) for rank in ranks]),
        },
        {
            "kind": Words.of(["step"] * len(steps) + ["kernel"] * len(devices)),
            "device": Words.of([""] * len(steps) + devices),
        },
    )


@pytest.mark.parametrize(
    ("devices", "ranks"),
    [
        (["cuda:0"], [0]),
        (["cuda:0", "cuda:1"], [0, 0]),
        (["cuda:0", "cuda:1"], [0, 1]),
        (["cuda:0", "cuda:0"], [0, 1]),
    ],
    ids=["one", "two of one process", "one for each rank", "one for each rank, both called cuda:0"],
)
def test_gpus_that_are_busy_for_two_fifths_are_idle_for_three(devices: list[str], ranks: list[int]) -> None:
    spans = activities(devices, ranks)
    steps = np.flatnonzero(spans.where(kind="step"))
    found = Activities(spans, np.arange(len(steps), len(spans)), steps)
    side = device_side(found, Value(1000.0, "ns", "measured"), Value(900.0, "ns", "measured"), np.full(len(spans), -1))
    assert side is not None
    assert side.busy.value == 400.0
    assert side.share == pytest.approx(0.4)
    assert side.idle.value == 600.0
    assert side.overlapped.value == 0.0
    assert side.launches.value == len(devices) / len(steps)


def test_a_graph_is_one_launch_however_many_kernels_it_has() -> None:
    """A copy launched at 0 begins at 10; a graph launched at 100 has kernels that begin at 130, 150 and 190."""
    spans = Spans(
        {"start": np.array([0, 10, 130, 150, 190]), "duration": np.array([1000, 10, 10, 10, 10]),
         "rank": np.zeros(5, dtype=np.int64), "parent": np.array([-1, 0, 0, 0, 0])},
        {"kind": Words.of(["step", "copy", "kernel", "kernel", "kernel"]), "device": Words.of(["", *["cuda:0"] * 4])},
        {"launch_latency:measured": np.array([np.nan, 10.0, 30.0, 50.0, 90.0])},
    )  # fmt: skip
    found = Activities(spans, np.arange(1, 5), np.array([0]))
    side = device_side(found, Value(1000.0, "ns", "measured"), Value(900.0, "ns", "measured"), np.full(5, -1))
    assert side is not None
    assert side.launches.value == 2
    assert side.latency.value == 20.0  # of 10 and 30
    assert side.busy.value == 40.0


def test_recording_kernels_writes_nothing_to_the_programs_stderr() -> None:
    """In a process of its own: the profiler's level is read once."""
    program = (
        "import tempfile, torch\n"
        "from sonda.frameworks.torch.observe.device.kernel_pass import KernelPass\n"
        "from sonda.frameworks.collector.recorder import Recorder\n"
        "recorder = Recorder(tempfile.mkdtemp())\n"
        "kernels = KernelPass(recorder, torch)\n"
        "kernels.begin(recorder.stream())\n"
        "kernels.end()\n"
        "print(any('kernels' in fact for fact in recorder._pending))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("True\n", "")
