"""Data of a whole training: made ready once, divided by hand-counted shares, and networks that take its shape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sonda.record.errors import SondaError
from sonda.workloads.catalogue import describe
from sonda.workloads.data.drawn_fish import fish_source, make_fish
from sonda.workloads.data.preparation import prepare, prepare_source
from sonda.workloads.data.prepared import Prepared, load
from sonda.workloads.data.source import ArraySource
from sonda.workloads.data.training_set import divide, make_ready, parse_split
from sonda.workloads.networks.image_classifiers import require_classifier


def made(place: Path, counts: dict[str, int], classes: int = 4) -> Prepared:
    """A set of small grey images with these parts; classes take turns."""
    labels = np.concatenate([np.arange(count) % classes for count in counts.values()])
    images = [np.zeros((count, 4, 6, 1), np.uint8) for count in counts.values()]
    source = ArraySource(
        layout="folder", name="made", classes=tuple("abcdefgh"[:classes]), labels=labels, parts=tuple(counts.items()),
        images=images,
    )  # fmt: skip
    return prepare_source(source, place, None, "grey", 0)


def write_mnist(folder: Path, images: int, value: int = 3) -> None:
    folder.mkdir(exist_ok=True)
    for part, count in (("train", images), ("t10k", images // 2)):
        head = bytes([0, 0, 8, 3]) + b"".join(side.to_bytes(4, "big") for side in (count, 28, 28))
        (folder / f"{part}-images-idx3-ubyte").write_bytes(head + bytes([value]) * (count * 784))
        labels = bytes([0, 0, 8, 1]) + count.to_bytes(4, "big") + bytes(number % 10 for number in range(count))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(labels)


def test_drawn_fish_are_those_that_make_and_prepare_give(tmp_path: Path) -> None:
    make_fish(tmp_path / "fish", count=2, seed=5)
    by_files = prepare(tmp_path / "fish", tmp_path / "files", image=(32, 24))
    drawn = prepare_source(fish_source(2, 5), tmp_path / "drawn", (32, 24), "grey", 0)
    assert drawn.manifest.files == by_files.manifest.files, "the same bytes"
    assert drawn.classes == by_files.classes
    assert drawn.manifest.made.origin == by_files.manifest.made.origin


def test_shares_by_hand(tmp_path: Path) -> None:
    """Of 200 images 85 % are 170, 2 % are 4, 13 % are 26; four classes of 50 have 42 or 43, one, and 6 or 7 each."""
    data = divide(made(tmp_path / "set", {"all": 200}))
    assert {part: len(numbers) for part, numbers in data.shares.items()} == {"train": 170, "validate": 4, "test": 26}
    assert np.bincount(data.prepared.labels[data.shares["validate"]]).tolist() == [1, 1, 1, 1]
    together = np.sort(np.concatenate(list(data.shares.values())))
    assert together.tolist() == list(range(200))
    again, other = divide(data.prepared), divide(data.prepared, seed=1)
    assert again.shares["test"].tolist() == data.shares["test"].tolist() != other.shares["test"].tolist()


def test_a_set_is_described_by_its_source_size_and_colours(tmp_path: Path) -> None:
    data = divide(made(tmp_path / "set", {"all": 200}))
    assert data.words == "made (folder), 6x4, grey"


def test_a_test_part_stays_the_test(tmp_path: Path) -> None:
    """Of 87 training images 85/87 train and 2/87 validate."""
    data = divide(made(tmp_path / "set", {"train": 87, "test": 40}))
    assert {part: len(numbers) for part, numbers in data.shares.items()} == {"train": 85, "validate": 2, "test": 40}
    assert data.shares["test"].tolist() == list(range(87, 127))


def test_so_many_images_of_each_class(tmp_path: Path) -> None:
    data = divide(made(tmp_path / "set", {"all": 200}), "0.5/0.25/0.25", images=8)
    assert {part: len(numbers) for part, numbers in data.shares.items()} == {"train": 16, "validate": 8, "test": 8}
    for numbers in data.shares.values():
        assert len(set(np.bincount(data.prepared.labels[numbers]).tolist())) == 1, "every class alike"


@pytest.mark.parametrize(
    ("split", "words"),
    [("0.9/0.1", "is not three fractions"), ("a/b/c", "is not three fractions"), ("0/0.5/0.5", "share is empty")],
)
def test_odd_splits_are_refused(tmp_path: Path, split: str, words: str) -> None:
    with pytest.raises(SondaError, match=words):
        divide(made(tmp_path / "set", {"all": 40}), split)


def test_no_validation_and_no_test_are_possible(tmp_path: Path) -> None:
    data = divide(made(tmp_path / "set", {"all": 40}), "1/0/0")
    assert {part: len(numbers) for part, numbers in data.shares.items()} == {"train": 40, "validate": 0, "test": 0}
    assert parse_split("1/0/0") == (1.0, 0.0, 0.0)


def test_files_are_prepared_once_and_anew_when_they_change(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", 20)
    first = make_ready(str(tmp_path / "mnist"), tmp_path / "store")
    stamp = (first / "images.npy").stat().st_mtime_ns
    assert make_ready(str(tmp_path / "mnist"), tmp_path / "store") == first
    assert (first / "images.npy").stat().st_mtime_ns == stamp
    assert load(first).images[0, 0, 0, 0] == np.float16(3 / 255)
    small = make_ready(str(tmp_path / "mnist"), tmp_path / "store", image=(14, 7))
    assert load(small).manifest.shape == (30, 1, 7, 14)
    write_mnist(tmp_path / "mnist", 24, 9)
    second = make_ready(str(tmp_path / "mnist"), tmp_path / "store")
    assert second != first and len(load(second)) == 36
    assert make_ready(str(second), tmp_path / "store") == second, "a prepared set is taken as it is"


def test_networks_take_the_shape_of_the_images() -> None:
    resnet = require_classifier(describe("resnet34", {}))
    found = resnet.fit_images({}, (1, 48, 64), 9, "fish").parameters()
    assert (found["image"], found["channels"], found["classes"]) == ("64x48", 1, 9)
    perceptron = require_classifier(describe("mlp", {}))
    assert perceptron.fit_images({}, (1, 28, 28), 10, "mnist").parameters()["layers"] == "784-192-10"
    assert perceptron.fit_images({}, (1, 24, 32), 9, "fish").parameters()["layers"] == "768-192-9"
    kept = {"classes": "1000", "image": "64x48"}
    resnet = require_classifier(describe("resnet34", kept))
    assert resnet.fit_images(kept, (1, 48, 64), 9, "fish").parameters()["classes"] == 1000


def test_images_are_prepared_as_the_options_say() -> None:
    resnet = {"image": "64x48"}
    assert require_classifier(describe("resnet34", resnet)).choose_images(resnet, drawn=False) == ((64, 48), None)
    assert require_classifier(describe("resnet34", {})).choose_images({}, drawn=False) == (None, None)
    assert require_classifier(describe("resnet34", {})).choose_images({}, drawn=True) == ((64, 64), None)
    assert require_classifier(describe("mlp", {})).choose_images({}, drawn=True) == ((28, 28), 1)
    odd = {"layers": "700-10"}
    with pytest.raises(SondaError, match="700 inputs are no square image"):
        require_classifier(describe("mlp", odd)).choose_images(odd, drawn=True)
    with pytest.raises(SondaError, match="mlp: layers begin with 700, and images of mnist with so many values has 784"):
        require_classifier(describe("mlp", odd)).fit_images(odd, (1, 28, 28), 10, "mnist")
