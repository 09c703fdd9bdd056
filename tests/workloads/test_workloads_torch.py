"""The workloads in PyTorch: counts known from theory, shapes, seeds, a step of each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest
import torch

from sonda.record.errors import SondaError
from sonda.workloads.catalogue import describe

TINY = {
    "ops": {"size": "64KiB", "channels": "4", "heads": "2", "columns": "8", "bags": "5", "indices": "3"},
    "mlp": {"batch": "2", "layers": "7-5-3"},
    "cnn": {"batch": "2", "image": "18x20", "channels": "1", "filters": "2-3-4", "hidden": "5", "classes": "3"},
    "resnet18": {"batch": "2", "image": "33x17", "classes": "4"},
    "resnet34": {"batch": "2", "image": "8x8", "channels": "1", "classes": "4"},
    "resnet50": {"batch": "2", "image": "9x40", "channels": "2", "classes": "4"},
    "lstm": {"batch": "2", "length": "5", "features": "3", "hidden": "4", "classes": "3"},
    "transformer": {"batch": "2", "length": "6", "generate": "4", "layers": "2", "width": "8", "vocabulary": "11"},
    "dlrm": {"batch": "3"},
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def no_mark(name: str) -> AbstractContextManager[None]:
    return nullcontext()


def build(name: str, train: bool = False, seed: int = 0, **options: str) -> Any:
    return describe(name, options).build("torch", train, seed)


def parameter_count(task: Any) -> int:
    return sum(parameter.numel() for parameter in task.model.parameters())


def train(task: Any, steps: int) -> list[float]:
    optimizer = task.optimizer()
    losses = []
    for _, (inputs, target) in zip(range(steps), task.batches(0), strict=False):
        optimizer.zero_grad()
        loss = task.loss(task.model(*inputs), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    ("name", "options", "count"),
    [
        # The counts that every library prints for ImageNet; grey images take 2 x 64 x 49 weights less,
        # nine classes 991 x 513 (991 x 2049 for ResNet-50).
        ("resnet18", {}, 11_689_512),
        ("resnet34", {}, 21_797_672),
        ("resnet50", {}, 25_557_032),
        ("resnet34", {"channels": "1", "classes": "9"}, 21_283_017),
        ("mlp", {}, 785 * 192 + 193 * 10),
        # The count that Keras prints for this network in its tutorial on CIFAR-10.
        ("cnn", {}, 122_570),
        # Four gates, input and recurrent weights, two biases each; then the head.
        ("lstm", {}, 4 * 128 * (64 + 128 + 2) + 4 * 128 * (128 + 128 + 2) + 129 * 10),
        ("lstm", {"vocabulary": "100", "layers": "1"}, 100 * 64 + 4 * 128 * (64 + 128 + 2) + 129 * 10),
        # 12 w^2 + 13 w a block, embeddings of tokens and of 64 + 16 positions, last normalisation.
        ("transformer", {}, 4 * (12 * 256**2 + 13 * 256) + (4096 + 80) * 256 + 2 * 256),
        # Tables 4+3+2 rows of 2; 4-3-2; the top from 2 + 4*3/2 = 8: 8-4-2-1.
        ("dlrm", {}, 9 * 2 + (5 * 3 + 4 * 2) + (9 * 4 + 5 * 2 + 3 * 1)),
    ],
)
def test_parameter_counts_are_those_of_theory(name: str, options: dict[str, str], count: int) -> None:
    assert parameter_count(build(name, **{"batch": "1", **options})) == count


@pytest.mark.parametrize(
    ("name", "options", "shape"),
    [
        ("resnet18", {"image": "1x1"}, (2, 4)),
        ("resnet18", {"image": "37x61", "channels": "5"}, (2, 4)),
        ("resnet50", {"image": "5x90"}, (2, 4)),
        ("cnn", {"image": "18x31"}, (2, 3)),
        ("mlp", {}, (2, 3)),
        ("lstm", {"length": "1"}, (2, 3)),
        ("lstm", {"vocabulary": "7"}, (2, 3)),
    ],
)
def test_odd_sizes_give_one_row_per_sample(name: str, options: dict[str, str], shape: tuple[int, int]) -> None:
    assert build(name, **{**TINY[name], **options}).infer(no_mark).shape == shape


def test_a_residual_stage_halves_the_image() -> None:
    task = build("resnet18", image="100x64", batch="1")
    maps = task.model.stem(task.inputs[0])
    sizes = [tuple(maps.shape[1:])]
    for stage in task.model.stages:
        maps = stage(maps)
        sizes.append(tuple(maps.shape[1:]))
    assert sizes == [(64, 16, 25), (64, 16, 25), (128, 8, 13), (256, 4, 7), (512, 2, 4)]


@pytest.mark.parametrize("name", TINY)
def test_each_workload_infers_and_trains(name: str) -> None:
    output = build(name, **TINY[name]).infer(no_mark)
    results = output if isinstance(output, tuple) else (output,)
    assert all(not result.requires_grad for result in results)
    task = build(name, train=True, **TINY[name])
    before = [parameter.detach().clone() for parameter in task.model.parameters()]
    losses = train(task, 2)
    assert np.isfinite(losses).all()
    assert task.model.training
    after = list(task.model.parameters())
    assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize("name", [name for name in TINY if name != "dlrm"])
def test_the_seed_fixes_weights_data_and_losses(name: str) -> None:
    losses = (train(build(name, train=True, seed=seed, **TINY[name]), 3) for seed in (5, 5, 6))
    # By their digits: batch norms of two pictures may overflow, and what is no number is not equal to itself.
    first, again, different = ([loss.hex() for loss in run] for run in losses)
    assert first == again
    assert first != different


def test_data_are_not_the_weights() -> None:
    task = build("mlp", batch="200", layers="10-10")
    weights = set(task.model[0].weight.flatten().tolist())
    assert not weights & set(task.inputs[0].flatten().tolist())


def test_batches_are_the_same_with_and_without_loading_processes() -> None:
    task = build("mlp", train=True, **TINY["mlp"])
    alone, helped = task.batches(0), task.batches(1)
    seen = set()
    for _ in range(10):
        (inputs, target), (loaded, loaded_target) = next(alone), next(helped)
        assert inputs[0].shape == (2, 7)
        assert torch.equal(inputs[0], loaded[0])
        assert torch.equal(target, loaded_target)
        seen.add(tuple(inputs[0].flatten().tolist()))
    helped.close()
    assert len(seen) > 1


def test_samples_and_tokens_of_a_step() -> None:
    assert (build("mlp").samples, build("mlp").tokens) == (50, 0)
    options = {"batch": "2", "length": "6", "generate": "4", "layers": "1", "width": "4"}
    assert build("transformer", **options).tokens == 2 * (6 + 4)
    assert build("transformer", train=True, **options).tokens == 2 * 6
    assert build("lstm", vocabulary="9", batch="3", length="7").tokens == 21
    assert build("dlrm", **{"mini-batch-size": "128", "data-size": "20"}).samples == 20


def test_training_one_small_image_is_refused() -> None:
    with pytest.raises(SondaError, match="one value per channel; use batch 2"):
        build("resnet18", train=True, batch="1", image="32x32")
    assert len(train(build("resnet18", train=True, batch="1", image="33x32"), 1)) == 1


class TestTransformer:
    def test_the_cache_gives_the_tokens_and_scores_of_a_full_forward(self) -> None:
        task = build("transformer", **TINY["transformer"])
        marks = []

        def mark(name: str) -> AbstractContextManager[None]:
            marks.append(name)
            return nullcontext()

        generated = task.infer(mark)
        assert marks == ["prefill", "decode"]
        assert generated.shape == (2, 5)
        text = task.inputs[0]
        cache = task.model.empty_cache(2)
        step = text
        with torch.no_grad():
            for number in range(5):
                full = task.model(text)[:, -1:]
                torch.testing.assert_close(task.model(step, cache), full)
                step = full.argmax(-1)
                assert torch.equal(step[:, 0], generated[:, number])
                text = torch.cat([text, step], dim=1)

    def test_prefill_is_one_forward_and_decode_one_for_each_token(self) -> None:
        task = build("transformer", **TINY["transformer"])
        lengths: list[int] = []
        task.model.register_forward_pre_hook(lambda module, inputs: lengths.append(inputs[0].shape[1]))
        task.infer(no_mark)
        assert lengths == [6, 1, 1, 1, 1]

    def test_no_token_sees_a_later_one(self) -> None:
        task = build("transformer", **TINY["transformer"])
        text = task.inputs[0].clone()
        with torch.no_grad():
            before = task.model(text)
            text[:, 3] = (text[:, 3] + 1) % 11
            after = task.model(text)
        assert torch.equal(before[:, :3], after[:, :3])
        assert not torch.equal(before[:, 3:], after[:, 3:])

    def test_training_predicts_the_next_token(self) -> None:
        task = build("transformer", train=True, **TINY["transformer"])
        (text,), target = next(task.batches(0))
        assert torch.equal(text[:, 1:], target[:, :-1])
        scores = task.model(text).detach().double().numpy()
        chances = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        expected = -np.log(np.take_along_axis(chances, target.numpy()[..., None], -1)).mean()
        assert task.loss(task.model(text), target).item() == pytest.approx(expected, rel=1e-5)
