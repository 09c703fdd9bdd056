"""Nothing is advised that a program does already: real programs with an option, and their twins without."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from growth import time_growth
from observed import PROGRAMS, Nursery
from sonda.analysis.rules import remedies
from sonda.analysis.rules.advice import Change, FuseOperations, TryChange
from sonda.analysis.rules.device import transfer
from sonda.analysis.rules.limits import communication
from sonda.analysis.summary import DeviceSide, PhaseRow, Remedy, Summary, Value
from sonda.frameworks.reconstruction.processes import Process, Processes
from sonda.frameworks.torch.observe.options import CompiledShare
from sonda.frameworks.torch.observe.values import modules_in
from sonda.record.store import Store
from sonda.report.words import describe
from sonda.targets import circumstances
from sonda.targets.circumstances import describe_habits, describe_processes
from sonda.targets.program.launcher import WatchSettings, run_command
from verdicts_cases import bare, cost, layer, phase, summary

torch = pytest.importorskip("torch")

PHASES = [phase("data", bare(40)), phase("forward", cost(30, "compute", 0.8)), phase("transfer", bare(20))]
LAYERS = [layer("0", "Conv2d", cost(30, "compute", 0.8))]

FOLLOWED: dict[str, tuple[Callable[[Summary], Remedy | None], str]] = {
    "workers": (remedies.workers, "load data in parallel: DataLoader(num_workers=2)"),
    "channels_last": (
        remedies.channels_last,
        "store images with channels last: model.to(memory_format=torch.channels_last)",
    ),
    "input_channels_last": (
        remedies.channels_last,
        "store images with channels last: model.to(memory_format=torch.channels_last)",
    ),
    "compile": (remedies.compiled, "fuse operations: torch.compile(model)"),
    "compile_in_place": (remedies.compiled, "fuse operations: torch.compile(model)"),
    "compile_step": (remedies.compiled, "fuse operations: torch.compile(model)"),
    "compile_loss": (remedies.compiled, "fuse operations: torch.compile(model)"),
    "compile_loss+fullgraph": (remedies.compiled, "fuse operations: torch.compile(model)"),
    "compile_method": (remedies.compiled, "fuse operations: torch.compile(model)"),
    "compile_forward": (remedies.compiled, "fuse operations: torch.compile(model)"),
    "compile_parts": (remedies.compiled, "fuse operations: torch.compile(model)"),
    "trace": (remedies.compiled, "fuse operations: torch.compile(model)"),
    "script": (remedies.compiled, "fuse operations: torch.compile(model)"),
    "autocast": (remedies.bfloat16, "compute in bfloat16: torch.autocast('cpu', torch.bfloat16)"),
    "bfloat16": (remedies.bfloat16, "compute in bfloat16: torch.autocast('cpu', torch.bfloat16)"),
    "compile_loss+bfloat16": (remedies.bfloat16, "compute in bfloat16: torch.autocast('cpu', torch.bfloat16)"),
    "compile_loss+autocast_inside": (remedies.bfloat16, "compute in bfloat16: torch.autocast('cpu', torch.bfloat16)"),
    "compile_loss+channels_last": (
        remedies.channels_last,
        "store images with channels last: model.to(memory_format=torch.channels_last)",
    ),
    "compile_method+channels_last": (
        remedies.channels_last,
        "store images with channels last: model.to(memory_format=torch.channels_last)",
    ),
    "matmuls": (remedies.bfloat16, "compute in bfloat16: torch.autocast('cpu', torch.bfloat16)"),
    "threads": (remedies.threads, "use all 2 cores: torch.set_num_threads(2)"),
    "processes": (remedies.threads, "use all 2 cores: torch.set_num_threads(2)"),
    "bound": (remedies.threads, "use all 2 cores: torch.set_num_threads(2)"),
}
"""By the arguments of the program: the remedy that it follows, or that is not to be had; and what its twin is told."""


@pytest.fixture(scope="module")
def nursery() -> Nursery:
    return Nursery()


def printed(output: str) -> list[str]:
    """What the program itself printed, in whatever order its processes did; PyTorch's compiler warns with the time."""
    return sorted(line for line in output.splitlines() if not line.startswith("W"))


