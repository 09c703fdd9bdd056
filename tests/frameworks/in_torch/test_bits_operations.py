"""Every operation gives the same bits counted and uncounted: counting runs the kernels that the program would run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from observed import PROGRAMS
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.collector.sampling.schedule import Schedule
from sonda.frameworks.torch.observe.counting.dispatch import composite_kernel
from sonda.frameworks.torch.observe.counting.mode_exceptions import OPERATIONS
from sonda.frameworks.torch.observe.observer import TorchObserver

torch = pytest.importorskip("torch")
functional, forward_ad = torch.nn.functional, torch.autograd.forward_ad

SETTINGS = (
    "float32:grad:8", "float32:no_grad:3", "float32:inference_mode:4", "float32:autocast:3", "float64:grad:1",
    "bfloat16:grad:2", "complex64:grad:3", "int64:no_grad:2", "float32:forward_mode:4",
)  # fmt: skip
"""Type of the elements, context, and samples per operation."""


@pytest.mark.slow
def test_every_operation_of_pytorchs_database_gives_the_same_bits_forward_and_backward() -> None:
    command = [sys.executable, str(PROGRAMS / "operator_bits.py"), "0", "1", "cpu", *SETTINGS]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    tables = json.loads(done.stdout.splitlines()[-1])
    for setting, table in tables.items():
        print(setting, {name: table[name] for name in ("operations", "samples", "same", "seen", "left_out")})
        assert not table["different"], (setting, table["different"])
        assert not table["not_reproducible"], (setting, table["not_reproducible"])
        assert table["same"] == table["samples"]
        # The database has 702 entries; integers and complex numbers have fewer.
        assert table["operations"] > (450 if setting.startswith("float") else 300)
        # All that forward mode does is one operation.
        hidden = "forward_mode" in setting and table["seen"] == table["samples"]
        assert hidden or table["seen"] > table["samples"], "operations were counted, not passed by"


class Counting:
    """Counts a block as a phase of an observed program."""

    def __init__(self) -> None:
        self.recorder = Recorder("")
        self.observer = TorchObserver(self.recorder, torch, Schedule(count=False))

    @contextmanager
    def phase(self) -> Iterator[None]:
        with self.observer.count_operations([]):
            with self.observer.phase(self.recorder.stream(), self.observer.phases.codes["forward"]):
                yield

    def seen(self) -> list[str]:
        """Names of the operations that were counted, without views, in the order of their first call."""
        views = (
            "aten.t",
            "aten.view",
            "aten.detach",
            "aten.transpose",
            "aten.unsqueeze",
            "aten.expand",
            "aten.permute",
        )
        names = [fact["name"] for fact in self.recorder._pending if fact.get("kind") == "op"]
        return [name for name in names if name not in views]


@pytest.fixture
def counting() -> Iterator[Counting]:
    counting = Counting()
    counting.observer.install()
    yield counting
    counting.observer.remove()


def same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    first_bits, second_bits = (tensor.reshape(-1).view(torch.uint8) for tensor in (first, second))
    return first.dtype == second.dtype and torch.equal(first_bits, second_bits)


@pytest.mark.parametrize("name", ["silu", "mish"])
def test_a_gradient_with_a_kernel_of_its_own_is_computed_by_it(counting: Counting, name: str) -> None:
    values = torch.linspace(-4, 4, 1001, requires_grad=True)

    def gradient() -> torch.Tensor:
        return torch.autograd.grad(getattr(functional, name)(values).sum(), values)[0]

    bare = gradient()
    with counting.phase():
        counted = gradient()
    assert same_bits(bare, counted)
    assert f"aten.{name}_backward" in counting.seen()


def test_what_arrives_whole_has_the_cost_of_its_definition(counting: Counting) -> None:
    """Per element: s = sigmoid(x) is 4; silu' = s (1 + x (1 - s)) is 4, the gradient's factor 1. With t = tanh(log1p(
    exp(x))), 3, mish' = t + x s (1 - t t) is 4 + 5, the factor 1. A shuffle is a copy."""
    values, gradient = torch.randn(50, 20, requires_grad=True), torch.randn(50, 20)
    with counting.phase():
        torch.autograd.grad(functional.silu(values), values, gradient)
        torch.autograd.grad(functional.mish(values), values, gradient)
        for shuffle in (torch.channel_shuffle, torch.native_channel_shuffle):
            shuffle(torch.randn(1, 10, 10, 10), 2)
    operations = [fact for fact in counting.recorder._pending if fact.get("kind") == "op"]
    costs = {operation["name"]: (operation["flops"], operation["bytes"]) for operation in operations}
    assert costs["aten.silu_backward"] == (9 * 1000, 3 * 4000)
    assert costs["aten.mish_backward"] == (13 * 1000, 3 * 4000)
    assert costs["aten.channel_shuffle"] == costs["aten.native_channel_shuffle"] == (0, 2 * 4000)


