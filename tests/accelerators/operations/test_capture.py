"""Capture: nothing is missed, nothing is changed, fused operations are what they are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from sonda.accelerators.operations.capture import Capture, capture
from sonda.accelerators.operations.products import FUSED
from sonda.accelerators.operations.program import Bags, ConvolutionShape, MatrixProduct, ModelProgram, Operation
from sonda.record.errors import SondaError
from sonda.targets.simulated.program import program_from_description
from sonda.workloads.catalogue import describe

torch.set_num_threads(1)
ALL = frozenset({"linear", "gemm", "convolution", "attention"})
SMALL: dict[str, dict[str, str]] = {
    "resnet18": {"batch": "1", "image": "32x32"},
    "dlrm": {"batch": "8"},
    "transformer": {"layers": "2", "width": "32", "length": "8", "generate": "3", "vocabulary": "50"},
    "lstm": {"layers": "2", "hidden": "12", "length": "5", "features": "6"},
}


def unmarked(name: str) -> AbstractContextManager[None]:
    return nullcontext()


def of_workload(name: str, options: dict[str, str], patterns: frozenset[str] = frozenset()) -> Capture:
    task = describe(name, options).build("torch", False, 0)
    return capture(task.model, task.infer, patterns)


def of_module(module: nn.Module, *inputs: Any, patterns: frozenset[str] = frozenset()) -> Capture:
    module.eval()

    def step(mark: Callable[[str], Any]) -> Any:
        with torch.no_grad():
            return module(*inputs)

    return capture(module, step, patterns)


def shapes(program: ModelProgram) -> list[Any]:
    return [one.shape for one in program.operations]


# ---- outputs stay what they are -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("patterns", [frozenset(), ALL], ids=["shapes", "zeros"])
def test_outputs_are_bit_equal_with_and_without_capture(name: str, patterns: frozenset[str]) -> None:
    task = describe(name, SMALL[name]).build("torch", False, 0)
    plain = task.infer(unmarked)
    assert torch.equal(capture(task.model, task.infer, patterns).output, plain)
    assert torch.equal(task.infer(unmarked), plain)


def test_what_was_switched_off_is_on_again_also_after_an_error() -> None:
    class Failing(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            assert not torch.backends.mha.get_fastpath_enabled()
            raise ValueError("on purpose")

    hooks = torch.nn.modules.module._global_forward_pre_hooks
    before = len(hooks)
    with pytest.raises(ValueError, match="on purpose"):
        of_module(Failing(), torch.ones(1))
    assert torch.backends.mha.get_fastpath_enabled()
    assert len(hooks) == before


# ---- nothing is missed --------------------------------------------------------------------------------------------


def test_resnet50_has_54_layers_and_its_known_multiplications() -> None:
    program = of_workload("resnet50", {"batch": "1", "image": "224x224"}).program
    kinds = Counter(one.kind for one in program.operations)
    assert kinds == {"convolution": 53, "linear": 1}
    assert sum(one.shape.multiplications for one in program.operations) == 4_089_184_256
    others: Counter[str] = Counter()
    for (_, name), count in program.others.items():
        others[name] += count
    # A normalisation after every convolution; a ReLU after the stem and after each of 3 convolutions in 16 blocks.
    assert others["_native_batch_norm_legit_no_training"] == 53
    assert others["relu"] == 1 + 3 * 16
    assert others["add"] == 16


def test_paths_calls_and_order() -> None:
    program = of_workload("mlp", {"layers": "6-5-4", "batch": "3"}).program
    assert [program.path(one) for one in program.operations] == ["0", "2"]
    assert shapes(program) == [MatrixProduct(3, 5, 6), MatrixProduct(3, 4, 5)]
    assert [(call.path, call.name, call.first) for call in program.calls] == [
        ("", "PerceptronNet", 0), ("0", "Linear", 0), ("1", "Sigmoid", 1), ("2", "Linear", 1), ("3", "Softmax", 2),
    ]  # fmt: skip


def test_calls_of_one_module_are_numbered_and_phases_named() -> None:
    program = of_workload("transformer", SMALL["transformer"]).program
    models = [call for call in program.calls if call.path == ""]
    # One call for the prompt, three for new tokens.
    assert [(call.number, call.phase) for call in models] == [(0, "prefill")] + [(n, "decode") for n in (1, 2, 3)]
    per_call = Counter(program.phases)
    assert per_call["decode"] == 3 * per_call["prefill"]


def test_a_mixture_of_experts_runs_only_the_experts_that_are_asked() -> None:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            chosen = inputs[:, 0].long()
            return torch.cat([expert(inputs[chosen == number]) for number, expert in enumerate(self.experts)])

    inputs = torch.tensor([[0.0, 1, 1, 1], [2.0, 1, 1, 1], [2.0, 1, 1, 1]])
    program = of_module(Experts(), inputs).program
    assert [(program.path(one), one.shape) for one in program.operations] == [
        ("experts.0", MatrixProduct(1, 4, 4)),
        ("experts.2", MatrixProduct(2, 4, 4)),
    ]
    # The expert without inputs is there too, by name.
    assert sum(count for (_, name), count in program.others.items() if name == "addmm") == 1


def test_products_of_activations_are_not_linear_layers() -> None:
    class Gram(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return torch.einsum("bij,bkj->bik", inputs, inputs) @ torch.ones(5)

    program = of_module(Gram(), torch.randn(2, 5, 3)).program
    assert [(one.kind, one.shape) for one in program.operations] == [
        ("gemm", MatrixProduct(5, 5, 3, count=2)),
        ("gemm", MatrixProduct(10, 1, 5)),
    ]


def test_composed_operations_are_taken_apart_under_inference_mode() -> None:
    class Inferring(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 6)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            with torch.inference_mode():
                return self.layer(inputs)

    program = of_module(Inferring(), torch.randn(4, 8)).program
    assert [(one.kind, one.shape) for one in program.operations] == [("linear", MatrixProduct(4, 6, 8))]


# ---- fused operations are what they are made of -------------------------------------------------------------------


def without_names(program: ModelProgram) -> list[tuple[str, Any]]:
    return [(one.kind, one.shape) for one in program.operations]


def same_zeros(a: Operation, b: Operation) -> bool:
    pairs = [(a.inputs, b.inputs), (a.weights, b.weights)]
    return all(x is not None and y is not None and np.array_equal(x.bits(), y.bits()) for x, y in pairs)


def test_fused_attention_is_the_two_products_of_the_plain_one() -> None:
    fused = of_workload("transformer", SMALL["transformer"], ALL).program
    assert any("flash" in one.name for one in fused.operations)
    with sdpa_kernel(SDPBackend.MATH):
        plain = of_workload("transformer", SMALL["transformer"], ALL).program
    assert {one.name for one in plain.operations} == {"addmm", "mm", "bmm"}
    assert without_names(fused) == without_names(plain)
    assert all(same_zeros(a, b) for a, b in zip(fused.operations, plain.operations, strict=True))


def test_the_zeros_of_a_causal_mask_are_seen() -> None:
    program = of_workload("transformer", SMALL["transformer"], ALL).program
    scores, values = [one for one in program.operations if one.kind == "attention"][:2]
    assert isinstance(values.shape, MatrixProduct)
    length, count = 8, values.shape.count
    assert values.inputs is not None
    assert scores.shape == MatrixProduct(length, length, 8, count)
    assert values.inputs.zeros == count * length * (length - 1) // 2


@pytest.mark.parametrize("fused", [name for name in FUSED if name.startswith("_scaled")])
def test_every_fused_attention_is_read_by_the_names_of_its_arguments(fused: str) -> None:
    # Those of a GPU are not run: what they are given is known from their schema, and their zeros from the mask.
    function = getattr(torch.ops.aten, fused).default
    names = [one.name for one in function._schema.arguments]
    query = torch.randn(1, 2, 4, 8)
    first_only = torch.zeros(1, 2, 4, 4).index_fill(3, torch.arange(1, 4), float("-inf"))
    for causal, mask, expected in ((True, None, 2 * 10), (False, None, 2 * 16), (False, first_only, 2 * 4)):
        given = {"dropout_p": 0.0, "is_causal": causal, "attn_bias": mask, "compute_log_sumexp": not causal}
        if mask is not None and not {"attn_bias", "attn_mask"} & set(names):
            continue
        known = [one.name for one in function._schema.arguments[3:] if not one.kwarg_only]
        by_name = {"attn_mask": mask} if "attn_mask" in names else {}
        found = FUSED[fused](None, function, [query] * 3 + [given.get(name) for name in known], by_name, None)
        assert found is not None and found[1].operands is not None
        assert int((found[1].operands()[0] != 0).sum()) == expected


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_a_fused_recurrent_layer_is_the_products_of_the_plain_one(both_ways: bool, batch_first: bool) -> None:
    torch.manual_seed(0)
    module = nn.LSTM(6, 4, 2, bidirectional=both_ways, batch_first=batch_first)
    inputs = torch.relu(torch.randn(3, 5, 6))
    fused = of_module(module, inputs, patterns=ALL).program
    assert {one.name for one in fused.operations} == {"mkldnn_rnn_layer"}
    with torch.backends.mkldnn.flags(enabled=False):
        plain = of_module(module, inputs, patterns=ALL).program
    assert {one.name for one in plain.operations} <= {"addmm", "mm"}
    assert without_names(fused) == without_names(plain)
    assert all(same_zeros(a, b) for a, b in zip(fused.operations, plain.operations, strict=True))


def test_an_encoder_layer_is_six_products_whatever_path_it_takes() -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2).eval()
    found = of_module(encoder, torch.randn(2, 6, 16))
    layer = [
        ("linear", MatrixProduct(12, 48, 16)),
        ("attention", MatrixProduct(6, 6, 4, count=8)),
        ("attention", MatrixProduct(6, 4, 6, count=8)),
        ("linear", MatrixProduct(12, 16, 16)),
        ("linear", MatrixProduct(12, 32, 16)),
        ("linear", MatrixProduct(12, 16, 32)),
    ]
    assert without_names(found.program) == 2 * layer


# ---- convolutions and bags ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "size", "expected"),
    [
        (nn.Conv2d(4, 6, 3, (1, 2), 1, 2, bias=False), (2, 4, 9, 9),
         ConvolutionShape(3, 3, 4, 6, 1, 2, 9, 9, (1, 2), (1, 1), (2, 2))),
        (nn.Conv1d(4, 6, 3, 2, 1, groups=2), (2, 4, 11), ConvolutionShape(1, 3, 4, 6, 2, 2, 1, 11, (1, 2), (0, 1))),
        # 2 groups; outputs of 11, 9 and 10 with padding 1, taps 2 apart and stride 2 are 5, 4 and 4.
        (nn.Conv3d(4, 6, 3, 2, 1, 2, groups=2), (2, 4, 11, 9, 10), MatrixProduct(2 * 5 * 4 * 4, 3, 2 * 27, 2)),
        (nn.ConvTranspose2d(4, 6, 3, 2, groups=2), (2, 4, 5, 7), MatrixProduct(2 * 35, 3 * 9, 2, 2)),
    ],
)  # fmt: skip
def test_convolutions_of_every_sort(module: nn.Module, size: tuple[int, ...], expected: Any) -> None:
    program = of_module(module, torch.randn(size)).program
    assert without_names(program) == [("convolution", expected)]


def test_zeros_of_a_convolution_in_three_dimensions_are_those_of_its_windows() -> None:
    module = nn.Conv3d(1, 1, 2, bias=False)
    inputs = torch.zeros(1, 1, 3, 3, 3)
    inputs[0, 0, 1, 1, 1] = 1.0  # the middle is in all 8 windows, once in each
    (operation,) = of_module(module, inputs, patterns=ALL).program.operations
    assert operation.inputs is not None
    assert operation.inputs.bits().sum(axis=-1).tolist() == [[1] * 8]


def test_bags_leave_out_the_padding_row() -> None:
    bag = nn.EmbeddingBag(20, 4, mode="mean", padding_idx=3)
    program = of_module(bag, torch.tensor([1, 3, 3, 4, 5]), torch.tensor([0, 2, 4])).program
    (operation,) = program.operations
    assert isinstance(operation.shape, Bags)
    assert operation.shape.sizes.tolist() == [1, 1, 1]
    assert operation.shape.indices.tolist() == [1, 4, 5]


@pytest.mark.parametrize("padding, sizes, rows", [(None, [2, 1], [1, 2, 3]), (2, [1, 1], [1, 3])])
def test_rows_behind_the_last_end_are_in_no_bag(padding: int | None, sizes: list[int], rows: list[int]) -> None:
    bag = nn.EmbeddingBag(20, 4, mode="sum", include_last_offset=True, padding_idx=padding)
    program = of_module(bag, torch.tensor([1, 2, 3, 9]), torch.tensor([0, 2, 3])).program
    (operation,) = program.operations
    assert isinstance(operation.shape, Bags)
    assert (operation.shape.sizes.tolist(), operation.shape.indices.tolist()) == (sizes, rows)


def test_the_largest_of_a_bag_is_no_sum() -> None:
    program = of_module(nn.EmbeddingBag(20, 4, mode="max"), torch.randint(20, (3, 4))).program
    assert program.operations == ()
    assert any(name == "_embedding_bag" for _, name in program.others)


# ---- zeros --------------------------------------------------------------------------------------------------------


def test_zeros_of_weights_and_inputs_are_the_real_ones() -> None:
    layer = nn.Linear(4, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0, 1, 0, 1], [1, 1, 1, 1], [0, 0, 0, 2]]))
    (operation,) = of_module(layer, torch.tensor([[0.0, 5, 0, 0]]), patterns=frozenset({"linear"})).program.operations
    assert operation.inputs is not None
    assert operation.weights is not None
    assert operation.inputs.bits().astype(int).tolist() == [[[0, 1, 0, 0]]]
    assert operation.weights.bits().astype(int).tolist() == [[[0, 1, 0, 1], [1, 1, 1, 1], [0, 0, 0, 1]]]


def test_zeros_are_kept_for_the_kinds_that_were_asked_for_only() -> None:
    module = nn.Sequential(nn.Conv2d(1, 1, 1), nn.Flatten(), nn.Linear(4, 2))
    convolution, linear = of_module(module, torch.ones(1, 1, 2, 2), patterns=frozenset({"linear"})).program.operations
    assert convolution.inputs is None
    assert linear.inputs is not None


def test_nan_weights_are_refused_by_name_and_infinite_ones_are_not() -> None:
    module = nn.Sequential(nn.Linear(4, 3))
    with torch.no_grad():
        module[0].weight[0, 0], module[0].weight[0, 1] = float("inf"), -float("inf")
    assert len(of_module(module, torch.ones(1, 4)).program.operations) == 1
    with torch.no_grad():
        module[0].weight[0, 2] = float("nan")
    for patterns in (frozenset(), frozenset({"linear"})):
        with pytest.raises(SondaError, match=r"^0\.weight has NaN"):
            of_module(module, torch.ones(1, 4), patterns=patterns)


def test_nan_inputs_are_refused_where_zeros_count() -> None:
    module, inputs = nn.Sequential(nn.Linear(4, 3)), torch.full((1, 4), float("nan"))
    assert len(of_module(module, inputs).program.operations) == 1
    with pytest.raises(SondaError, match=r"0: addmm has NaN"):
        of_module(module, inputs, patterns=frozenset({"linear"}))


def test_a_model_that_hides_its_operations_is_told_in_one_line() -> None:
    class Choosing(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return torch.cond(inputs.sum() > 0, lambda x: x @ x.T, lambda x: x.T @ x, (inputs,))

    with pytest.raises(SondaError, match="the model cannot be captured: cond needs PyTorch's compiler"):
        of_module(Choosing(), torch.ones(2, 2))


# ---- from the description alone -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"batch": "8"},
        {"batch": "3", "arch-interaction-op": "cat"},
        {"batch": "4", "arch-interaction-itself": "true", "loss-threshold": "0.1"},
        {"mini-batch-size": "4", "data-size": "3", "arch-embedding-size": "50-60", "arch-sparse-feature-size": "4",
         "arch-mlp-bot": "6-8-4", "arch-mlp-top": "5-1", "num-indices-per-lookup-fixed": "true"},
    ],
)  # fmt: skip
def test_dlrm_from_its_description_is_the_captured_one(options: dict[str, str]) -> None:
    workload = describe("dlrm", options)
    described = program_from_description(workload)
    captured = of_workload("dlrm", options).program
    assert described is not None
    assert described.calls == captured.calls
    assert described.phases == captured.phases
    assert described.others == captured.others
    for mine, its in zip(described.operations, captured.operations, strict=True):
        assert (mine.kind, mine.name, mine.caller) == (its.kind, its.name, its.caller)
        if isinstance(mine.shape, Bags) and isinstance(its.shape, Bags):
            assert (mine.shape.rows, mine.shape.columns) == (its.shape.rows, its.shape.columns)
            assert mine.shape.sizes.tolist() == its.shape.sizes.tolist()
            assert mine.shape.indices.tolist() == its.shape.indices.tolist()
        else:
            assert mine.shape == its.shape


def test_other_workloads_have_no_such_description() -> None:
    assert program_from_description(describe("mlp", {})) is None