@pytest.fixture(scope="module")
def told(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Summary]:
    """Called with options of a program: what is told of it. The same options run once."""
    return cache(lambda *options: tell(nursery, tmp_path_factory.mktemp("habits"), *options))


def tell(nursery: Nursery, directory: Path, *options: str) -> Summary:
    """A summary of a step that is bound by everything, of a program on two cores that runs with these options."""
    before = nursery.run("habits", *options, directory=directory / "bare", observe=False)
    observed = nursery.run("habits", *options, directory=directory / "observed", observe=True)
    assert observed.code == before.code == 0
    assert printed(observed.output) == printed(before.output) and len(printed(before.output)) > 2
    assembly = observed.assembly
    assert assembly is not None
    target = {"spec": "", "device": "cpu", "threads": assembly.crew.busiest.threads, **describe_processes(assembly)}
    workload = {"name": "habits.py", "command": ["python", "habits.py"], **describe_habits(assembly)}
    if "bound" not in options:
        workload["cores"] = 2  # as it were on a machine that has as many
    return summary(PHASES, LAYERS, workload=workload, target=target, machine={"effective_cores": 2})


@pytest.fixture(scope="module")
def twin(told: Callable[..., Summary]) -> Summary:
    return told()


@pytest.mark.parametrize("option", FOLLOWED)
def test_what_a_program_does_is_not_advised_to_it(told: Callable[..., Summary], twin: Summary, option: str) -> None:
    remedy, text = FOLLOWED[option]
    advised = remedy(twin)
    assert advised is not None and describe(advised.advice) == text
    if option == "threads" and len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core only: PyTorch takes no second thread")
    followed = remedy(told(*option.split("+")))
    assert followed is None or (option == "workers" and describe(followed.advice) == MORE)


@pytest.mark.parametrize("option", ["compile_activation", "compile_criterion", "compile_last", "script_activation"])
def test_where_a_part_is_compiled_the_rest_may_be_too(told: Callable[..., Summary], option: str) -> None:
    advised = remedies.compiled(told(option))
    assert advised is not None
    assert advised.advice == FuseOperations("torch", partly=True)


def test_a_compiled_function_is_advised_what_it_does_not_do(told: Callable[..., Summary]) -> None:
    told_so = told("compile_loss")
    for remedy in (remedies.workers, remedies.channels_last, remedies.bfloat16, remedies.threads):
        assert remedy(told_so) is not None


MORE = "load data with more workers than 1: DataLoader(num_workers=2)"


def test_the_twin_says_of_every_option_that_it_is_not_in_use(twin: Summary) -> None:
    assert {
        name: getattr(twin.workload, name) for name in ("workers", "pin", "compile", "channels_last", "precision")
    } == {
        "workers": 0,
        "pin": False,
        "compile": False,
        "channels_last": False,
        "precision": "float32",
    }


def test_the_loader_that_feeds_the_training_speaks_for_the_program(told: Callable[..., Summary]) -> None:
    # The loader of the evaluation has no workers, and comes last.
    workload = told("workers").workload
    assert (workload.workers, workload.prefetch, workload.persistent_workers) == (1, 2, False)
    assert workload.loader_line == "tests/programs/habits.py:100"


class Counted(torch.nn.Sequential):
    """A module of three layers: nine weights, one and four, and a table that is only read."""

    def __init__(self) -> None:
        linear = torch.nn.Linear
        super().__init__(linear(3, 3, bias=False), linear(1, 1, bias=False), linear(2, 2, bias=False))
        self.table = torch.nn.Embedding(100, 10)


