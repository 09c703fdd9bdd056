"""Prepares images of any source: two arrays and a manifest on disk, complete or not at all.

Images are read in their final order. A broken image is simply not written, and only one block of images is in memory at
a time.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec
import numpy as np

from sonda.record.errors import SondaError, nearest
from sonda.record.files.partial import PARTIAL, discard, is_abandoned, partial_path
from sonda.record.progress import Say
from sonda.version import VERSION as SONDA
from sonda.workloads.data.image_file import BadImageError
from sonda.workloads.data.layouts import open_source
from sonda.workloads.data.manifest import (
    FORMAT,
    IMAGES,
    LABELS,
    MANIFEST,
    VERSION,
    DataPart,
    Manifest,
    PreparationRecord,
    file_entry,
    read_manifest,
)  # fmt: skip
from sonda.workloads.data.prepared import Prepared, load
from sonda.workloads.data.resize import resize, to_unit
from sonda.workloads.data.source import ImageSource, Skipped

BLOCK = 1 << 21
"""Bytes of decoded images in one block, about a core's cache; a larger image is a block of its own."""
COLOURS = {"grey": 1, "rgb": 3}
STRETCH = 1.5
LARGEST = 1 << 14
SAY_EVERY_S = 0.5


def prepare(
    folder: str | Path,
    out: str | Path,
    *,
    image: tuple[int, int] | None = None,
    colour: str = "grey",
    seed: int = 0,
    layout: str = "auto",
    stretch: float = STRETCH,
    replace: bool = False,
    say: Say | None = None,
) -> Prepared:
    """Turn a folder of images into a data set that training maps into memory, and return it.

    `image` is (width, height) in pixels; by default the most frequent size. `colour` is grey or rgb. Broken images are
    skipped, and images whose width / height is more than `stretch` times off the usual; the manifest lists both.
    `replace`: replace an old data set. Raises SondaError, leaving nothing behind.
    """
    out = Path(out)
    _check(image, colour, seed, stretch)
    _check_place(Path(folder), out, replace)
    source = open_source(Path(folder), layout)
    return prepare_source(source, out, image, colour, seed, stretch, replace, say)


def prepare_source(
    source: ImageSource,
    out: Path,
    image: tuple[int, int] | None,
    colour: str,
    seed: int,
    stretch: float = STRETCH,
    replace: bool = False,
    say: Say | None = None,
) -> Prepared:
    """The same for a source that is open already."""
    channels = _check(image, colour, seed, stretch)
    progress = _ProgressReporter(say)
    size, unfit, decoded = _survey(source, image, stretch, progress)
    with _whole_directory(out, replace) as directory:
        order = _order(source, seed)
        needed = len(order) * channels * size[0] * size[1] * 2
        free = shutil.disk_usage(directory).free
        if needed > free:
            raise SondaError(
                f"{len(order):,} images need {_bytes(needed)} and {out.parent} has {_bytes(free)} left",
                "free some space, give a smaller --image, or another place with -o",
            )
        written, skipped = _write_images(directory / IMAGES, source, order, size, channels, unfit, decoded, progress)
        labels = source.labels[written]
        counts = np.bincount(labels, minlength=len(source.classes))
        _check_classes(source, counts, skipped)
        np.save(directory / LABELS, labels, allow_pickle=False)
        entries = {name: file_entry(directory / name, progress.report_checksum) for name in (IMAGES, LABELS)}
        made = PreparationRecord(SONDA, source.layout, source.name, seed, colour, size, stretch, source.origin)
        manifest = Manifest(
            FORMAT, VERSION, source.classes, tuple(counts.tolist()), (len(written), channels, size[1], size[0]),
            _parts(source, written), (*source.left_out, *skipped), made, entries,
        )  # fmt: skip
        text = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
        (directory / MANIFEST).write_bytes(text + b"\n")
    return load(out)


def _bytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB" if count >= 1e6 else f"{count / 1e3:,.0f} kB"


