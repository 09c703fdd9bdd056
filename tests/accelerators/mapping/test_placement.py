"""Placement: known cycles of known layers, hand-counted tiles, mappings that fit, zeros that reach the engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from sonda.accelerators.description.accelerator import Accelerator, load_accelerator
from sonda.accelerators.description.engine import EngineDescription
from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines.result import repeat_result, sum_results
from sonda.accelerators.mapping import rules as mapping
from sonda.accelerators.mapping.placement import OnHost, Placed, Placement
from sonda.accelerators.operations.matrices import unfold
from sonda.accelerators.operations.program import (
    Bags,
    ConvolutionShape,
    MatrixProduct,
    ModelProgram,
    Operation,
    ZeroPattern,
)
from sonda.record.errors import SondaError
from sonda.targets.simulated.program import program_from_description
from sonda.workloads.catalogue import describe

DENSE = np.ones


def placed(name: str, operation: Operation) -> Placed:
    found = Placement(load_accelerator(name)).place_operation(operation)
    assert isinstance(found, Placed)
    assert sum(found.result.stack.values()) == found.result.cycles
    return found


def linear(m: int, n: int, k: int, count: int = 1) -> Operation:
    return Operation("linear", "addmm", -1, MatrixProduct(m, n, k, count))


def with_zeros(inputs: np.ndarray, weights: np.ndarray) -> Operation:
    m, k = inputs.shape
    patterns = ZeroPattern.from_array(inputs[None] != 0), ZeroPattern.from_array(weights[None] != 0)
    return Operation("linear", "addmm", -1, MatrixProduct(m, len(weights), k), *patterns)


def lookups(sizes: list[int], rows: int, columns: int) -> Operation:
    indices = np.concatenate([np.sort(np.random.RandomState(size).permutation(rows)[:size]) for size in sizes])
    return Operation("embedding_bag", "_embedding_bag", -1, Bags(np.array(sizes), indices, rows, columns))


# ---- known cycles -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("m", "n", "k", "tile", "cycles"),
    [
        (20, 64, 128, (1, 64, 4), 1356), (80, 64, 128, (1, 64, 4), 5196),
        (20, 64, 64, (1, 64, 4), 684), (80, 64, 64, (1, 64, 4), 2604),
        (20, 32, 64, (1, 32, 8), 348), (80, 32, 64, (1, 32, 8), 1308),
        (20, 128, 383, (1, 128, 2), 8076), (80, 128, 383, (1, 128, 2), 31116),
        (20, 1, 64, (4, 1, 64), 24), (80, 1, 64, (4, 1, 64), 54),
    ],
)  # fmt: skip
def test_the_layers_of_dlrm_on_maeri_as_the_reference_has_them(
    m: int, n: int, k: int, tile: tuple[int, int, int], cycles: int
) -> None:
    """Tiles and cycles that STONNE's mapper and simulator give for these layers at 256 multipliers, 128/128."""
    found = placed("maeri-256", linear(m, n, k))
    assert tuple(found.mapping.values()) == tile
    assert found.result.cycles == cycles


@pytest.mark.parametrize(("rows", "size", "cycles"), [(1000, 50, 43), (10_000, 50, 43), (100_000, 100, 44)])
def test_a_lookup_on_sigma_does_not_depend_on_the_table(rows: int, size: int, cycles: int) -> None:
    """STONNE: one bag of 50 (100) rows, 32 columns, 128 multipliers: 43 (44) cycles, every row of the table read."""
    found = placed("sigma-128", lookups([size], rows, 32))
    assert found.result.cycles == cycles
    assert found.result.writes == 32
    assert found.result.reads == 32 * rows + size


def test_bags_on_magma_get_the_tile_of_the_references_mapper() -> None:
    found = placed("magma-128", lookups([50] * 20, 100_000, 32))
    # The rule takes (log2 100000 - log2 32) / 10 > 1 off the sparsity, which leaves none: all multipliers on one sum.
    assert found.mapping == {"T_N": 1, "T_K": 128}
    assert found.result.reads == 50 * 20 * 33  # the entries of a row once, and 32 columns for each


@pytest.mark.parametrize(
    ("tables", "rows", "samples", "indices", "share"),
    [
        (5, 10**6, 20, 100, 0.375), (5, 10**6, 80, 100, 0.352), (10, 10**6, 20, 100, 0.491),
        (25, 10**6, 20, 100, 0.533), (50, 10**6, 20, 100, 0.453), (50, 10**6, 80, 100, 0.463),
        (50, 10**7, 20, 1000, 0.895),
    ],
)  # fmt: skip
def test_the_share_of_embeddings_in_the_dlrm_study(
    tables: int, rows: int, samples: int, indices: int, share: float
) -> None:
    """Shares found independently with the reference's timing rules and DLRM's own index streams."""
    results = study(tables, rows, samples, indices)
    bags = sum(one.result.cycles for one in results if one.operation.kind == "embedding_bag")
    assert round(bags / sum(one.result.cycles for one in results), 3) == share


