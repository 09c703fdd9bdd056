"""A prepared data set in PyTorch: the same values through every door, and nothing copied that need not be."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import sonda
from data_examples import write_folder
from sonda.record.errors import SondaError
from sonda.workloads.catalogue import describe
from sonda.workloads.data.prepared import Prepared
from sonda.workloads.data.training_set import divide
from sonda.workloads.in_torch.prepared_images import PreparedImages
from sonda.workloads.in_torch.task import CORES
from sonda.workloads.in_torch.training_images import TrainingImages

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    place = tmp_path_factory.mktemp("data")
    write_folder(place / "set", {"a": range(0, 200, 10), "b": range(5, 155, 10)})
    return sonda.data.prepare(place / "set", place / "out")


def test_one_image(prepared: Prepared) -> None:
    images = PreparedImages(prepared)
    image, label = images[3]
    assert (image.dtype, image.shape, label.dtype) == (torch.float16, (1, 6, 8), torch.int64)
    assert np.array_equal(image.numpy(), prepared.images[3]) and label == prepared.labels[3]
    image += 1  # a copy: the file is not touched
    assert len(images) == 35


@pytest.mark.parametrize("collate", [None, PreparedImages.together], ids=["usual", "together"])
def test_a_loader_gives_the_same_batches_either_way(prepared: Prepared, collate: object) -> None:
    numbers = np.arange(34, -1, -2)
    loader = DataLoader(PreparedImages(prepared, numbers), batch_size=5, collate_fn=collate)  # type: ignore[arg-type]
    batches = list(loader)
    assert [len(labels) for _, labels in batches] == [5, 5, 5, 3]
    assert np.array_equal(torch.cat([images for images, _ in batches]).numpy(), prepared.images[numbers])
    assert torch.cat([labels for _, labels in batches]).tolist() == prepared.labels[numbers].tolist()


def test_an_epoch_has_every_image_once_in_an_order_of_its_own(prepared: Prepared) -> None:
    training = PreparedImages(prepared, prepared.split((0.8, 0.2))[0])

    def order(seed: int, epoch: int, **options: bool) -> list[tuple[float, int]]:
        found = []
        for images, labels in training.in_batches(8, seed, epoch, **options):
            found += list(zip(images[:, 0, 0, 0].tolist(), labels.tolist(), strict=True))
        return found

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1) != order(1, 1)
    assert sorted(order(0, 0)) == sorted(order(0, 1)) == sorted(order(0, 0, shuffle=False))
    assert len(order(0, 0)) == 28
    assert len(order(0, 0, drop_last=True)) == 24


def test_numpy_batches_are_copies(prepared: Prepared) -> None:
    for images, labels in sonda.data.batches(prepared, np.arange(10), 4):
        images[:] = 9
        labels[:] = 9
    assert float(prepared.images[:10].max()) <= 1
    with pytest.raises(SondaError, match="a batch of 0"):
        next(sonda.data.batches(prepared, np.arange(10), 0))


def test_a_worker_is_sent_the_place_and_not_the_images(prepared: Prepared) -> None:
    sent = pickle.dumps(PreparedImages(prepared, np.arange(3)))
    assert len(sent) < 2000
    assert np.array_equal(pickle.loads(sent)[1][0], prepared.images[1])


def test_processes_that_load_for_a_training_may_use_all_cores_of_a_bound_one(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenMP keeps the thread that starts them on one core, which they would inherit."""
    told = tmp_path / "cores"
    monkeypatch.setenv(CORES, "3,5")
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: told.write_text(repr(list(cores))))
    images = TrainingImages(divide(prepared), describe("mlp", {"layers": "48-4-2"}), 0, workers=1)  # type: ignore[arg-type]
    ((inputs,), labels) = next(iter(images.batches([[4, 7]], torch.float32)))
    assert inputs.shape == (2, 48) and labels.tolist() == prepared.labels[[4, 7]].tolist()
    assert told.read_text() == "[3, 5]"


def test_images_stay_on_disk_until_touched(prepared: Prepared) -> None:
    base = prepared.images
    while isinstance(base, np.ndarray) and base.base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        prepared.images[0] = 0


def test_the_public_face(prepared: Prepared) -> None:
    assert np.array_equal(sonda.data.load(prepared.directory).labels, prepared.labels)
    with pytest.raises(SondaError, match=r"came without a part 'test' \(parts: none\)"):
        prepared.part("test")
    with pytest.raises(AttributeError):
        sonda.data.unknown  # noqa: B018