def _check(image: tuple[int, int] | None, colour: str, seed: int, stretch: float) -> int:
    if image is not None and not (1 <= image[0] <= LARGEST and 1 <= image[1] <= LARGEST):
        raise SondaError(f"an image of {image[0]}x{image[1]} pixels", f"give 1 to {LARGEST} each, such as 197x148")
    if colour not in COLOURS:
        raise SondaError(f"there is no colour {colour!r}", nearest(colour, COLOURS))
    if seed < 0:
        raise SondaError(f"seed {seed} is below 0", "give 0 or more")
    if not stretch >= 1:
        raise SondaError(f"a stretch of {stretch:g} is below 1", "give 1 (none) or more, such as 1.5")
    return COLOURS[colour]


def _check_place(folder: Path, out: Path, replace: bool) -> None:
    """Raise SondaError where `out` exists, unless it is a data set to replace, or where it is inside of `folder`."""
    if folder.resolve() in out.resolve().parents:
        raise SondaError(f"{out} lies inside the folder that is read", "give another place with -o")
    if not out.exists() and not out.is_symlink():
        return
    if not replace:
        raise SondaError(f"{out} exists", "give another place with -o, or --replace it")
    if not (out / MANIFEST).is_file():
        raise SondaError(f"{out} exists and is no prepared data set", "give another place with -o")
    read_manifest(out)


def _order(source: ImageSource, seed: int) -> np.ndarray:
    """Numbers of all images, shuffled within each part."""
    random = np.random.default_rng(seed)
    ends = np.cumsum([count for _, count in source.parts] or [len(source.labels)])
    starts = [0, *ends[:-1].tolist()]
    return np.concatenate(
        [start + random.permutation(int(end) - start) for start, end in zip(starts, ends, strict=True)]
    )


