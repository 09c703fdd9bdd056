"""DLRM: its own streams, weights and losses, number by number."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from places import DATA
from sonda.record.errors import SondaError
from sonda.workloads.catalogue import describe
from sonda.workloads.networks.dlrm import Recommender, presets
from sonda.workloads.networks.dlrm_draws import DRAWN_AT_ONCE, DlrmStream, DlrmWeights

GOLDEN = json.loads((DATA / "dlrm_streams.json").read_text())
STREAMS = [
    dict(zip(GOLDEN["study5_index_streams"]["columns"], row, strict=True))
    for row in GOLDEN["study5_index_streams"]["rows"]
]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def dlrm(**options: str) -> Recommender:
    workload = describe("dlrm", {key.replace("_", "-"): text for key, text in options.items()})
    assert isinstance(workload, Recommender)
    return workload


def train(task: Any, steps: int, workers: int = 0) -> list[float]:
    optimizer = task.optimizer()
    losses = []
    batches = task.batches(workers)
    for _ in range(steps):
        inputs, target = next(batches)
        optimizer.zero_grad()
        loss = task.loss(task.model(*inputs), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    batches.close()
    return losses


def test_default_flags_give_the_losses_of_metas_program() -> None:
    task = dlrm(mini_batch_size="2", data_size="6").build("torch", True, 99)
    losses = [f"{loss:.6f}" for loss in train(task, 3)]
    assert losses == ["0.025266", "0.180494", "0.083240"]


def test_loading_processes_keep_the_order_of_the_stream() -> None:
    task = dlrm(mini_batch_size="2", data_size="6").build("torch", True, 0)
    alone, helped = task.batches(0), task.batches(2)
    for _ in range(7):
        ((dense, offsets, rows), target), ((dense2, offsets2, rows2), target2) = next(alone), next(helped)
        assert torch.equal(dense, dense2)
        assert torch.equal(offsets, offsets2)
        assert all(torch.equal(a, b) for a, b in zip(rows, rows2, strict=True))
        assert torch.equal(target, target2)
    helped.close()


def test_default_batches_are_those_of_metas_program() -> None:
    batches = list(dlrm(mini_batch_size="2", data_size="6").stream().batches())
    assert len(batches) == 3
    for batch, golden in zip(batches, GOLDEN["golden_default_batches"]["batches"], strict=True):
        np.testing.assert_allclose(batch.dense, golden["dense"], atol=5.1e-5)
        np.testing.assert_allclose(batch.targets[:, 0], golden["targets"], atol=5.1e-5)
        assert batch.sizes.tolist() == golden["bag_sizes"]
        assert [rows.tolist() for rows in batch.indices] == golden["indices"]


@pytest.mark.parametrize("golden", STREAMS, ids=lambda row: f"{row['workload']}-{'fixed' if row['fixed'] else 'drawn'}")
def test_streams_of_the_accelerator_study(golden: dict[str, Any]) -> None:
    workload = dlrm(preset=golden["workload"], num_indices_per_lookup_fixed=str(golden["fixed"]))
    assert workload.arch_mlp_bot[0] == golden["dense_features"]
    (batch,) = workload.stream().batches()
    assert batch.sizes.size == golden["bags"]
    assert sum(map(len, batch.indices)) == batch.sizes.sum() == golden["indices"]
    assert sum(len(np.unique(rows)) for rows in batch.indices) == golden["distinct_rows_summed_over_tables"]
    assert (batch.sizes.min(), batch.sizes.max()) == (golden["smallest_bag"], golden["largest_bag"])
    assert batch.sizes[0, :10].tolist() == golden["first_10_bag_sizes_of_table_0"]
    assert batch.indices[0][:3].tolist() == golden["first_3_indices_of_table_0"]


def test_the_dense_features_come_first_in_the_stream() -> None:
    tables, rows, samples, most, fixed, count = GOLDEN["index_stream_check"]["rows"][0]
    stream = DlrmStream((rows,) * tables, 512, samples, 2 * samples, most, fixed)
    assert sum(map(len, next(stream.batches()).indices)) == count


def test_bags_are_sorted_and_distinct_and_offsets_point_at_them() -> None:
    (batch,) = DlrmStream((30, 7), 3, 4, 4, 20, fixed=True).batches()
    for table, rows in enumerate(batch.indices):
        for start, size in zip(batch.offsets[table], batch.sizes[table], strict=True):
            bag = rows[start : start + size]
            assert (np.diff(bag) > 0).all()
            assert 0 <= bag.min() <= bag.max() < (30, 7)[table]


def test_the_last_batch_holds_the_remainder_and_training_leaves_it_out() -> None:
    workload = dlrm(mini_batch_size="4", data_size="10")
    assert [len(batch.dense) for batch in workload.stream().batches()] == [4, 4, 2]
    batches = workload.build("torch", True, 0).batches(0)
    seen = [next(batches)[0][0] for _ in range(3)]
    assert [len(dense) for dense in seen] == [4, 4, 4]
    assert torch.equal(seen[0], seen[2])


def test_num_batches_replaces_data_size() -> None:
    assert len(dlrm(mini_batch_size="3", num_batches="5", data_size="7").stream()) == 5


def test_batch_asks_for_full_batches() -> None:
    assert dlrm(batch="16").samples == 16
    assert dlrm(batch="16", data_size="20").samples == 16
    assert dlrm(mini_batch_size="16").samples == 1
    assert dlrm(preset="5-1M-20-100").samples == 20
    assert dlrm(preset="5-1M-20-100", batch="64").samples == 64


def test_tables_are_drawn_in_parts_as_if_at_once() -> None:
    columns = 2**20
    rows = 2 * (DRAWN_AT_ONCE // columns) + 1
    parts = DlrmWeights(7).table(rows, columns)
    whole = np.random.RandomState(7).uniform(-np.sqrt(1 / rows), np.sqrt(1 / rows), (rows, columns)).astype(np.float32)
    assert np.array_equal(parts, whole)


def test_rows_of_a_table_are_those_of_the_whole_and_leave_the_generator_where_it_does() -> None:
    columns = 2**20
    rows = 2 * (DRAWN_AT_ONCE // columns) + 1
    whole, some = DlrmWeights(7), DlrmWeights(7)
    wanted = np.array([0, 3, 4, rows - 1])
    assert np.array_equal(some.table_rows(rows, columns, wanted), whole.table(rows, columns)[wanted])
    assert np.array_equal(some.table_rows(5, 2, np.array([], np.int64)), np.empty((0, 2), np.float32))
    whole.table(5, 2)
    for (weight, bias), (other_weight, other_bias) in zip(
        some.perceptron((3, 4, 2)), whole.perceptron((3, 4, 2)), strict=True
    ):
        assert np.array_equal(weight, other_weight)
        assert np.array_equal(bias, other_bias)


@pytest.mark.parametrize(
    ("tables", "columns", "options", "width"),
    [  # widths as DLRM computes them
        (3, 2, {}, 8),
        (5, 32, {}, 47),
        (26, 16, {}, 367),
        (50, 64, {}, 1339),
        (8, 32, {"arch_interaction_op": "cat"}, 288),
        (32, 64, {"arch_interaction_op": "cat"}, 2112),
        (3, 2, {"arch_interaction_itself": "true"}, 12),
    ],
)
def test_width_of_the_top_perceptrons_input(tables: int, columns: int, options: dict[str, str], width: int) -> None:
    workload = dlrm(
        arch_embedding_size="-".join(["5"] * tables),
        arch_sparse_feature_size=str(columns),
        arch_mlp_bot=f"4-{columns}",
        **options,
    )
    assert workload.top_input == width
    task = workload.build("torch", False, 0)
    assert task.model.top[0].in_features == width
    assert task.infer(lambda name: pytest.fail("nothing to mark")).shape == (1, 1)


def test_the_interaction_pairs_row_by_row() -> None:
    dense, first, second = torch.tensor([[2.0, 3.0]]), torch.tensor([[5.0, 7.0]]), torch.tensor([[11.0, 13.0]])
    plain = dlrm(arch_embedding_size="3-3").build("torch", False, 0).model.interaction
    # dense, then (1,0), (2,0), (2,1)
    assert plain(dense, [first, second]).tolist() == [[2, 3, 31, 61, 146]]
    itself = dlrm(arch_embedding_size="3-3", arch_interaction_itself="true").build("torch", False, 0).model.interaction
    assert itself(dense, [first, second]).tolist() == [[2, 3, 13, 31, 74, 61, 146, 290]]


def test_binary_cross_entropy_with_rounded_targets() -> None:
    options = {"loss_function": "bce", "round_targets": "true", "loss_threshold": "0.4", "batch": "6"}
    task = dlrm(**options).build("torch", True, 0)
    inputs, target = next(task.batches(0))
    assert set(target.flatten().tolist()) <= {0.0, 1.0}
    prediction = task.model(*inputs)
    assert 0.4 <= prediction.min().item() <= prediction.max().item() <= 0.6
    p, t = prediction.detach().double().numpy(), target.double().numpy()
    expected = -(t * np.log(p) + (1 - t) * np.log(1 - p)).mean()
    assert task.loss(prediction, target).item() == pytest.approx(expected, rel=1e-5)


def test_every_preset_can_be_described_and_has_a_source() -> None:
    assert len(presets()) == 18
    for name, values in presets().items():
        assert values["source"]
        assert dlrm(preset=name).parameters()["preset"] == name
    kaggle = dlrm(preset="criteo_kaggle")
    assert sum(kaggle.arch_embedding_size) == 33_762_577
    assert (len(kaggle.arch_embedding_size), kaggle.top_input) == (26, 367)
    assert dlrm(preset="deeprecsys_rm3").top_input == 352
    assert dlrm(preset="dlrm_s_benchmark").top_input == 100
    assert dlrm(preset="50-10M-80-1000").table_bytes == 64 * 10**9


def test_options_beside_a_preset_replace_its_values() -> None:
    workload = dlrm(preset="5-1M-20-100", arch_embedding_size="10-20", batch="4")
    assert workload.arch_embedding_size == (10, 20)
    assert workload.arch_mlp_top == (128, 64, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arch_mlp_bot": "4-3"}, "make the last number of arch-mlp-bot equal to arch-sparse-feature-size"),
        ({"arch_mlp_top": "4-2"}, "end arch-mlp-top with -1"),
        ({"loss_threshold": "0.5"}, "use less than 0.5"),
        ({"loss_function": "wbce"}, "write one of mse, bce"),
        ({"preset": "5-1M-20-10"}, "dlrm has no preset '5-1M-20-10'; did you mean '5-1M-20-100"),
        ({"optimizer": "adagrad"}, "does not follow optimizer: only SGD is offered"),
        ({"data_generation": "dataset"}, "does not follow data-generation"),
        ({"debug_mode": "true"}, "other weights"),
        ({"debug_mode": ""}, "other weights"),
        ({"batch": "3", "mini_batch_size": "3"}, "given twice"),
        ({"arch_mlp_bottom": "4-2"}, "did you mean 'arch_mlp_bot'"),
    ],
)
def test_what_it_does_not_follow_is_refused_with_a_reason(options: dict[str, str], message: str) -> None:
    with pytest.raises(SondaError) as caught:
        dlrm(**options)
    assert message in str(caught.value)


def test_a_flag_at_its_only_value_is_accepted() -> None:
    assert dlrm(optimizer="sgd", data_generation="random", nepochs="1") == dlrm()


def test_tables_beyond_the_free_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sonda.workloads.in_torch.dlrm.available_memory", lambda: 10**9)
    with pytest.raises(SondaError, match=r"take 64\.0 GB, 1\.0 GB are free; use fewer rows"):
        dlrm(preset="50-10M-20-100").build("torch", False, 0)