def test_what_autograd_would_take_apart_is_taken_apart_without_it_too(counting: Counting) -> None:
    image, weight = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
    rows, table, bias = torch.randn(2, 5, 8), torch.randn(4, 8), torch.randn(4)
    with torch.inference_mode(), counting.phase():
        functional.linear(rows, table, bias)
        functional.conv2d(image, weight)
        torch.einsum("bij,kj->bik", rows, table)
    assert counting.seen() == ["aten.addmm", "aten.convolution", "aten.bmm"]


def test_shuffled_channels_are_the_work_of_their_own_kernel(counting: Counting) -> None:
    image = torch.randn(1, 4, 2, 2)
    bare = functional.channel_shuffle(image, 2)
    for context in (torch.no_grad, torch.inference_mode):
        with context(), counting.phase():
            counted = functional.channel_shuffle(image, 2)
        assert same_bits(bare, counted) and counted.stride() == bare.stride()
    assert "aten.channel_shuffle" in counting.seen()


def tensor_product() -> torch.Tensor:
    return torch.tensordot(MATRIX, MATRIX, dims=1)  # not cast itself: what it calls is


def bilinear() -> torch.Tensor:
    return functional.bilinear(MATRIX, MATRIX, CUBE)  # a kernel that calls operations which are cast


def conjugated() -> torch.Tensor:
    return torch.linalg.multi_dot([COMPLEX.mH, COMPLEX.conj(), COMPLEX]).abs()


MATRIX = torch.linspace(-1, 1, 81).reshape(9, 9).sin()
CUBE = torch.linspace(-1, 1, 729).reshape(9, 9, 9).cos()
COMPLEX = torch.complex(MATRIX, MATRIX.T.contiguous())