def _survey(
    source: ImageSource, image: tuple[int, int] | None, stretch: float, progress: _ProgressReporter
) -> tuple[tuple[int, int], dict[int, str], int]:
    """The size to resize to, the reasons why some images are unfit, and the most pixels of a fit image."""
    sizes: list[tuple[int, int]] = []
    unfit: dict[int, str] = {}
    for number in range(len(source.labels)):
        progress.report_images("looked at", number, len(source.labels))
        try:
            sizes.append(source.size(number))
        except BadImageError as error:
            sizes.append((0, 0))
            unfit[number] = str(error)
    pixels = np.array(sizes, np.int64)
    good = pixels[:, 0] > 0
    if not good.any():
        reason = next(iter(unfit.values()))
        raise SondaError(f"none of the {len(sizes):,} images can be read ({reason})", "give a folder of images")
    shapes = np.log(pixels[good, 0] / pixels[good, 1])
    usual = np.sort(shapes)[len(shapes) // 2]
    odd = np.flatnonzero(good)[np.abs(shapes - usual) > np.log(stretch) + 1e-9]
    for number in odd.tolist():
        width, height = sizes[number]
        unfit[number] = f"{width}x{height} pixels: width/height {width / height:.3g}, usual is {np.exp(usual):.3g}"
    fit = np.delete(pixels, list(unfit), axis=0)
    different, times = np.unique(fit, axis=0, return_counts=True)
    common = different[times.argmax()]
    return image or (int(common[0]), int(common[1])), unfit, int(fit.prod(axis=1).max())


def _write_images(
    path: Path, source: ImageSource, order: np.ndarray, size: tuple[int, int], channels: int, unfit: dict[int, str],
    decoded: int, progress: _ProgressReporter,
) -> tuple[np.ndarray, list[Skipped]]:  # fmt: skip
    """Write the images that can be read, in order. Returns their numbers, and the skipped images with reasons."""
    written: list[int] = []
    skipped: list[tuple[int, Skipped]] = []
    # Each image is in memory decoded and in its final size, with up to four channels of float32.
    block = max(1, BLOCK // (16 * max(decoded, size[0] * size[1])))
    with open(path, "wb") as file:
        start = _write_header(file, 0, channels, size)
        for begin in range(0, len(order), block):
            good: list[np.ndarray] = []
            for number in order[begin : begin + block].tolist():
                progress.report_images("prepared", begin + len(good), len(order))
                try:
                    if number in unfit:
                        raise BadImageError(unfit[number])
                    good.append(source.read(number))
                except BadImageError as error:
                    skipped.append((number, Skipped(source.title(number), str(error))))
                    continue
                written.append(number)
            for stack in _stacks(good):
                file.write(resize(to_unit(stack, channels), *size).astype(np.float16, order="C").data)
        file.seek(0)
        if _write_header(file, len(written), channels, size) != start:
            raise AssertionError("the header of images.npy changed its length")
    return np.array(written, np.int64), [image for _, image in sorted(skipped, key=lambda pair: pair[0])]


def _write_header(file: IO[bytes], count: int, channels: int, size: tuple[int, int]) -> int:
    """Write the header of an .npy file, and return its length. NumPy pads it so that the first axis may grow: it is
    written again when the count is known."""
    shape = (count, channels, size[1], size[0])
    np.lib.format.write_array_header_1_0(file, {"descr": "<f2", "fortran_order": False, "shape": shape})
    return file.tell()


def _stacks(images: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    """Stacks of neighbouring images with equal shape and type."""
    begin = 0
    for end in range(1, len(images) + 1):
        if end == len(images) or (images[end].shape, images[end].dtype) != (images[begin].shape, images[begin].dtype):
            yield np.stack(images[begin:end])
            begin = end


def _check_classes(source: ImageSource, counts: np.ndarray, skipped: Sequence[Skipped]) -> None:
    if not counts.sum():
        raise SondaError(f"none of the images can be read ({skipped[0].name}: {skipped[0].reason})", "see the images")
    if source.parts:
        return  # a part of a published data set may lack a class
    for name, count in zip(source.classes, counts, strict=True):
        if not count:
            reasons = (f" ({image.name}: {image.reason})" for image in skipped if image.name.startswith(f"{name}/"))
            why = next(reasons, "")
            raise SondaError(
                f"no image of class {name!r} can be used{why}",
                "mend its images, or take its directory away",
            )


def _parts(source: ImageSource, written: np.ndarray) -> tuple[DataPart, ...]:
    ends = np.cumsum([count for _, count in source.parts])
    counts = np.bincount(np.searchsorted(ends, written, side="right"), minlength=len(ends))
    return tuple(DataPart(name, int(count)) for (name, _), count in zip(source.parts, counts, strict=False))


@contextmanager
def _whole_directory(out: Path, replace: bool) -> Iterator[Path]:
    """A temporary directory that is renamed to `out` when the block succeeds. Otherwise it is removed, and an old
    data set stays."""
    directory = partial_path(out.parent)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        for left in out.parent.glob(f"{PARTIAL}*"):
            if is_abandoned(left) and (left / IMAGES).is_file():
                discard(left)
        directory.mkdir()
        try:
            yield directory
            old = partial_path(out.parent)
            if replace and out.exists():
                out.rename(old)
            try:
                directory.rename(out)
            except BaseException:
                if old.exists() and not out.exists():
                    old.rename(out)
                raise
            discard(old)
        finally:
            discard(directory)
    except OSError as error:
        raise SondaError(
            f"cannot write {out}: {error.strerror or error}", "choose another place with -o, or free some space"
        ) from None


class _ProgressReporter:
    """Reports the progress of a long preparation from time to time."""

    def __init__(self, say: Say | None) -> None:
        self.say = say
        self._last_report = time.monotonic()

    def report_images(self, action: str, done: int, count: int) -> None:
        now = time.monotonic()
        if self.say and now - self._last_report > SAY_EVERY_S:
            self._last_report = now
            self.say(f"{action} {done:,} of {count:,} images")

    def report_checksum(self, done: int, whole: int) -> None:
        now = time.monotonic()
        if self.say and now - self._last_report > SAY_EVERY_S:
            self._last_report = now
            self.say(f"checksums, {done / 1e6:,.0f} of {whole / 1e6:,.0f} MB")
