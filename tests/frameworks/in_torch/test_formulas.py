"""Products, convolutions, bytes and unknown operations: counted by hand, and against PyTorch's own counter."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from formulas_cases import CountingMode, cost_of, run_counted
from sonda.frameworks.torch.observe.formulas.cost import CallCost, cost

torch.set_num_threads(1)


A, B = torch.randn(3, 5), torch.randn(5, 7)


@pytest.mark.parametrize(
    ("work", "flops"),
    [
        (lambda: A @ B, 2 * 3 * 5 * 7),
        (lambda: torch.addmm(torch.randn(7), A, B), 2 * 3 * 5 * 7 + 21),
        (lambda: torch.addmm(torch.randn(7), A, B, alpha=2.0), 2 * 3 * 5 * 7 + 2 * 21),
        (lambda: torch.addmm(torch.randn(3, 7), A, B, beta=0.5), 2 * 3 * 5 * 7 + 2 * 21),
        (lambda: torch.addmm(torch.randn(3, 7), A, B, beta=0), 2 * 3 * 5 * 7),
        (lambda: torch.bmm(torch.randn(4, 3, 5), torch.randn(4, 5, 7)), 2 * 4 * 3 * 5 * 7),
        (lambda: torch.baddbmm(torch.randn(4, 3, 7), torch.randn(4, 3, 5), torch.randn(4, 5, 7)), 840 + 84),
        (lambda: torch.addbmm(torch.randn(3, 7), torch.randn(4, 3, 5), torch.randn(4, 5, 7)), 840 + 21),
        (lambda: A @ torch.randn(5), 2 * 3 * 5),
        (lambda: torch.addmv(torch.randn(3), A, torch.randn(5)), 2 * 3 * 5 + 3),
        (lambda: torch.randn(5) @ torch.randn(5), 2 * 5),
        (lambda: torch.randn(2, 4, 3, 5) @ B, 2 * 2 * 4 * 3 * 5 * 7),
        (lambda: F.linear(torch.randn(2, 3, 5), torch.randn(7, 5), torch.randn(7)), 2 * 6 * 5 * 7 + 42),
        (lambda: torch.einsum("bij,bkj->bik", torch.randn(2, 3, 4), torch.randn(2, 6, 4)), 2 * 2 * 3 * 6 * 4),
    ],
)
def test_products(work: Callable[[], Any], flops: int) -> None:
    assert run_counted(work)[1].flops == flops


def test_a_sparse_operand_multiplies_what_it_holds() -> None:
    """4 values in a matrix of 5 x 6, times 6 x 7: each meets 7 columns; transposed from the right, 3 rows."""
    indices = torch.tensor([[0, 1, 2, 4], [1, 3, 5, 0]])
    sparse = torch.sparse_coo_tensor(indices, torch.ones(4), (5, 6), check_invariants=True).coalesce()
    dense = torch.randn(6, 7, requires_grad=True)
    mode = CountingMode()
    with mode:
        torch.sparse.mm(sparse, dense).sum().backward()
    products = [spent.flops for name, spent in mode.operations if name in ("aten._sparse_addmm", "aten.mm")]
    assert products == [2 * 4 * 7, 2 * 4 * 7]
    left = cost("aten.mm", (torch.randn(3, 5), sparse), {}, torch.randn(3, 6))
    assert left.flops == 2 * 4 * 3
    assert cost("aten.mm", (sparse, sparse.t()), {}, torch.randn(5, 5)).flops is None


def test_linear_layer_forward_and_backward() -> None:
    layer, batch = nn.Linear(5, 7), torch.randn(3, 5, requires_grad=True)
    _, mode = run_counted(lambda: layer(batch).sum().backward())
    # forward with bias; the loss's sum; gradients of input and weight; of the bias a sum over rows
    assert mode.flops == (2 * 3 * 5 * 7 + 21) + 21 + 2 * (2 * 3 * 5 * 7) + 21


@pytest.mark.parametrize(
    ("layer", "image", "macs", "outputs"),
    [
        (nn.Conv2d(3, 8, 3), (2, 3, 10, 12), 2 * 8 * 8 * 10 * 3 * 9, 2 * 8 * 8 * 10),
        (nn.Conv2d(4, 8, 3, groups=2), (1, 4, 6, 6), 8 * 4 * 4 * 2 * 9, 8 * 4 * 4),
        (nn.Conv2d(4, 4, 3, groups=4, padding=1), (1, 4, 6, 6), 4 * 36 * 9, 4 * 36),
        (nn.Conv2d(3, 5, (3, 2), stride=2, dilation=(2, 1)), (1, 3, 11, 8), 5 * 4 * 4 * 3 * 6, 5 * 4 * 4),
        (nn.Conv1d(3, 6, 4), (2, 3, 9), 2 * 6 * 6 * 3 * 4, 2 * 6 * 6),
        (nn.Conv3d(2, 3, 2), (1, 2, 4, 5, 6), 3 * 3 * 4 * 5 * 2 * 8, 3 * 3 * 4 * 5),
        (nn.ConvTranspose2d(3, 4, 3, stride=2), (1, 3, 5, 5), 25 * 3 * 4 * 9, 4 * 11 * 11),
        (nn.ConvTranspose2d(4, 6, 2, groups=2), (2, 4, 3, 3), 2 * 9 * 4 * 3 * 4, 2 * 6 * 4 * 4),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_convolution(layer: nn.Module, image: tuple[int, ...], macs: int, outputs: int, bias: bool) -> None:
    if not bias:
        layer.register_parameter("bias", None)
    elif layer.bias is None:
        layer.bias = nn.Parameter(torch.zeros(layer.out_channels))
    batch = torch.randn(image, requires_grad=True)
    _, forward = run_counted(lambda: layer(batch))
    assert forward.flops == 2 * macs + (outputs if bias else 0)
    result = layer(batch)
    assert result.numel() == outputs
    _, backward = run_counted(lambda: torch.autograd.grad(result.sum(), [batch, *layer.parameters()]))
    (entry,) = backward.costs_of("aten.convolution_backward")
    assert entry.flops == 4 * macs + (outputs if bias else 0)


def test_convolution_backward_computes_only_what_its_mask_asks() -> None:
    layer, image = nn.Conv2d(3, 8, 3), torch.randn(1, 3, 6, 6)
    _, mode = run_counted(lambda: layer(image).sum().backward())
    macs, outputs = 8 * 16 * 27, 8 * 16
    (entry,) = mode.costs_of("aten.convolution_backward")
    assert entry.flops == 2 * macs + outputs
    # reads the gradient (one number, broadcast) and the image, not the weight; writes both gradients
    assert entry.bytes == 4 * (1 + 3 * 36) + 4 * (8 * 27 + 8)


@pytest.mark.parametrize(("groups", "backward"), [(1, True), (4, False)])
def test_products_agree_with_pytorchs_own_counter(groups: int, backward: bool) -> None:
    # Its weight gradient of a grouped convolution is `groups` times too high, so that is compared in forward only.
    from torch.utils.flop_counter import FlopCounterMode

    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, bias=False),
        nn.Conv2d(8, 8, 3, groups=groups, padding=1, bias=False),
        nn.ConvTranspose2d(8, 4, 2, bias=False),
        nn.Flatten(),
        nn.Linear(4 * 8 * 8, 10, bias=False),
    )
    batch = torch.randn(2, 3, 15, 15, requires_grad=True)

    def work() -> None:
        loss = model(batch).sum()
        if backward:
            loss.backward()

    with FlopCounterMode(display=False) as second:
        work()
    _, mode = run_counted(work)
    products = ("aten.mm", "aten.convolution", "aten.convolution_backward")
    assert sum(entry.flops or 0 for name, entry in mode.operations if name in products) == second.get_total_flops() > 0


def resnet50_convolutions() -> list[tuple[int, int, int, int, int]]:
    """(in, out, kernel, stride, image size) of ResNet-50's convolutions at 224 x 224, stride in the 3 x 3 (v1.5)."""
    layers = [(3, 64, 7, 2, 224)]
    channels, size = 64, 56
    for width, blocks, first_stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            layers.append((channels, width, 1, 1, size))
            layers.append((width, width, 3, stride, size))
            layers.append((width, 4 * width, 1, 1, size // stride))
            if block == 0:
                layers.append((channels, 4 * width, 1, stride, size))
            channels, size = 4 * width, size // stride
    return layers


def test_resnet50_has_the_published_multiply_adds() -> None:
    flops = 0
    for inputs, outputs, kernel, stride, size in resnet50_convolutions():
        # Meta tensors: shapes without computing.
        image = torch.empty(1, inputs, size, size, device="meta")
        weight = torch.empty(outputs, inputs, kernel, kernel, device="meta")
        flops += run_counted(lambda i=image, w=weight, s=stride, k=kernel: F.conv2d(i, w, None, s, k // 2))[1].flops
    flops += run_counted(lambda: torch.empty(1, 2048, device="meta") @ torch.empty(2048, 1000, device="meta"))[1].flops
    assert flops == 2 * 4_089_184_256


def test_bytes_read_each_input_once_and_write_the_output() -> None:
    assert cost_of(lambda: A @ B, "aten.mm").bytes == 4 * (15 + 35 + 21)
    assert cost_of(lambda: A + A, "aten.add").bytes == 4 * (15 + 15)
    assert cost_of(lambda: A @ A.t(), "aten.mm").bytes == 4 * (15 + 9)
    assert cost_of(lambda: A * torch.ones(5).expand(3, 5), "aten.mul").bytes == 4 * (15 + 5 + 15)
    assert cost_of(lambda: A[:, :2] + 1, "aten.add").bytes == 4 * (6 + 6)
    assert cost_of(lambda: A.double(), "aten._to_copy").bytes == 15 * (4 + 8)
    assert cost_of(lambda: torch.cat([A, A * 2]), "aten.cat").bytes == 4 * (30 + 30)
    assert cost_of(lambda: torch.mm(A, B, out=torch.empty(3, 7)), "aten.mm").bytes == 4 * (15 + 35 + 21)


def test_bytes_of_overlapping_windows_are_the_memory_under_them() -> None:
    line = torch.randn(10)
    assert cost_of(lambda: line.unfold(0, 4, 1) * 2, "aten.mul").bytes == 4 * (10 + 28)


def test_bytes_in_place() -> None:
    target = torch.zeros(10)
    assert cost_of(lambda: target.add_(1), "aten.add_").bytes == 4 * (10 + 10)
    assert cost_of(lambda: target.add_(torch.ones(10)), "aten.add_").bytes == 4 * (10 + 10 + 10)
    assert cost_of(lambda: target.copy_(torch.ones(10)), "aten.copy_").bytes == 4 * (10 + 10)
    assert cost_of(lambda: target.zero_(), "aten.zero_").bytes == 4 * 10
    assert cost_of(lambda: torch.zeros_like(target), "aten.zeros_like").bytes == 4 * 10


def test_bytes_of_lookups_are_the_rows_that_are_looked_up() -> None:
    table, rows = torch.randn(1000, 4), torch.tensor([1, 5, 7])
    looked_up = 3 * 8 + 3 * 4 * 4 * 2
    assert cost_of(lambda: F.embedding(rows, table), "aten.embedding") == CallCost(0, looked_up, True)
    assert cost_of(lambda: table[rows], "aten.index") == CallCost(0, looked_up, True)
    assert cost_of(lambda: table.index_select(0, rows), "aten.index_select") == CallCost(0, looked_up, True)
    index = rows[:, None]
    assert cost_of(lambda: table.gather(0, index), "aten.gather") == CallCost(0, 3 * 8 + 3 * 4 * 2, True)


def test_scattered_sums() -> None:
    table, rows, values = torch.zeros(1000, 4), torch.tensor([1, 5, 7]), torch.randn(3, 4)
    touched = 3 * 8 + 48 + 2 * 48  # indices, values, and the rows read and written
    assert cost_of(lambda: table.index_add_(0, rows, values), "aten.index_add_") == CallCost(12, touched, True)
    added = cost_of(lambda: table.index_put_((rows,), values, accumulate=True), "aten.index_put_")
    assert added == CallCost(12, touched, True)
    assert cost_of(lambda: table.index_put_((rows,), values), "aten.index_put_") == CallCost(0, touched - 48, True)
    mask = torch.arange(1000) % 100 == 0
    masked = cost_of(lambda: table.index_put_((mask,), torch.ones(()), accumulate=True), "aten.index_put_")
    assert masked == CallCost(10 * 4, 1000 + 4 + 2 * 160, True)
    # two indices of shapes (3, 1) and (2) select a 3 x 2 block
    block = cost_of(
        lambda: table.index_put_((rows[:, None], rows[:2] // 5), torch.ones(()), accumulate=True), "aten.index_put_"
    )
    assert block == CallCost(6, 3 * 8 + 2 * 8 + 4 + 2 * 24, True)
    # a dimension that is not indexed comes whole
    put = torch.ops.aten.index_put_
    column = cost_of(lambda: put(table, [None, rows[:1]], torch.ones(()), accumulate=True), "aten.index_put_")
    assert column == CallCost(1000, 8 + 4 + 2 * 4000, True)
    index = rows[:, None].repeat(1, 4)
    assert cost_of(lambda: table.scatter_add_(0, index, values), "aten.scatter_add_") == CallCost(
        12, 96 + 48 + 96, True
    )
    # Not in place the whole table is copied.
    assert cost_of(lambda: table.index_add(0, rows, values), "aten.index_add").bytes == 24 + 48 + 2 * 16000


@pytest.mark.parametrize(
    "work",
    [
        lambda: A.t(),
        lambda: A.view(-1),
        lambda: A.unsqueeze(0).expand(4, 3, 5)[1:].transpose(0, 1),
        lambda: A.detach(),
        lambda: A.split(2),
        lambda: torch.as_strided(A, (2, 2), (1, 2)),
        lambda: torch.empty(5),
        lambda: A.chunk(2, dim=1),
    ],
)
def test_views_and_allocation_cost_nothing(work: Callable[[], Any]) -> None:
    _, mode = run_counted(work)
    assert mode.operations
    assert all(entry == CallCost(0, 0, True) for _, entry in mode.operations), mode.operations


def test_what_has_no_formula_is_unknown_and_its_bytes_are_not() -> None:
    square = torch.eye(4)
    assert cost_of(lambda: torch.linalg.inv_ex(square), "aten.linalg_inv_ex")[::2] == (None, False)
    assert cost_of(lambda: torch.linalg.inv_ex(square), "aten.linalg_inv_ex").bytes == 4 * (16 + 16 + 1)
    assert cost("mine.op", (square,), {}, square + 1) == CallCost(None, 4 * 32, False)


def test_complex_and_quantised_arithmetic_is_unknown_but_copies_are_not() -> None:
    signal = torch.randn(4, dtype=torch.complex64)
    assert cost_of(lambda: signal * signal, "aten.mul") == CallCost(None, 64, False)
    assert cost_of(lambda: signal.clone(), "aten.clone") == CallCost(0, 64, True)
    with pytest.warns(UserWarning, match="deprecated"):
        quantised = torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.quint8)
    assert cost("aten.mul", (quantised, 2.0), {}, quantised) == CallCost(0, 0, True)  # shares memory: a view
    assert cost("aten.mul", (quantised, 2.0), {}, quantised.clone()) == CallCost(None, 8, False)


def test_integers_do_no_floating_point_work() -> None:
    whole = torch.arange(6)
    assert run_counted(lambda: (whole + 1) * 2 - whole.sum())[1].flops == 0
    assert cost_of(lambda: whole[:, None] @ whole[None], "aten.mm").flops is None


def test_cost_never_raises() -> None:
    class Broken:
        element_size = None
        shape = None

    assert cost("aten.mm", (Broken(), None), {}, Broken()) == CallCost(None, None, False)
    assert cost("aten.convolution", (), {}, None).known is False


def test_loads_without_sonda_and_with_the_standard_library_only() -> None:
    folder = Path(sys.modules["sonda.frameworks.torch.observe.formulas.cost"].__file__ or "").parents[1]
    program = f"""
import sys, types
package = types.ModuleType("loose"); package.__path__ = [{str(folder)!r}]; sys.modules["loose"] = package
import loose.formulas.cost, loose.counting.memory
foreign = {{name.partition(".")[0] for name in sys.modules}} & {{"torch", "numpy", "sonda"}}
assert not foreign, foreign
"""
    subprocess.run([sys.executable, "-I", "-c", program], check=True)