def test_accesses_of_the_largest_workloads_of_the_dlrm_study() -> None:
    results = study(50, 10**7, 80, 1000)
    # Outputs: 50 bags x 80 samples x 32 columns; bottom 64 + 64 + 32 and top 128 + 64 + 1 features of 80 samples.
    assert sum(one.result.writes for one in results) == 50 * 80 * 32 + 80 * (64 + 64 + 32 + 128 + 64 + 1)
    assert round(sum(one.result.reads for one in results) / 1e6, 1) == 74.7
    assert round(sum(one.result.cycles for one in study(50, 10**6, 80, 100)) / 1e6, 1) == 7.2


def study(tables: int, rows: int, samples: int, indices: int) -> list[Placed]:
    workload = describe(
        "dlrm",
        {
            "arch-embedding-size": "-".join([str(rows)] * tables), "arch-sparse-feature-size": "32",
            "arch-mlp-bot": "128-64-64-32", "arch-mlp-top": "128-64-1", "mini-batch-size": "128",
            "data-size": str(samples), "num-indices-per-lookup": str(indices),
        },
    )  # fmt: skip
    program = program_from_description(workload)
    assert program is not None
    found = Placement(load_accelerator("dlrm-hybrid")).place(program)
    assert [one.operation.name for one in found if isinstance(one, OnHost)] == ["bmm"]
    return [one for one in found if isinstance(one, Placed)]


# ---- dense engines ------------------------------------------------------------------------------------------------


def test_a_product_on_the_mesh_streams_k_for_every_tile() -> None:
    found = placed("tpu-16x16", linear(50, 192, 784))
    assert found.mapping == {"T_M": 16, "T_N": 16}
    tiles = 4 * 12  # 50 rows and 192 columns in sixteens
    assert found.result.stack["compute"] == tiles * 784
    assert found.result.multiplications == 50 * 192 * 784
    assert found.result.writes == 50 * 192


def test_a_small_product_takes_as_much_of_the_mesh_as_it_has() -> None:
    assert placed("tpu-16x16", linear(3, 5, 7)).mapping == {"T_M": 3, "T_N": 5}


def test_several_products_follow_each_other() -> None:
    one, eight = (placed("tpu-16x16", linear(6, 6, 4, count)) for count in (1, 8))
    assert eight.result.cycles == 8 * one.result.cycles
    assert eight.result.reads == 8 * one.result.reads
    assert eight.result.stack == {part: 8 * cycles for part, cycles in one.result.stack.items()}
    multiplier = "MULTIPLIER"
    before, after = (found.result.counters["MSNetwork"][multiplier] for found in (one, eight))
    assert after["entries"] == before["entries"]
    assert after["MULTIPLICATION"] == 8 * before["MULTIPLICATION"] == 8 * 6 * 6 * 4
    assert sum_results([one.result] * 8) == repeat_result(one.result, 8)


def test_a_convolution_is_direct_on_maeri_and_a_product_on_the_mesh() -> None:
    convolution = ConvolutionShape(R=3, S=3, C=8, K=16, G=1, N=1, X=10, Y=10, padding=(1, 1))
    operation = Operation("convolution", "convolution", -1, convolution)
    direct, product = placed("maeri-256", operation), placed("tpu-16x16", operation)
    assert set(direct.mapping) == set(mapping.CONVOLUTION_LETTERS)
    assert direct.result.writes == 16 * 100
    assert product.mapping == {"T_M": 16, "T_N": 16}
    assert product.result == placed("tpu-16x16", linear(100, 16, 72)).result


def test_samples_follow_each_other_where_neighbours_hand_activations_on() -> None:
    """Weights of the next block would overtake them while several samples are under way."""
    one, two = (
        placed("maeri-256", Operation("convolution", "convolution", -1, ConvolutionShape(3, 3, 8, 16, 1, n, 10, 10)))
        for n in (1, 2)
    )
    assert one.mapping["T_S"] == 3
    assert two.mapping == {**one.mapping, "samples": "sample by sample"}
    assert two.result == repeat_result(one.result, 2)
    assert two.words.endswith("sample by sample")


def test_what_maeri_cannot_do_directly_is_a_product_there_too() -> None:
    dilated = ConvolutionShape(R=3, S=3, C=2, K=4, G=1, N=1, X=9, Y=9, dilation=(2, 2))
    found = placed("maeri-256", Operation("convolution", "convolution", -1, dilated))
    assert found.result == placed("maeri-256", linear(25, 4, 18)).result


