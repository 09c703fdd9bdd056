"""A prepared data set: its arrays, mapped into memory, and its manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sonda.record.errors import SondaError
from sonda.workloads.data.manifest import IMAGES, LABELS, Manifest, file_entry, read_manifest
from sonda.workloads.data.splits import split


@dataclass(frozen=True, eq=False)
class Prepared:
    """Images x channels x height x width of float16 in [0, 1], memory-mapped, and their classes.

    Both are read-only NumPy arrays; TensorFlow and JAX take them as they are.
    """

    directory: Path
    manifest: Manifest
    images: np.ndarray
    labels: np.ndarray
    """Class of each image, int64, an index into `classes`."""

    @property
    def classes(self) -> tuple[str, ...]:
        return self.manifest.classes

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, name: str) -> np.ndarray:
        """Numbers of the images of a part that the data came with, such as MNIST's `train` and `test`.

        Raises SondaError where there is no such part.
        """
        start = 0
        for part in self.manifest.parts:
            if part.name == name:
                return np.arange(start, start + part.count)
            start += part.count
        known = ", ".join(part.name for part in self.manifest.parts) or "none"
        raise SondaError(f"{self.directory} came without a part {name!r} (parts: {known})", "split it by fractions")

    def split(self, fractions: Sequence[float], seed: int = 0, of: str = "") -> list[np.ndarray]:
        """Numbers of the images of each share, every class in proportion. `of`: divide this part only. See `split`."""
        numbers = self.part(of) if of else np.arange(len(self))
        return [numbers[share] for share in split(self.labels[numbers], fractions, seed)]

    def verify(self, say: Callable[[int, int], None] | None = None) -> None:
        """Read both files and compare their checksums. Raises SondaError naming a file that differs."""
        for name, entry in self.manifest.files.items():
            if file_entry(self.directory / name, say) != entry:
                raise SondaError(f"{self.directory / name} is not what was prepared", "prepare the data set again")

    def __reduce__(self) -> tuple[Callable[[Path], Prepared], tuple[Path]]:
        # A loader's workers map the files themselves; otherwise all images would be sent to every worker.
        return load, (self.directory,)


def load(directory: str | Path) -> Prepared:
    """Load a data set that `prepare` made. Checks sizes and classes; `verify` checks checksums. Raises SondaError."""
    place = Path(directory)
    manifest = read_manifest(place)
    images, labels = _array(place, IMAGES, manifest), _array(place, LABELS, manifest)
    if images.shape != manifest.shape or images.dtype != np.float16:
        raise SondaError(
            f"{place / IMAGES} is {images.dtype} {images.shape}, not as its manifest says", "prepare it again"
        )
    if labels.shape != manifest.shape[:1] or labels.dtype != np.int64:
        raise SondaError(
            f"{place / LABELS} is {labels.dtype} {labels.shape}, not as its manifest says", "prepare it again"
        )
    labels = np.array(labels)
    labels.flags.writeable = False
    kinds = len(manifest.classes)
    # Checked first: `bincount` allocates memory up to the largest number.
    out_of_range = labels.min() < 0 or labels.max() >= kinds
    if out_of_range or np.bincount(labels, minlength=kinds).tolist() != list(manifest.counts):
        raise SondaError(f"{place / LABELS} has other classes than its manifest", "prepare the data set again")
    return Prepared(place, manifest, np.asarray(images), labels)


def _array(place: Path, name: str, manifest: Manifest) -> np.ndarray:
    path = place / name
    try:
        size = path.stat().st_size
        if size != manifest.files[name].bytes:
            raise SondaError(
                f"{path} has {size:,} bytes where its manifest says {manifest.files[name].bytes:,}", "prepare it again"
            )
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SondaError(f"cannot read {path}: {reason}", "prepare the data set again") from None


# ---- Batches of a prepared data set as NumPy arrays, for any framework ----------------------------------------------


def epoch_order(numbers: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """The image numbers in the order of an epoch. It depends only on seed and epoch."""
    return np.random.default_rng([seed, epoch]).permutation(numbers)


def batches(
    prepared: Prepared, numbers: np.ndarray, size: int, *, drop_last: bool = False
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Images (float16) and classes of `size` images at a time, in the order of `numbers`, as copies."""
    if size < 1:
        raise SondaError(f"a batch of {size}", "give 1 or more")
    for begin in range(0, len(numbers), size):
        chosen = numbers[begin : begin + size]
        if drop_last and len(chosen) < size:
            return
        yield prepared.images[chosen], prepared.labels[chosen]
