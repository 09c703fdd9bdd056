"""A stream of images: what is decoded, cut and mirrored, in which order, the same for everybody who asks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from sonda.record.errors import SondaError
from sonda.workloads.catalogue import describe
from sonda.workloads.data.cifar import RECORD
from sonda.workloads.data.cifar_like import CIFAR_LIKE, cifar_like
from sonda.workloads.data.image_stream import ImageStream, Shape, image_stream, prefetch
from sonda.workloads.data.source import ArraySource
from sonda.workloads.in_torch.streamed_images import train_on_stream

SHAPE = Shape(3, 32, 32, 10)


def source(count: int = 7, side: int = 32) -> ArraySource:
    """Image n has the value 10 n everywhere but in its first column, which is white."""
    images = np.repeat((10 * np.arange(count, dtype=np.uint8))[:, None, None, None], side, 1)
    images = np.repeat(np.repeat(images, side, 2), 3, 3)
    images[:, :, 0] = 255
    return ArraySource(
        layout="cifar10", name="made", classes=("a", "b"), labels=np.arange(count, dtype=np.int64) % 2,
        parts=(("train", count),), images=[images],
    )  # fmt: skip


def test_an_example_is_the_image_scaled_cut_and_mirrored() -> None:
    stream = ImageStream(source(), SHAPE, seed=3)
    value = np.float32((50 / 255 - 0.5) / 0.25)
    white = np.float32(2.0)  # (1 - 0.5) / 0.25
    seen = set()
    for turn in range(60):
        image, kind = stream.example(turn * len(stream) + 5)
        assert image.shape == (3, 32, 32) and image.dtype == np.float32 and kind == 1
        assert np.allclose(sorted(set(np.unique(image)) - {0.0, white}), [value])
        assert np.array_equal(image[0], image[1]) and np.array_equal(image[0], image[2])
        # Which rows and columns are of the border, and on which side the white column is, tells how it was cut.
        rows, columns = np.flatnonzero(image[0].any(axis=1)), np.flatnonzero(image[0].any(axis=0))
        assert len(rows) >= 28 and len(columns) >= 28
        bright = np.flatnonzero(image[0][rows[0]] == white)
        assert len(bright) <= 1
        seen.add((int(rows[0]), int(columns[0]), bright.tolist() == [columns[-1]]))
    assert len({down for down, _, _ in seen}) == 5 and {mirrored for _, _, mirrored in seen} == {True, False}


def test_cuts_and_mirrors_are_as_likely_as_they_should_be() -> None:
    """81 places, mirrored or not: each of 162 about as often (chi-squared, 161 degrees of freedom)."""
    image = np.arange(1, 1 + 32 * 32, dtype=np.float32).reshape(1, 32, 32)
    stream = ImageStream(source(), Shape(1, 32, 32, 10), seed=0)
    counts: dict[tuple[float, ...], int] = {}
    for place in range(16_200):
        cut = stream._augment(image, place)
        key = (float(cut[0, 10, 10]), float(cut[0, 10, 11]))
        counts[key] = counts.get(key, 0) + 1
    assert len(counts) == 162
    # Mean 161, standard deviation 17.9: the bound is 4 of them away.
    assert sum((count - 100) ** 2 / 100 for count in counts.values()) < 161 + 4 * 17.9


def test_a_cache_gives_the_same_examples() -> None:
    plain, kept = (ImageStream(source(), SHAPE, 1, cache) for cache in (False, True))
    for place in (0, 6, 7, 20):
        assert np.array_equal(plain.example(place)[0], kept.example(place)[0])
    assert kept.cache_bytes == 7 * 3 * 32 * 32 * 4 and plain.cache_bytes == 0
    assert plain.note == "" and kept.note.startswith("7 decoded images take 0 MB of memory; filling it took")


def test_every_round_has_every_image_once_in_another_order() -> None:
    stream = ImageStream(source(), SHAPE, seed=4)
    first, second = (list(islice(stream.places(), 14)) for _ in range(2))
    assert first == second
    assert sorted(first) == list(range(14)) and sorted(first[:7]) == list(range(7))
    assert [place - 7 for place in first[7:]] != first[:7]


def test_images_are_brought_to_the_networks_size_and_colours() -> None:
    image, _ = ImageStream(source(side=48), Shape(1, 24, 20, 2), seed=0).example(3)
    assert image.shape == (1, 24, 20)


def test_images_of_the_test_part_are_not_trained_on(tmp_path: Path) -> None:
    record = bytes([1]) + bytes(RECORD - 1)
    (tmp_path / "data_batch_1.bin").write_bytes(3 * record)
    (tmp_path / "test_batch.bin").write_bytes(2 * record)
    assert len(image_stream(describe("cnn", {}), str(tmp_path), 0)) == 3


def test_images_like_cifar_are_its_shape_and_can_be_told_apart() -> None:
    drawn = cifar_like(200)
    assert drawn.images[0].shape == (200, 32, 32, 3) and drawn.images[0].dtype == np.uint8
    assert np.bincount(drawn.labels).tolist() == [20] * 10
    # Power of each grating's own direction and pitch, whatever the phase: the class it is highest for is the class.
    waves = np.fft.fft2(drawn.images[0].astype(np.float32).mean(axis=3) - 100)
    peaks = np.abs(waves).reshape(200, -1)
    peaks[:, 0] = 0
    centres = np.stack([peaks[:100][drawn.labels[:100] == kind].mean(axis=0) for kind in range(10)])
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    assert ((peaks[100:] @ centres.T).argmax(axis=1) == drawn.labels[100:]).mean() > 0.9


def test_loading_ahead_gives_the_same_batches_and_the_same_error() -> None:
    stream = ImageStream(source(), SHAPE, 0)
    plain, early = stream.batches(3), prefetch(stream.batches(3), 2)
    for (images, kinds), (other, others) in islice(zip(plain, early, strict=True), 5):
        assert np.array_equal(images, other) and kinds.tolist() == others.tolist()

    def broken() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        yield np.zeros(1), np.zeros(1)
        raise SondaError("a broken image")

    batches = prefetch(broken(), 2)
    next(batches)
    with pytest.raises(SondaError, match="a broken image"):
        next(batches)


@pytest.mark.parametrize(("workers", "prefetch"), [(0, None), (2, 3)])
def test_pytorch_loads_the_streams_batches(workers: int, prefetch: int | None) -> None:
    torch.set_num_threads(1)
    task = describe("cnn", {"batch": "4"}).build("torch", True, 0)
    stream = ImageStream(source(), SHAPE, 5)
    batches = train_on_stream(task, stream).batches(workers, False, prefetch)
    for (images, kinds), ((loaded,), target) in islice(zip(stream.batches(4), batches, strict=False), 3):
        assert np.array_equal(images, loaded.numpy()) and kinds.tolist() == target.tolist()


@pytest.mark.parametrize(
    ("workload", "data", "line"),
    [
        ("mlp", CIFAR_LIKE, "mlp takes no images; leave out --data, or use cnn or resnet18, 34, 50"),
        ("cnn", "nowhere", "there is no folder nowhere; give a folder of images"),
    ],
)
def test_data_that_cannot_be_trained_on_is_one_line(workload: str, data: str, line: str) -> None:
    with pytest.raises(SondaError) as raised:
        image_stream(describe(workload, {}), data, 0)
    assert str(raised.value) == line


def test_more_classes_than_the_network_has_are_refused() -> None:
    with pytest.raises(SondaError, match="the data has 10 classes, the network 3; use --classes 10"):
        image_stream(describe("cnn", {"classes": "3"}), CIFAR_LIKE, 0)
