"""The optimisation matrix: settings that every framework understands, where they mean nothing, what PyTorch does."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from builders import RunBuilder
from sonda.analysis.rules.code import input
from sonda.analysis.rules.limit_findings import InputBound
from sonda.analysis.run_summary import summarise
from sonda.frameworks.harness.settings import Driving
from sonda.frameworks.torch.drive.steps import TrainingLoop, make_loop
from sonda.record.errors import SondaError
from sonda.targets.adapters.registry import FRAMEWORKS
from sonda.targets.applicability import INAPPLICABLE_IN, drop_inapplicable, inapplicable_settings
from sonda.targets.job import DEFAULTS, Job, check_job, make_job, with_options
from sonda.targets.local.binding import CORES_VARIABLE, binding_variables, bound_threads, choose_cores, confine_process
from sonda.workloads.catalogue import describe


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def job(**settings: Any) -> Job:
    return Job(**{"workload": "cnn", "train": True, "data": "cifar10-like", "workers": 1, **settings})


# ---- words --------------------------------------------------------------------------------------------------------


def test_all_settings_can_be_given_by_a_study_and_by_a_command_line() -> None:
    wanted = {
        "inter_op_threads": 2,
        "bind": "0-1",
        "gpu_private_threads": 2,
        "prefetch": 4,
        "cache": True,
        "pin": False,
    }
    found = make_job({"workload": "cnn", "train": True, "precision": "mixed_bf16", **wanted})
    assert {name: getattr(found, name) for name in wanted} == wanted
    assert found.precision == "mixed_bfloat16"
    words = ["--inter-op-threads", "2", "--bind", "0-1", "--prefetch=4", "--cache", "--pin", "false"]
    changed = with_options(Job(workload="cnn"), words)
    assert (changed.inter_op_threads, changed.prefetch, changed.cache, changed.pin) == (2, 4, True, False)


def test_a_run_keeps_of_seldom_settings_what_was_given() -> None:
    assert set(Job(workload="cnn").settings_record()) == {"train", "precision", "compile", "channels_last", "workers"}
    assert job(prefetch=3).settings_record()["prefetch"] == 3 and "cache" not in job().settings_record()


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"prefetch": -1}, "--prefetch -1 is too small; give 0 or more"),
        ({"seed": -1}, "--seed -1 is too small; give 0 or more"),
        ({"inter_op_threads": 0}, "--inter-op-threads 0 is too small; give 1 or more"),
        ({"bind": "close"}, "--bind 'close' says no cores; known: compact, none, spread. Or a list: 0,2,4-7"),
        ({"precision": "flaot32"}, "unknown precision 'flaot32'; did you mean 'float32'?"),
        ({"precision": "int8"}, "unknown precision 'int8'; known: bfloat16, float16, float32, float64, mixed_bfloat16, "
         "mixed_float16, tf32"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_is_one_line(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(SondaError) as raised:
        check_job(job(**settings))
    assert str(raised.value) == line


# ---- not applicable -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"gpu_private_threads": 2}, "--gpu-private-threads: TensorFlow on a GPU only"),
        ({"pin": True}, "--pin: only a GPU fetches from memory"),
        ({"precision": "tf32"}, "--precision: TF32 is for a GPU, not for cpu"),
        ({"train": False, "cache": True, "workers": 0, "data": ""},
         "--cache: inference is given one batch, which is in memory"),
        ({"cache": True, "data": ""}, "--cache: its data are in memory already; give --data"),
        ({"prefetch": 2, "workers": 0},
         "--prefetch: PyTorch loads ahead in processes that load, and these always do; see --workers"),
        ({"prefetch": 0}, "--prefetch: PyTorch loads ahead in processes that load, and these always do; see --workers"),
        ({"workload": "mlp", "data": "", "channels_last": True}, "--channels-last: mlp has no images"),
        ({"framework": "jax", "workers": 0, "compile": True}, "--compile: JAX compiles anyway"),
        ({"framework": "jax", "workers": 0, "data": "", "prefetch": 2},
         "--prefetch: its data are in memory already; give --data"),
        ({"framework": "pytensor", "workload": "mlp", "workers": 0, "data": "", "precision": "mixed_bfloat16"},
         "--precision: PyTensor computes in float32 or float64"),
        ({"framework": "tensorflow", "channels_last": True},
         "--channels-last: TensorFlow keeps images with channels last anyway"),
        ({"on": "ddp=cpu/1+cpu/1", "prefetch": 2}, "--prefetch: on one device only, not on ddp="),
        ({"epochs": 2, "cache": True}, "--cache: of timed steps, not of a training by epochs"),
    ],
)  # fmt: skip
def test_what_means_nothing_is_said_and_left_out(settings: dict[str, Any], sentence: str) -> None:
    asked = job(**settings)
    plain, notes = drop_inapplicable(asked)
    assert notes == [sentence]
    name = sentence.partition(":")[0][2:].replace("-", "_")
    assert getattr(asked, name) != getattr(plain, name) == DEFAULTS[name]
    assert inapplicable_settings(plain) == {}


def test_of_an_experiment_of_the_model_garden_all_that_it_has_no_use_for_is_said() -> None:
    asked = Job(workload="tf-models:resnet_imagenet", framework="tensorflow", train=True, precision="mixed_bfloat16",
                compile=True, data="cifar10-like", workers=2, prefetch=2, cache=True)  # fmt: skip
    plain, notes = drop_inapplicable(asked)
    given = "an experiment's steps are given one drawn batch, which is in memory"
    assert sorted(notes) == sorted(
        [
            "--precision: the experiment chooses its own",
            *(f"--{name}: {given}" for name in ("data", "workers", "prefetch", "cache")),
        ]
    )
    assert plain == Job(workload=asked.workload, framework="tensorflow", train=True, compile=True)
    on_gpu = Job(workload=asked.workload, framework="tensorflow", on="cuda:0", precision="tf32")
    assert drop_inapplicable(on_gpu) == (on_gpu, [])


def test_what_means_something_is_left_alone() -> None:
    for wanted in (
        job(prefetch=4, cache=True, bind="compact", inter_op_threads=1, precision="mixed_bfloat16", channels_last=True),
        job(on="cuda:0", framework="tensorflow", workers=0, gpu_private_threads=2, precision="mixed_float16"),
        job(on="cuda:0", pin=True, precision="tf32"),
        job(pin=False),
    ):
        assert drop_inapplicable(wanted) == (wanted, [])


def test_every_framework_says_what_it_has_no_use_for_in_words_of_jobs() -> None:
    assert set(INAPPLICABLE_IN) == set(FRAMEWORKS)
    assert all(name in DEFAULTS for reasons in INAPPLICABLE_IN.values() for name in reasons)


# ---- binding ------------------------------------------------------------------------------------------------------


@pytest.fixture
def two_packages(tmp_path: Path) -> Path:
    """Two packages of two cores with two hardware threads each, numbered as Linux does: siblings 0 and 4, 1 and 5, …"""
    for cpu in range(8):
        place = tmp_path / f"cpu{cpu}/topology"
        place.mkdir(parents=True)
        (place / "physical_package_id").write_text(str(cpu % 4 // 2))
        (place / "core_id").write_text(str(cpu % 2))
    return tmp_path


def test_compact_fills_a_core_then_its_neighbours_then_the_next_package(two_packages: Path) -> None:
    assert choose_cores("compact", 8, range(8), two_packages) == (0, 4, 1, 5, 2, 6, 3, 7)
    assert choose_cores("compact", 2, range(8), two_packages) == (0, 4)


def test_spread_takes_turns_between_packages_and_siblings_last(two_packages: Path) -> None:
    assert choose_cores("spread", 8, range(8), two_packages) == (0, 2, 1, 3, 4, 6, 5, 7)
    assert choose_cores("spread", 2, range(8), two_packages) == (0, 2)


def test_without_a_topology_every_processor_is_a_core(tmp_path: Path) -> None:
    assert choose_cores("spread", 2, [3, 5, 7], tmp_path) == choose_cores("compact", 2, [7, 5, 3], tmp_path) == (3, 5)


def test_a_list_is_taken_as_it_is_and_says_how_many_threads(two_packages: Path) -> None:
    assert choose_cores("2,4-5", 3, range(8), two_packages) == (2, 4, 5)
    assert bound_threads(job(bind="2,4-5")) == 3 and bound_threads(job(bind="2,4-5", threads=2)) == 2
    assert bound_threads(job(bind="compact")) is None and choose_cores("none", 3) == ()
    with pytest.raises(SondaError, match=r"this process may not use processor 9; it may use 0,1$"):
        choose_cores("0,9", 2, [0, 1])
    with pytest.raises(SondaError, match="--bind 0 gives 1 processor to 2 threads"):
        choose_cores("0", 2, [0, 1])
    with pytest.raises(SondaError, match="--bind '4-2' says no cores"):
        choose_cores("4-2", 1, range(8))


def test_openmp_is_told_a_place_for_every_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    told = binding_variables((0, 4))
    assert (
        told == {"OMP_PROC_BIND": "true", "OMP_PLACES": "{0},{4}", CORES_VARIABLE: "0,4"}
        and binding_variables(()) == {}
    )
    asked: list[Any] = []
    monkeypatch.setattr("os.sched_setaffinity", lambda process, cores: asked.append((process, tuple(cores))))
    assert confine_process(told) == (0, 4) and asked == [(0, (0, 4))]
    assert confine_process({}) == () and len(asked) == 1


# ---- what PyTorch does --------------------------------------------------------------------------------------------


def stepped(precision: str) -> tuple[Any, TrainingLoop, list[torch.dtype]]:
    """A small network trained for one step; the types of what its dense layers gave."""
    task: Any = describe("mlp", {"batch": "4", "layers": "6-5-3"}).build("torch", True, 0)
    seen: list[torch.dtype] = []
    for layer in task.model.modules():
        if isinstance(layer, torch.nn.Linear):
            layer.register_forward_hook(lambda _module, _inputs, output: seen.append(output.dtype))
    loop: Any = make_loop(task, None, Driving(True, 1, 0, 1.0, precision))  # type: ignore[arg-type]
    loop.step()
    return task.model, loop, seen


@pytest.mark.parametrize(
    ("precision", "weights", "products"),
    [
        ("float32", torch.float32, torch.float32),
        ("bfloat16", torch.bfloat16, torch.bfloat16),
        ("mixed_bfloat16", torch.float32, torch.bfloat16),
        ("mixed_float16", torch.float32, torch.float16),
        ("float64", torch.float64, torch.float64),
    ],
)
def test_mixed_means_weights_in_float32(precision: str, weights: torch.dtype, products: torch.dtype) -> None:
    model, loop, seen = stepped(precision)
    assert {one.dtype for one in model.parameters()} == {weights}
    assert set(seen) == {products}
    assert (loop.scaler is not None) == (precision == "mixed_float16")


def test_a_scaled_loss_gives_the_same_step() -> None:
    """Scaling is by a power of two and undone before the step: only what float16 rounds differs."""
    plain, scaled = stepped("float32")[0], stepped("mixed_float16")[0]
    for one, other in zip(plain.parameters(), scaled.parameters(), strict=True):
        assert torch.allclose(one, other, atol=2e-3)


@pytest.mark.parametrize(
    ("on", "pin", "expected"), [("cpu", None, False), ("cuda:0", None, True), ("cuda:0", False, False)]
)
def test_batches_are_pinned_for_a_gpu_unless_said_otherwise(on: str, pin: bool | None, expected: bool) -> None:
    asked: list[tuple[Any, ...]] = []

    class Task:
        def optimizer(self) -> None:
            return None

        def batches(self, *how: Any) -> Iterator[Any]:
            asked.append(how)
            return iter(())

    TrainingLoop(Task(), Driving(True, 1, 0, 1.0, workers=2, device=on, prefetch=4, pin=pin))  # type: ignore[arg-type]
    assert asked == [(2, expected, 4)]


class Pair(NamedTuple):
    image: torch.Tensor
    about: OrderedDict[str, Any]


def test_inputs_have_the_precision_of_the_model_however_they_are_nested() -> None:
    class Own(torch.nn.Module):
        def forward(self, pair: Pair, more: list[torch.Tensor]) -> Any:
            return pair, more

    given = Pair(torch.ones(2), OrderedDict(scale=torch.ones(2), names=("a", torch.ones(1, dtype=torch.int64))))
    task = SimpleNamespace(model=Own(), loss=None, inputs=(given, [torch.ones(2)]))
    make_loop(task, None, Driving(False, 1, 0, 1.0, "float64"))  # type: ignore[arg-type]
    pair, (more,) = task.inputs
    assert type(pair) is Pair and type(pair.about) is OrderedDict
    assert pair.image.dtype == pair.about["scale"].dtype == more.dtype == torch.float64
    assert pair.about["names"][0] == "a" and pair.about["names"][1].dtype == torch.int64
    assert given.about["scale"].dtype == torch.float32, "what was given is as it was"


# ---- what a verdict offers ----------------------------------------------------------------------------------------


def waiting(**workload: Any) -> Any:
    """A run that Sonda started, 8 ms of whose 20 ms are waiting for data."""
    builder = RunBuilder()
    part = builder.part("train")
    for _ in range(8):
        builder.step(part, 20, {"data": 8, "forward": 12})
    return summarise(builder.run(workload={"name": "cnn", "train": True, "samples": 8, **workload}))


@pytest.mark.parametrize(
    ("workload", "options"),
    [
        ({"framework": "torch", "data": "x"}, [("--workers", "2"), ("--cache",)]),
        ({"framework": "torch", "data": "x", "cache": True, "workers": 1}, [("--workers", "2")]),
        ({"framework": "tensorflow", "data": "x"}, [("--prefetch", "2"), ("--workers", "2"), ("--cache",)]),
        ({"framework": "jax", "data": "x", "prefetch": 2}, [("--cache",)]),
    ],
)
def test_an_input_bound_workload_is_offered_what_its_framework_has(
    workload: dict[str, Any], options: list[tuple[str, ...]]
) -> None:
    verdict = input.rule(waiting(**workload))
    assert verdict is not None and isinstance(verdict.finding, InputBound)
    assert [remedy.options for remedy in verdict.remedies] == options
    assert not inapplicable_settings(with_options(Job(workload="cnn", train=True, **workload), options[0]))


def test_numbers_in_memory_are_nobodys_input() -> None:
    assert input.rule(waiting(framework="torch")) is None
