"""Data sets in the layouts that they are published in: MNIST's, CIFAR-10's and the fish's."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from data_examples import grey_png
from sonda.record.errors import SondaError
from sonda.workloads.data import prepare
from sonda.workloads.data.idx import read_idx


def idx(values: np.ndarray) -> bytes:
    return bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def mnist(folder: Path, packed: bool = False, dot: str = "-") -> Path:
    """Three training images and two of test, 2 rows x 4 columns, image n filled with 10 n + its pixel's number."""
    folder.mkdir(parents=True)

    def write(name: str, content: bytes) -> None:
        (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(content) if packed else content)

    for begin, first, labels in (("train", 0, [7, 0, 3]), ("t10k", 3, [1, 7])):
        images = np.array([10 * (first + at) + np.arange(8).reshape(2, 4) for at in range(len(labels))], np.uint8)
        write(f"{begin}-images{dot}idx3-ubyte", idx(images))
        write(f"{begin}-labels{dot}idx1-ubyte", idx(np.array(labels, np.uint8)))
    return folder


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("dot", "-.")
def test_mnist(tmp_path: Path, packed: bool, dot: str) -> None:
    made = prepare(mnist(tmp_path / "mnist", packed, dot), tmp_path / "out", seed=1)
    assert made.manifest.made.layout == "idx"
    assert made.classes == tuple("01234567")
    assert made.images.shape == (5, 1, 2, 4)
    assert made.part("train").tolist() == [0, 1, 2]
    assert made.part("test").tolist() == [3, 4]
    values = np.rint(made.images.astype(float) * 255).astype(int)
    assert {(image[0, 0, 0], label) for image, label in zip(values[:3], made.labels[:3], strict=True)} == {
        (0, 7), (10, 0), (20, 3)}  # fmt: skip
    assert {(image[0, 0, 0], label) for image, label in zip(values[3:], made.labels[3:], strict=True)} == {
        (30, 1), (40, 7)}  # fmt: skip
    assert (values[0, 0] - values[0, 0, 0, 0]).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_fashion_classes_have_names(tmp_path: Path) -> None:
    assert prepare(mnist(tmp_path / "fashion-mnist"), tmp_path / "out").classes[7] == "Sneaker"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "does not begin like an IDX file"),
        (b"\0\0\x0d\x01" + bytes(8), "unsigned bytes"),
        (b"\0\0\x08\x03\0\0", "cut within its header"),
        (b"\0\0\x08\x01\0\0\0\x05abc", "speaks of 5 values, and there are 3"),
        (b"\0\0\x08\x01\0\0\0\x02abc", "speaks of 2 values, and there are more"),
        (b"\0\0\x08\x03" + b"\xff" * 12, "speaks of 79,228,"),
    ],
)
def test_broken_idx_files(tmp_path: Path, content: bytes, message: str) -> None:
    for path in (tmp_path / "x", tmp_path / "x.gz"):
        path.write_bytes(gzip.compress(content) if path.suffix else content)
        with pytest.raises(SondaError, match=message):
            read_idx(path)
    (tmp_path / "cut.gz").write_bytes(gzip.compress(idx(np.arange(99, dtype=np.uint8)))[:-12])
    with pytest.raises(SondaError, match=r"cannot read .*cut.gz"):
        read_idx(tmp_path / "cut.gz")
    (tmp_path / "other.gz").write_bytes(b"not compressed at all")
    with pytest.raises(SondaError, match=r"cannot read .*other.gz"):
        read_idx(tmp_path / "other.gz")


def test_mnist_files_that_do_not_belong_together(tmp_path: Path) -> None:
    folder = mnist(tmp_path / "mnist")
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(SondaError, match="has t10k-images-idx3-ubyte but no t10k-labels-idx1-ubyte"):
        prepare(folder, tmp_path / "out")
    (folder / "t10k-labels-idx1-ubyte").write_bytes(idx(np.zeros(5, np.uint8)))
    with pytest.raises(SondaError, match=r"is 2 x 2 x 4 and t10k-labels-idx1-ubyte 5: they do not belong together"):
        prepare(folder, tmp_path / "out")


def record(label: int, red: int, green: int, blue: int) -> bytes:
    return bytes([label]) + bytes([red]) * 1024 + bytes([green]) * 1024 + bytes([blue]) * 1024