@pytest.mark.parametrize(
    ("compiled", "part"), [((0, 1, 2), False), ((0, 1), False), ((0,), True), ((1, 2), True), ((1,), True), ((), None)]
)
def test_most_layers_and_weights_that_compute_say_whether_a_module_is_compiled(
    monkeypatch: pytest.MonkeyPatch, compiled: tuple[int, ...], part: bool | None
) -> None:
    module, share = Counted(), CompiledShare(torch)
    monkeypatch.setattr(share, "_dynamo_ran", lambda: False)
    monkeypatch.setattr(share, "_script_ran", lambda: False)
    for number in compiled:
        module[number].compile(backend="eager")
    share.count_module(module, True)
    share.weigh(module, True)
    if part is None:
        assert share.facts(True) == {"compile": False}
    else:
        assert share.facts(True) == {"compile": True, **({"compile_part": True} if part else {})}


def test_a_module_that_is_kept_from_the_compiler_is_not_compiled() -> None:
    share = CompiledShare(torch)
    module = torch.nn.Linear(2, 2)
    assert not share._is_compiled(torch.compiler.disable(module))
    assert share._is_compiled(torch.compile(module, backend="eager"))


def test_modules_that_are_called_seldom_beside_compiled_functions_are_no_part_of_the_step() -> None:
    share, module = CompiledShare(torch), Counted()
    share.count_module(module, True)  # to learn its sizes, say
    share.weigh(module, True)
    for _ in range(8):
        share.count_function(True)
    assert share.facts(True) == {"compile": True, "compile_part": True}
    share.count_function(True)
    assert share.facts(True) == {"compile": True}


# ---- constructed ----------------------------------------------------------------------------------------------------


def program(workload: dict[str, Any] | None = None, cores: int = 8, **target: Any) -> Summary:
    return summary(
        PHASES,
        LAYERS,
        workload={"command": ["python", "train.py"], **(workload or {})},
        target={"spec": "", "device": "cpu", "threads": 1, **target},
        machine={"effective_cores": cores},
    )


def text(remedy: Remedy | None) -> str:
    return describe(remedy.advice) if remedy is not None else ""


def test_workers_are_no_more_than_the_cores_and_the_processes_allow() -> None:
    assert (
        text(remedies.workers(program({"loader": "torch", "workers": 0})))
        == "load data in parallel: DataLoader(num_workers=4)"
    )
    assert text(remedies.workers(program({"loader": "torch", "workers": 2}))) == (
        "load data with more workers than 2: DataLoader(num_workers=4)"
    )
    assert remedies.workers(program({"loader": "torch", "workers": 4})) is None
    assert "num_workers=2" in text(remedies.workers(program({"loader": "torch", "workers": 0}, processes=4)))
    assert remedies.workers(program({"loader": "torch", "workers": 0}, cores=1)) is None
    assert "num_workers=1" in text(remedies.workers(program({"loader": "torch", "workers": 0}, cores=1, device="cuda")))


def test_data_without_a_loader_are_loaded_by_one_that_fits() -> None:
    assert text(remedies.workers(program())) == (
        "load data in parallel, in processes of its own: DataLoader(num_workers=4) does"
    )
    assert text(remedies.workers(program({"framework": "tensorflow"}))) == (
        "load data in parallel: Dataset.map(…, num_parallel_calls=4)"
    )
    assert remedies.workers(program({"framework": "tensorflow", "loader": "tf.data", "workers": 8})) is None
    assert remedies.prefetch(program({"framework": "tensorflow", "loader": "tf.data", "prefetch": -1})) is None
    assert text(remedies.prefetch(program({"framework": "tensorflow", "loader": "tf.data", "prefetch": 0}))) == (
        "load ahead: Dataset.prefetch(2)"
    )


def test_a_loader_of_pytorch_that_feeds_another_framework() -> None:
    feeding = program({"framework": "jax", "loader": "torch", "workers": 0})
    assert "DataLoader(num_workers=4)" in text(remedies.workers(feeding))
    assert remedies.prefetch(feeding) is None
    assert text(remedies.prefetch(program({"framework": "jax"}))) == "load ahead: a thread that makes the next batch"


def test_threads_are_shared_by_processes_that_compute_at_once() -> None:
    assert text(remedies.threads(program(processes=2))) == (
        "use all 8 cores: torch.set_num_threads(4) in each of 2 processes"
    )
    assert remedies.threads(program(processes=8)) is None
    assert text(remedies.threads(program({"cores": 3}))) == "use all 3 cores: torch.set_num_threads(3)"