def test_a_given_tile_is_used_and_cut_to_the_layer() -> None:
    hybrid = load_accelerator("dlrm-hybrid")
    found = Placement(hybrid).place_operation(linear(20, 64, 128))
    assert isinstance(found, Placed)
    # T_S = 4, T_K = 2, T_N = 1 in the letters of a fully connected layer.
    assert found.mapping == {"T_M": 1, "T_N": 2, "T_K": 4}
    narrow = Placement(hybrid).place_operation(linear(20, 1, 3))
    assert isinstance(narrow, Placed)
    assert narrow.mapping == {"T_M": 1, "T_N": 1, "T_K": 3}


def one_engine(kind: str, hardware: Hardware) -> Accelerator:
    engine = EngineDescription("engine", kind, hardware, {}, {}, {})
    return replace(load_accelerator("maeri-256"), engines={"engine": engine}, route={"linear": "engine",
                   "convolution": "engine"})  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    sizes=some.tuples(*[some.integers(1, 40)] * 3),
    multipliers=some.sampled_from([8, 32, 128]),
    reduction=some.sampled_from(["ASNETWORK", "FENETWORK"]),
    accumulators=some.booleans(),
)
def test_any_product_gets_a_tile_that_the_machine_can_run(
    sizes: tuple[int, int, int], multipliers: int, reduction: str, accumulators: bool
) -> None:
    m, n, k = sizes
    hardware = Hardware(multipliers, 0, 0, multipliers, multipliers, reduction, accumulators)
    found = Placement(one_engine("flexible_dense", hardware)).place_operation(linear(m, n, k))
    assert isinstance(found, Placed)
    assert found.result.multiplications >= m * n * k
    assert found.result.writes >= m * n


@settings(max_examples=60, deadline=None)
@given(
    size=some.integers(1, 4), channels=some.integers(1, 6), filters=some.integers(1, 6), groups=some.integers(1, 3),
    batch=some.integers(1, 2), side=some.integers(4, 9), stride=some.integers(1, 2), padding=some.integers(0, 1),
)  # fmt: skip
def test_any_convolution_gets_a_tile_that_the_machine_can_run(
    size: int, channels: int, filters: int, groups: int, batch: int, side: int, stride: int, padding: int
) -> None:
    convolution = ConvolutionShape(
        R=size, S=size, C=channels * groups, K=filters * groups, G=groups, N=batch, X=side, Y=side,
        stride=(stride, stride), padding=(padding, padding),
    )  # fmt: skip
    found = placed("maeri-256", Operation("convolution", "convolution", -1, convolution))
    sizes = [size for name, size in found.mapping.items() if name.startswith("T_")]
    assert int(np.prod(sizes)) <= 256
    assert found.result.multiplications >= convolution.multiplications


# ---- sparse engines -----------------------------------------------------------------------------------------------


def test_zeros_of_the_weights_shorten_the_work_of_sigma() -> None:
    random = np.random.RandomState(0)
    inputs, weights = DENSE((8, 64)), random.random_sample((32, 64)) < 0.25
    dense = placed("sigma-128", with_zeros(inputs, DENSE((32, 64))))
    sparse = placed("sigma-128", with_zeros(inputs, weights))
    assert dense.mapping == sparse.mapping == {"dataflow": "MK_STR_KN_STA"}
    assert dense.result.multiplications == 8 * 32 * 64
    assert sparse.result.multiplications == 8 * weights.sum()
    assert sparse.result.cycles < dense.result.cycles


def test_magma_compresses_the_operand_with_more_zeros() -> None:
    half = np.tile([1.0, 0.0], (8, 16))
    by_inputs = placed("magma-128", with_zeros(half, DENSE((4, 32))))
    by_weights = placed("magma-128", with_zeros(half, np.eye(4, 32)))
    assert by_inputs.mapping["rows"] == "inputs by rows"
    assert by_weights.mapping["rows"] == "weights by rows"
    # Entries once, and each with every column of the dense operand.
    assert by_inputs.result.reads == 8 * 16 * (1 + 4)
    assert by_weights.result.reads == 4 * (1 + 8)


@pytest.mark.parametrize("kind", ["outer_product", "gustavson"])
def test_merging_engines_multiply_only_what_is_not_zero(kind: str) -> None:
    hardware = Hardware(16, 0, 0, 16, 16, "ASNETWORK", False)
    random = np.random.RandomState(1)
    inputs, weights = (random.random_sample((size, 20)) < 0.3 for size in (6, 7))
    found = Placement(one_engine(kind, hardware)).place_operation(with_zeros(inputs, weights))
    assert isinstance(found, Placed)
    assert found.result.multiplications == int((inputs.sum(axis=0) * weights.sum(axis=0)).sum())