def test_cifar(tmp_path: Path) -> None:
    folder = tmp_path / "cifar"
    folder.mkdir()
    (folder / "data_batch_1.bin").write_bytes(record(3, 255, 0, 51) + record(9, 0, 255, 0))
    gradient = bytes([0]) + bytes(at % 256 for at in range(1024)) + bytes(2048)
    (folder / "data_batch_2.bin").write_bytes(gradient)
    (folder / "test_batch.bin").write_bytes(record(5, 1, 2, 3))
    made = prepare(folder, tmp_path / "out", colour="rgb")
    assert made.manifest.made.layout == "cifar10"
    assert made.images.shape == (4, 3, 32, 32)
    assert [made.classes[kind] for kind in sorted(made.labels)] == ["airplane", "cat", "dog", "truck"]
    values = np.rint(made.images.astype(float) * 255).astype(int)
    of = {made.classes[kind]: image for kind, image in zip(made.labels, values, strict=True)}
    assert of["cat"][:, 31, 5].tolist() == [255, 0, 51]
    assert made.labels[3] == 5 and of["dog"][:, 0, 0].tolist() == [1, 2, 3]
    assert of["airplane"][0, 2, 7] == 2 * 32 + 7  # planes lie by rows
    assert len(made.part("train")) == 3
    grey = prepare(folder, tmp_path / "grey", image=(8, 8))
    assert grey.images.shape == (4, 1, 8, 8)


def test_broken_cifar_files(tmp_path: Path) -> None:
    (tmp_path / "data_batch_1.bin").write_bytes(bytes(3073 + 1))
    with pytest.raises(SondaError, match=r"has 3,074 bytes, which is no whole number of records of 3073"):
        prepare(tmp_path, tmp_path.parent / "out")
    (tmp_path / "data_batch_1.bin").write_bytes(record(10, 0, 0, 0))
    with pytest.raises(SondaError, match="has a record of class 10, and CIFAR-10 has 0 to 9"):
        prepare(tmp_path, tmp_path.parent / "out")
    (tmp_path / "data_batch_1.bin").rename(tmp_path / "data_batch_1")
    with pytest.raises(SondaError, match="pickled: reading it could run anything; take the binary version"):
        prepare(tmp_path, tmp_path.parent / "out")


def fish(root: Path, kinds: dict[str, tuple[int, int]]) -> Path:
    """For every kind the level of its photograph and of its silhouette."""
    for name, (photograph, mask) in kinds.items():
        for folder, level in ((name, photograph), (f"{name} GT", mask)):
            (root / name / folder).mkdir(parents=True)
            (root / name / folder / "00001.png").write_bytes(grey_png(level))
    return root


def test_the_fish_data_set(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    fish(archive / "Fish_Dataset" / "Fish_Dataset", {"Hourse Mackerel": (102, 255), "Trout": (51, 0)})
    (archive / "Fish_Dataset" / "Fish_Dataset" / "license.txt").write_text("a licence")
    (archive / "NA_Fish_Dataset" / "Trout").mkdir(parents=True)
    (archive / "NA_Fish_Dataset" / "Trout" / "00001.png").write_bytes(grey_png(9))
    masks = prepare(archive, tmp_path / "masks")
    assert (masks.manifest.made.layout, masks.classes) == ("fish", ("Hourse Mackerel", "Trout"))
    assert [masks.images[masks.labels == kind][0, 0, 0, 0] for kind in (0, 1)] == [1, 0]
    photographs = prepare(archive, tmp_path / "photographs", layout="fish-photos")
    assert [float(photographs.images[photographs.labels == kind][0, 0, 0, 0]) for kind in (0, 1)] == pytest.approx(
        [0.4, 0.2], abs=2e-4
    )


def test_a_kind_of_fish_without_silhouettes_does_not_vanish(tmp_path: Path) -> None:
    root = fish(tmp_path / "fish", {"Trout": (1, 2), "Shrimp": (3, 4)})
    (root / "Shrimp" / "Shrimp GT" / "00001.png").unlink()
    (root / "Shrimp" / "Shrimp GT").rmdir()
    with pytest.raises(SondaError, match="class 'Shrimp' has no images"):
        prepare(root, tmp_path / "out")
    assert prepare(root, tmp_path / "out", layout="fish-photos").classes == ("Shrimp", "Trout")


def test_two_fish_data_sets_are_not_mixed(tmp_path: Path) -> None:
    for name in ("one", "two"):
        fish(tmp_path / "both" / name, {"Trout": (1, 2)})
    with pytest.raises(SondaError, match="holds 2 fish data sets; give one of them"):
        prepare(tmp_path / "both", tmp_path / "out")
    (tmp_path / "plain" / "a").mkdir(parents=True)
    with pytest.raises(SondaError, match="does not have the layout of the fish data set"):
        prepare(tmp_path / "plain", tmp_path / "out", layout="fish")
