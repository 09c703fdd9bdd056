"""A folder of images becomes arrays on disk: right values, same bytes every time, whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from data_examples import grey_png, png, write_folder
from sonda.record.errors import SondaError
from sonda.workloads.data import load, preparation, prepare
from sonda.workloads.data.resize import resize, to_unit

torch.set_num_threads(1)


def nothing_but(place: Path, *names: str) -> None:
    assert sorted(path.name for path in place.iterdir()) == sorted(names)


def levels(place: Path) -> list[tuple[str, float]]:
    """Class and first pixel of every image, in order."""
    data = load(place)
    return [(data.classes[kind], float(image[0, 0, 0])) for kind, image in zip(data.labels, data.images, strict=True)]


def test_values_classes_and_order(tmp_path: Path) -> None:
    write_folder(tmp_path / "set", {"b": [0, 51, 102], "a": [255, 204]})
    made = prepare(tmp_path / "set", tmp_path / "out", seed=5)
    assert made.classes == ("a", "b")
    assert made.images.shape == (5, 1, 6, 8)
    assert (made.images.dtype, made.labels.dtype) == (np.float16, np.int64)
    expected = {("a", 1.0), ("a", 0.8), ("b", 0.0), ("b", 0.2), ("b", 0.4)}
    found = levels(tmp_path / "out")
    assert {(kind, round(value, 3)) for kind, value in found} == expected
    # Files sorted by class and name, then permuted by NumPy's generator.
    in_order = [("a", 1.0), ("a", 0.8), ("b", 0.0), ("b", 0.2), ("b", 0.4)]
    wanted = [in_order[at] for at in np.random.default_rng(5).permutation(5)]
    assert [(kind, round(value, 3)) for kind, value in found] == wanted
    assert not made.images.flags.writeable and not made.labels.flags.writeable


def test_all_256_levels_stay_apart(tmp_path: Path) -> None:
    write_folder(tmp_path / "set", {"a": range(256)}, 2, 1)
    made = prepare(tmp_path / "set", tmp_path / "out")
    assert len(np.unique(made.images)) == 256
    assert np.abs(np.sort(made.images[:, 0, 0, 0].astype(float)) - np.arange(256) / 255).max() <= 2**-12


def test_the_same_bytes_again_and_in_blocks_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "set", {"a": range(0, 99, 9), "b": range(5, 60, 5)}, 16, 12)
    for name, block in (("one", 1 << 21), ("two", 1 << 25), ("small", 1)):
        monkeypatch.setattr(preparation, "BLOCK", block)
        prepare(tmp_path / "set", tmp_path / name, image=(7, 5), colour="rgb", seed=3)
    for file in ("images.npy", "labels.npy", "manifest.json"):
        contents = {(tmp_path / name / file).read_bytes() for name in ("one", "two", "small")}
        assert len(contents) == 1, file
    other = prepare(tmp_path / "set", tmp_path / "other", image=(7, 5), colour="rgb", seed=4)
    assert not np.array_equal(other.images, load(tmp_path / "one").images)


@pytest.mark.parametrize("size", [(64, 48), (97, 101), (300, 210), (1, 1), (7, 90)], ids=str)
def test_resizing_is_what_pytorch_does(size: tuple[int, int]) -> None:
    image = np.random.default_rng(0).random((2, 3, 90, 120)).astype(np.float32)
    reference = torch.nn.functional.interpolate(
        torch.from_numpy(image).double(), size=size[::-1], mode="bilinear", antialias=True, align_corners=False
    )
    assert np.abs(resize(image, *size) - reference.numpy()).max() < 1e-6


def test_grey_is_brightness_and_transparency_is_black() -> None:
    pixels = np.array([[[[255, 0, 0, 255], [0, 255, 0, 255], [0, 0, 255, 255], [255, 255, 255, 51]]]], np.uint8)
    assert to_unit(pixels, 1)[0, 0, 0] == pytest.approx([0.299, 0.587, 0.114, 0.2])
    assert to_unit(pixels, 3)[0, :, 0, 3] == pytest.approx([0.2] * 3)
    assert to_unit(np.array([[[[65535], [13107]]]], np.uint16), 3)[0, :, 0].tolist() == [[1.0, pytest.approx(0.2)]] * 3


def test_broken_and_odd_images_are_named_skipped_and_counted(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "set", {"a": [10, 20, 30], "b": [40, 50]})
    (folder / "a" / "cut.png").write_bytes(grey_png(1)[:-20])
    (folder / "a" / "empty.png").write_bytes(b"")
    (folder / "b" / "flipped.png").write_bytes(grey_png(1).replace(b"IDAT", b"IDAX", 1))
    (folder / "b" / "portrait.png").write_bytes(grey_png(1, 6, 12))
    (folder / "b" / "square.png").write_bytes(grey_png(77, 8, 8))
    (folder / "b" / "notes.txt").write_text("no image")
    (folder / "b" / ".hidden.png").write_bytes(b"")
    os.mkdir(folder / "b" / "dir.png")
    (folder / "readme.md").write_text("beside the classes")
    made = prepare(folder, tmp_path / "out")
    reasons = {one.name: one.reason for one in made.manifest.skipped}
    assert sorted(reasons) == ["a/cut.png", "a/empty.png", "b/flipped.png", "b/notes.txt", "b/portrait.png"]
    assert all(reasons.values())
    assert reasons["a/empty.png"] == "no image that Pillow knows"
    assert reasons["b/portrait.png"] == "6x12 pixels: width/height 0.5, usual is 1.33"
    assert made.manifest.counts == (3, 3)
    assert prepare(folder, tmp_path / "wide", stretch=3).manifest.counts == (3, 4)


def test_a_class_without_images(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "set", {"a": [1, 2], "none": []})
    with pytest.raises(SondaError, match=r"class 'none' has no images"):
        prepare(folder, tmp_path / "out")
    (folder / "none" / "x.png").write_bytes(grey_png(1)[:60])
    (folder / "a" / "0.png").write_bytes(b"comes first, and is of another class")
    with pytest.raises(SondaError, match=r"no image of class 'none' can be used \(none/x.png: "):
        prepare(folder, tmp_path / "out")
    nothing_but(tmp_path, "set")


def test_names_that_are_no_text(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "set", {"a": [1]})
    strange = os.fsdecode(b"caf\xe9")
    (folder / strange).mkdir()
    (folder / strange / os.fsdecode(b"\xff.png")).write_bytes(b"broken")
    (folder / strange / "good.png").write_bytes(grey_png(3))
    made = prepare(folder, tmp_path / "out")
    assert made.classes == ("a", "caf\\xe9")
    assert [one.name for one in made.manifest.skipped] == ["caf\\xe9/\\xff.png"]


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    write_folder(tmp_path / "set", {"a": range(50)}, 64, 48)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # 50 images are 307,200 bytes
    try:
        with pytest.raises(SondaError, match=r"cannot write .*out: File too large; choose another place"):
            prepare(tmp_path / "set", tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    nothing_but(tmp_path, "set")


def test_too_little_space_is_said_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "set", {"a": range(9)}, 4, 3)
    monkeypatch.setattr(preparation.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))
    with pytest.raises(SondaError, match=r"9 images need 14,496 MB and .* has 1,000 MB left"):
        prepare(
            tmp_path / "set", tmp_path / "out", image=(16384, 16384), colour="rgb"
        )  # 9 x 16384 x 16384 x 3 x 2 bytes
    nothing_but(tmp_path, "set")


def test_killed_in_the_middle_then_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "set", {"a": range(40)}, 16, 12)
    monkeypatch.setattr(preparation, "BLOCK", 1)

    def stop(text: str) -> None:
        if text.startswith("prepared 2"):
            os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(preparation, "SAY_EVERY_S", -1)
    child = os.fork()
    if not child:
        try:
            prepare(tmp_path / "set", tmp_path / "out", say=stop)
        finally:
            os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    left = [path for path in tmp_path.iterdir() if path.name.startswith(".partial-")]
    assert len(left) == 1 and (left[0] / "images.npy").is_file(), "it was killed while writing"
    assert not (tmp_path / "out").exists()
    assert len(prepare(tmp_path / "set", tmp_path / "out")) == 40
    nothing_but(tmp_path, "set", "out")


def test_interrupted_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "set", {"a": range(40)})
    monkeypatch.setattr(preparation, "SAY_EVERY_S", -1)

    def stop(text: str) -> None:
        if text.startswith("prepared 2"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(tmp_path / "set", tmp_path / "out", say=stop)
    nothing_but(tmp_path, "set")


def test_what_stands_there_is_not_overwritten_unless_asked(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "set", {"a": [10, 20]})
    prepare(folder, tmp_path / "out")
    with pytest.raises(SondaError, match="out exists; give another place with -o, or --replace it"):
        prepare(folder, tmp_path / "out")
    (folder / "a" / "new.png").write_bytes(grey_png(30))
    assert len(prepare(folder, tmp_path / "out", replace=True)) == 3
    with pytest.raises(SondaError, match="set exists and is no prepared data set"):
        prepare(folder, folder, replace=True)
    nothing_but(tmp_path, "set", "out")


def test_an_old_data_set_that_cannot_be_replaced_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, out = write_folder(tmp_path / "set", {"a": [10, 20]}), tmp_path / "out"
    prepare(folder, out)
    rename, refused = Path.rename, []

    def once(self: Path, target: Path) -> Path:
        if Path(target) == out and not refused:
            refused.append(self)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(self, target)

    with monkeypatch.context() as during, pytest.raises(SondaError, match=r"cannot write .*Input/output error"):
        during.setattr(Path, "rename", once)
        prepare(folder, out, replace=True)
    assert len(load(out)) == 2
    nothing_but(tmp_path, "set", "out")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image": (0, 5)}, "an image of 0x5 pixels"),
        ({"image": (5, 10**6)}, "an image of 5x1000000 pixels"),
        ({"colour": "sepia"}, "there is no colour 'sepia'; known: grey, rgb"),
        ({"seed": -1}, "seed -1 is below 0"),
        ({"stretch": 0.5}, "a stretch of 0.5 is below 1"),
        ({"stretch": float("nan")}, "a stretch of nan"),
        ({"layout": "zip"}, "there is no layout 'zip'"),
    ],
)
def test_wrong_options_are_one_line(tmp_path: Path, options: dict, message: str) -> None:
    write_folder(tmp_path / "set", {"a": [1]})
    with pytest.raises(SondaError, match=message):
        prepare(tmp_path / "set", tmp_path / "out", **options)
    nothing_but(tmp_path, "set")


def test_wrong_folders_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(SondaError, match="there is no folder"):
        prepare(tmp_path / "missing", tmp_path / "out")
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "x.png").write_bytes(grey_png(1))
    with pytest.raises(SondaError, match="holds no directories, and each class is one"):
        prepare(tmp_path / "flat", tmp_path / "out")
    with pytest.raises(SondaError, match="out lies inside the folder that is read"):
        prepare(tmp_path / "flat", tmp_path / "flat" / "out")


def test_colour_and_deep_images_in_one_folder(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "set", {"a": [51]})
    red = np.full((6, 8, 3), (255, 0, 0))
    (folder / "a" / "red.PNG").write_bytes(png(red, 2, 8, [1, 2, 3, 4]))
    (folder / "a" / "deep.png").write_bytes(png(np.full((6, 8, 1), 32768), 0, 16, [2]))
    made = prepare(folder, tmp_path / "out")
    assert sorted(made.images[:, 0, 3, 3].astype(float)) == pytest.approx([0.2, 0.299, 32768 / 65535], abs=2e-4)


# ---- what is loaded ----------------------------------------------------------------------------------------------


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    write_folder(tmp_path / "set", {"a": [10, 20], "b": [30]})
    prepare(tmp_path / "set", tmp_path / "out")
    return tmp_path / "out"


def test_checksums(ready: Path) -> None:
    load(ready).verify()
    content = bytearray((ready / "images.npy").read_bytes())
    content[-1] ^= 1
    (ready / "images.npy").write_bytes(content)
    with pytest.raises(SondaError, match=r"images.npy is not what was prepared"):
        load(ready).verify()


def test_damaged_files_are_named(ready: Path) -> None:
    (ready / "images.npy").write_bytes((ready / "images.npy").read_bytes()[:-1])
    with pytest.raises(SondaError, match=r"images.npy has \d+ bytes where its manifest says \d+"):
        load(ready)
    (ready / "images.npy").unlink()
    with pytest.raises(SondaError, match=r"cannot read .*images.npy: No such file"):
        load(ready)


def test_a_class_that_there_cannot_be_takes_no_memory(ready: Path) -> None:
    labels = np.load(ready / "labels.npy")
    np.save(ready / "labels.npy", np.where(np.arange(len(labels)), labels, 1 << 50))
    with pytest.raises(SondaError, match=r"labels.npy has other classes than its manifest"):
        load(ready)


def test_objects_are_not_unpickled(ready: Path) -> None:
    np.save(ready / "labels.npy", np.array([print], object), allow_pickle=True)
    manifest = json.loads((ready / "manifest.json").read_text())
    manifest["files"]["labels.npy"]["bytes"] = (ready / "labels.npy").stat().st_size
    (ready / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(SondaError, match=r"cannot read .*labels.npy: .*Python objects"):
        load(ready)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("version", 2, "version 2"),
        ("counts", [2, 2], "contradict"),
        ("counts", [1, 2], "labels.npy has other classes"),
        ("shape", [3, 1, 8, 6], "not as its manifest says"),
        ("shape", [3, 1], "broken"),
        ("files", {}, "contradict"),
    ],
)
def test_a_manifest_that_lies(ready: Path, key: str, value: object, message: str) -> None:
    manifest = json.loads((ready / "manifest.json").read_text())
    (ready / "manifest.json").write_text(json.dumps({**manifest, key: value}))
    with pytest.raises(SondaError, match=message):
        load(ready)


def test_no_data_set(tmp_path: Path) -> None:
    with pytest.raises(SondaError, match=r"is no prepared data set: it has no manifest.json"):
        load(tmp_path)