def test_graphs_in_use_are_not_advised() -> None:
    assert "CUDA graphs" in text(remedies.graphs(program()))
    assert remedies.graphs(program({"cuda_graphs": True})) is None


@pytest.mark.parametrize(("pin", "advised"), [(False, Change.PIN_AND_COPY), (True, Change.COPY_FROM_PINNED)])
def test_memory_that_is_pinned_is_not_advised_to_be_pinned(pin: bool, advised: Change) -> None:
    waiting = program({"pin": pin}, device="cuda")
    missing = Value(None, "ns", "measured")
    side = DeviceSide(*(missing,) * 2, 0.5, *(missing,) * 6, {}, 3)
    kernels = [SimpleNamespace(kind="copy", name="Memcpy HtoD (Pageable -> Device)")]
    copied: Any = SimpleNamespace(kernels=kernels)
    parts = (replace(waiting.parts[0], device=side),)
    verdict = transfer.rule(replace(waiting, parts=parts, device_work=copied))
    assert verdict is not None and verdict.remedies[0].advice == TryChange(advised)


def test_a_program_has_no_option_batch() -> None:
    rows: list[PhaseRow] = [phase("communicate", bare(40)), *PHASES]
    verdict = communication.rule(summary(rows, LAYERS, target={"spec": "", "threads": 1}))
    assert verdict is not None
    assert verdict.remedies == (communication.SAMPLES,)


def test_processes_that_take_turns_are_not_at_once() -> None:
    apart = Processes([Process(steps=2, begin=0, end=5), Process(steps=2, begin=5, end=9), Process()])
    beside = Processes([Process(steps=2, begin=0, end=5), Process(steps=2, begin=4, end=9), Process(steps=1, end=3)])
    assert (apart.at_once, beside.at_once) == (1, 2)
    assert Processes().at_once == 0 and Processes().busiest.steps == 0


def test_twenty_thousand_processes_are_counted_in_a_moment() -> None:
    """Each lasts as long as it takes for ten others to begin: ten step at once."""

    def count(processes: int) -> None:
        assert Processes([Process(steps=1, begin=at, end=at + 10) for at in range(processes)]).at_once == 10

    assert time_growth(count, 2000, 20_000, 30) < 30, "times; looking at every pair takes 100 times as long"


# ---- through the command --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_thread_of_the_program_is_not_asked_for_its_threads(nursery: Nursery, tmp_path: Path) -> None:
    bare = nursery.run("asking", directory=tmp_path / "bare", observe=False)
    observed = nursery.run("asking", directory=tmp_path / "observed", observe=True)
    assert "asked outside of the main thread: 0" in bare.output
    assert observed.output == bare.output
    assert observed.assembly is not None
    assert observed.assembly.threads == 1, "what the program has set"


class Standing:
    """Stands for an object that does not exist yet, as proxies of web frameworks do."""

    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise RuntimeError("nothing is there yet")


class Secretive:
    @property
    def __dict__(self) -> dict:  # type: ignore[override]
        raise RuntimeError("nobody may look")


def test_objects_that_a_function_names_are_not_asked_anything() -> None:
    torch = pytest.importorskip("torch")
    inner = torch.nn.Linear(2, 2)
    names = {"standing": Standing(), "secretive": Secretive(), "holder": SimpleNamespace(inner=inner)}
    exec("def step(x):\n    return standing, secretive, holder.inner(x)", names)
    assert modules_in(torch, (names["step"],)) == [inner]


def test_a_run_keeps_the_habits_of_its_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circumstances, "load_or_measure", lambda root, threads, machine: {})
    options = ["workers", "channels_last", "autocast", "compile", "matmuls"]
    run, code = run_command(
        [sys.executable, str(PROGRAMS / "habits.py"), *options], Store(tmp_path / "store"), WatchSettings()
    )
    assert code == 0
    kept = run.info.workload
    assert (kept.workers, kept.channels_last, kept.compile) == (1, True, True)
    assert (kept.precision, kept.matmul_precision) == ("bfloat16", "medium")
    assert run.info.target.threads == 1