@pytest.mark.parametrize("work", [tensor_product, bilinear, conjugated], ids=lambda work: work.__name__)
@pytest.mark.parametrize("context", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_autocast_and_lazy_conjugation_reach_what_a_kernel_calls(
    counting: Counting, work: Callable[[], torch.Tensor], context: Callable
) -> None:
    with torch.autocast("cpu", torch.bfloat16), context():
        bare = work()
        with counting.phase():
            counted = work()
    assert same_bits(bare, counted)


@pytest.mark.parametrize("context", [torch.inference_mode, torch.no_grad])
@pytest.mark.parametrize(
    "work",
    [torch.linalg.svdvals, torch.linalg.eigvalsh, torch.linalg.cond, lambda matrix: torch.linalg.norm(matrix, "nuc")],
    ids=["svdvals", "eigvalsh", "cond", "nuclear"],
)
def test_values_without_vectors_are_computed_without_vectors(
    counting: Counting, work: Callable[[torch.Tensor], torch.Tensor], context: Callable
) -> None:
    matrix = torch.randn(40, 40, generator=torch.Generator().manual_seed(3))
    with context():
        bare = work(matrix)
        with counting.phase():
            counted = work(matrix)
    assert same_bits(bare, counted)


def test_a_products_gradient_is_the_one_without_a_mode(counting: Counting) -> None:
    values = torch.linspace(0.5, 1.5, 1000).requires_grad_()
    bare = torch.autograd.grad(values.prod(), values)[0]
    with counting.phase():
        counted = torch.autograd.grad(values.prod(), values)[0]
        # What comes after is seen again.
        counted.mul(2)
    assert same_bits(bare, counted)
    assert {"autograd.ProdBackward0", "aten.mul"} <= set(counting.seen())


def dual(work: Callable, primal: torch.Tensor, tangent: torch.Tensor) -> tuple:
    with forward_ad.dual_level():
        return tuple(forward_ad.unpack_dual(work(forward_ad.make_dual(primal, tangent))))


def functional_jvp(work: Callable, primal: torch.Tensor, tangent: torch.Tensor) -> tuple:
    return tuple(torch.func.jvp(work, (primal,), (tangent,)))


@pytest.mark.parametrize("differentiate", [dual, functional_jvp])
@pytest.mark.parametrize(
    "work",
    [lambda rows: rows.prod(-1), lambda rows: functional.layer_norm(rows, (20,)),
     lambda rows: functional.batch_norm(rows, None, None, training=True),
     lambda rows: functional.group_norm(rows, 4)],
    ids=["prod", "layer_norm", "batch_norm", "group_norm"],
)  # fmt: skip
def test_forward_mode_is_the_one_without_a_mode(counting: Counting, work: Callable, differentiate: Callable) -> None:
    chance = torch.Generator().manual_seed(5)
    primal, tangent = (torch.randn(30, 20, generator=chance) for _ in range(2))
    bare = differentiate(work, primal, tangent)
    with counting.phase():
        counted = differentiate(work, primal, tangent)
        # What comes after is seen again.
        torch.exp(primal)
    assert all(same_bits(first, second) for first, second in zip(bare, counted, strict=True))
    assert "autograd.forward_mode" in counting.seen(), "so that its FLOPs are said to be missing"
    assert counting.seen()[-1] == "aten.exp"
    assert torch._C._len_torch_dispatch_stack() == 0


def test_a_phase_inside_of_forward_mode_and_one_that_ends_before_it(counting: Counting) -> None:
    values = torch.randn(30, 20)
    bare = dual(lambda rows: functional.layer_norm(rows, (20,)), values, values.cos())
    with forward_ad.dual_level(), counting.phase():
        rows = functional.layer_norm(forward_ad.make_dual(values, values.cos()), (20,))
        assert all(map(same_bits, bare, forward_ad.unpack_dual(rows)))
    assert counting.seen() == ["autograd.forward_mode"]
    with counting.phase():
        level = forward_ad.dual_level()
        level.__enter__()
    level.__exit__(None, None, None)
    assert torch._C._len_torch_dispatch_stack() == 0


@pytest.mark.parametrize("context", [torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_weights_of_labels_that_are_ignored_are_left_out_of_the_sum(
    counting: Counting, smoothing: float, context: Callable
) -> None:
    chance = torch.Generator().manual_seed(2)
    scores, weight = torch.randn(5000, 7, generator=chance), torch.rand(7, generator=chance)
    labels = torch.randint(7, (5000,), generator=chance)
    labels[::3] = -100

    def work() -> list[torch.Tensor]:
        values = scores.clone().requires_grad_()
        loss = functional.cross_entropy(values, labels, weight, label_smoothing=smoothing)
        return [loss.detach(), *(torch.autograd.grad(loss, values) if loss.requires_grad else ())]

    with context():
        bare = work()
        with counting.phase():
            counted = work()
    assert all(same_bits(first, second) for first, second in zip(bare, counted, strict=True))
    assert ("aten.cross_entropy_loss" in counting.seen()) == (smoothing > 0)
    assert ("aten._log_softmax" in counting.seen()) == (smoothing == 0)


def test_what_pytorch_refuses_is_refused_and_counting_goes_on(counting: Counting) -> None:
    values = torch.randn(4, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()
    with counting.phase():
        vectors = torch.linalg.eig(values).eigenvectors
    with counting.observer.count_operations([]), pytest.raises(RuntimeError, match="specified up to multiplication"):
        torch.autograd.grad(vectors.real.sum(), values)
    assert torch._C._len_torch_dispatch_stack() == 0
    with counting.phase():
        torch.exp(values)
    assert counting.seen()[-1] == "aten.exp"


def test_another_mode_of_the_program_sees_what_it_would_see(counting: Counting) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Noting(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            self.names.append(str(func))
            return func(*args, **(kwargs or {}))

    matrix = MATRIX.clone().requires_grad_()

    def work() -> list[str]:
        with Noting() as noting:
            torch.autograd.grad(torch.linalg.svdvals(matrix).sum() + matrix[0].prod(), matrix)
        return noting.names

    bare = work()
    with counting.phase():
        counted = work()
    assert bare == counted


def test_nothing_is_registered_but_inside_of_a_counted_phase(counting: Counting) -> None:
    def registered() -> set[str]:
        known = torch._C._dispatch_has_kernel_for_dispatch_key
        return {name for name in OPERATIONS if known(f"aten::{name}", "PythonTLSSnapshot")}

    forward = counting.observer.phases.codes["forward"]
    with counting.observer.count_operations([]):
        assert not registered(), "before a phase"
        with counting.observer.phase(counting.recorder.stream(), forward):
            torch.einsum("ij,jk->ik", MATRIX, MATRIX)  # taken apart: the mode is entered once more, and left
            assert registered() == set(OPERATIONS)
        assert not registered(), "between two phases"
    assert not registered()


def test_an_operation_that_autocast_casts_calls_others_without_autocast(counting: Counting) -> None:
    """On CUDA autocast has a kernel for bilinear, on a CPU it has none: here one like it is made."""
    casting = torch._C.DispatchKeySet(torch._C._dispatch_key_parse("AutocastCPU"))

    def widest(first, second, weight, bias=None):  # type: ignore[no-untyped-def]
        with torch._C._ExcludeDispatchKeyGuard(casting):
            return torch.ops.aten.bilinear(first, second, weight, bias)

    library = torch.library.Library("aten", "IMPL")
    library.impl("bilinear", widest, "AutocastCPU")
    try:
        with torch.autocast("cpu", torch.bfloat16):
            bare = bilinear()
            with counting.phase():
                counted = bilinear()
    finally:
        library._destroy()
    assert bare.dtype == torch.float32
    assert same_bits(bare, counted)
    assert "aten.bilinear" in counting.seen()


BACKENDS = ("Undefined", "CPU", "CUDA", "XLA", "Meta", "SparseCPU", "SparseCsrCPU", "QuantizedCPU", "MkldnnCPU",
            "NestedTensorCPU", "PrivateUse1")  # fmt: skip


def test_composite_kernels_are_those_of_the_dispatchers_own_table() -> None:
    native = torch._C
    looked_up = composite = 0
    for name in native._dispatch_get_all_op_names():
        if not name.startswith("aten::"):
            continue
        table = dict(re.findall(r"^(\w+): .*\[([^\]]*)\]$", native._dispatch_dump_table(name), re.MULTILINE))
        for backend in set(BACKENDS) & set(table):
            chosen = composite_kernel(native, name, native._dispatch_key_parse(backend))
            assert (chosen is not None) == (table[backend] in ("math kernel", "nested kernel")), (name, backend)
            looked_up += 1
            composite += chosen is not None
    assert looked_up > 10_000 and composite > 3000