@pytest.mark.parametrize("kind", ["outer_product", "gustavson"])
def test_merging_engines_look_only_at_the_rows_that_bags_name(kind: str) -> None:
    hardware = Hardware(16, 0, 0, 16, 16, "ASNETWORK", False)
    accelerator = replace(one_engine(kind, hardware), route={"embedding_bag": "engine"})
    found = Placement(accelerator).place_operation(lookups([5, 9, 1], 10**6, 8))
    assert isinstance(found, Placed)
    assert found.result.multiplications == 15 * 8


def test_short_vectors_are_filled_up_where_the_engine_needs_three() -> None:
    assert placed("sigma-128", lookups([1, 2], 2, 4)).result.multiplications == 2 * 3 * 4
    assert placed("sigma-128", with_zeros(DENSE((2, 1)), DENSE((2, 1)))).result.multiplications == 2 * 2 * 3


def test_all_products_of_an_operation_have_one_mapping() -> None:
    """The zeros of both together decide, not those of the last."""
    inputs, weights = np.ones((2, 8, 32)), np.ones((2, 4, 32))
    weights[0, :, 1:] = 0
    patterns = ZeroPattern.from_array(inputs > 0), ZeroPattern.from_array(weights > 0)
    found = placed("magma-128", Operation("linear", "bmm", -1, MatrixProduct(8, 4, 32, 2), *patterns))
    assert found.mapping["rows"] == "weights by rows"
    # Rows of one entry and of 32, each with 8 columns.
    assert found.result.reads == (4 * 1 + 4 * 32) * (1 + 8)


def test_a_sum_of_one_product_still_gets_an_adder_on_magma() -> None:
    assert placed("magma-128", with_zeros(DENSE((3, 1)), DENSE((5, 1)))).mapping["T_K"] == 2


def test_windows_of_a_convolution_are_those_of_the_definition() -> None:
    shape = ConvolutionShape(2, 3, 4, 2, 2, 2, 5, 6, stride=(2, 1), padding=(1, 0), dilation=(1, 2))
    inputs = np.random.RandomState(2).random_sample((2, 4, 5, 6)) < 0.5
    rows, columns = shape.outputs
    expected = np.zeros((2, 2 * rows * columns, 2 * 2 * 3), dtype=bool)
    for group in range(2):
        for sample in range(2):
            for row in range(rows):
                for column in range(columns):
                    taps = []
                    for channel in range(2):
                        for r in range(2):
                            for s in range(3):
                                x, y = 2 * row + r - 1, column + 2 * s
                                inside = 0 <= x < 5
                                taps.append(bool(inside and inputs[sample, 2 * group + channel, x, y]))
                    expected[group, (sample * rows + row) * columns + column] = taps
    assert np.array_equal(unfold(inputs, shape), expected)


def test_filters_stay_and_windows_stream_past_them_on_sigma() -> None:
    shape = ConvolutionShape(R=3, S=3, C=2, K=4, G=1, N=1, X=6, Y=6)
    patterns = ZeroPattern.from_array(DENSE((1, 2, 6, 6)) > 0), ZeroPattern.from_array(DENSE((4, 2, 3, 3)) > 0)
    found = placed("sigma-128", Operation("convolution", "convolution", -1, shape, *patterns))
    assert found.mapping == {"dataflow": "MK_STA_KN_STR"}
    assert found.result.weight_reads == 4 * 18
    assert found.result.writes == 4 * 16


# ---- what cannot be -----------------------------------------------------------------------------------------------


def test_a_kind_without_an_engine_runs_on_the_host() -> None:
    found = Placement(load_accelerator("maeri-256")).place_operation(lookups([3], 10, 4))
    assert isinstance(found, OnHost)
    assert found.reason == "maeri-256 has no engine for embedding_bag"


def test_zeros_that_are_not_known_are_asked_for() -> None:
    with pytest.raises(SondaError, match=r"head \(addmm\) on sigma: the zeros of addmm are not known"):
        Placement(load_accelerator("sigma-128")).place_operation(linear(2, 3, 4), "head")


def test_a_way_to_map_that_is_not_there() -> None:
    with pytest.raises(SondaError, match="mapping 'bset' is unknown") as caught:
        Placement(load_accelerator("maeri-256"), "bset")
    assert "best" in caught.value.remedy


def test_which_zeros_must_be_known() -> None:
    assert Placement(load_accelerator("maeri-256")).patterns() == frozenset()
    assert Placement(load_accelerator("dlrm-hybrid")).patterns() == frozenset()
    assert Placement(load_accelerator("sigma-128")).patterns() == {"linear", "gemm", "convolution", "attention"}


def test_an_error_names_the_layer_and_the_engine() -> None:
    hardware = Hardware(8, 0, 0, 8, 8, "TEMPORALRN", False)
    program = ModelProgram((), (linear(2, 3, 4),), ("forward",))
    with pytest.raises(SondaError, match=r"the model \(addmm\) on engine: no tile"):
        Placement(one_engine("flexible_dense", hardware)).place(program)
