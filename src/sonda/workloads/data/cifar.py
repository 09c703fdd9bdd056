"""Reads CIFAR-10 in its binary version (https://www.cs.toronto.edu/~kriz/cifar.html).

Each of `data_batch_1.bin` … `data_batch_5.bin` and `test_batch.bin` is a row of records: one byte for the class, then
1024 bytes of red, 1024 of green, 1024 of blue, each plane by rows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sonda.record.errors import SondaError
from sonda.workloads.data.source import ArraySource

SIDE = 32
RECORD = 1 + 3 * SIDE * SIDE
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
TRAIN, TEST = "data_batch_*.bin", "test_batch.bin"


def has_cifar(folder: Path) -> bool:
    return any(folder.glob(TRAIN)) or (folder / TEST).is_file() or (folder / "data_batch_1").is_file()


def read_cifar(folder: Path) -> ArraySource:
    """The training batches found in the folder and the test batch. Raises SondaError where one is broken."""
    if (folder / "data_batch_1").is_file() and not any(folder.glob(TRAIN)):
        raise SondaError(
            f"{folder} holds CIFAR-10's version for Python, which is pickled: reading it could run anything",
            "take the binary version (cifar-10-binary.tar.gz)",
        )
    parts, images, labels = [], [], []
    for part, files in (("train", sorted(folder.glob(TRAIN))), ("test", [folder / TEST])):
        records = [_records(file) for file in files if file.is_file()]
        if not records:
            continue
        # One file stays memory-mapped. Several files, 30 MB each, become one array.
        joined = records[0] if len(records) == 1 else np.concatenate(records)
        parts.append((part, len(joined)))
        labels.append(joined[:, 0].astype(np.int64))
        images.append(joined[:, 1:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1))
    if not parts:
        raise SondaError(f"{folder} has neither data_batch_1.bin nor {TEST}", "give the folder with CIFAR-10's files")
    return ArraySource(
        layout="cifar10", name=folder.resolve().name, classes=CLASSES, labels=np.concatenate(labels),
        parts=tuple(parts), images=images,
    )  # fmt: skip


def _records(file: Path) -> np.ndarray:
    try:
        size = file.stat().st_size
        if not size or size % RECORD:
            raise SondaError(
                f"{file} has {size:,} bytes, which is no whole number of records of {RECORD}",
                "take it from its archive again",
            )
        records = np.memmap(file, np.uint8, "r", shape=(size // RECORD, RECORD))
    except OSError as error:
        raise SondaError(f"cannot read {file}: {error.strerror}", "make it readable") from None
    largest = int(records[:, 0].max())
    if largest >= len(CLASSES):
        raise SondaError(
            f"{file} has a record of class {largest}, and CIFAR-10 has 0 to 9", "take it from its archive again"
        )
    return records
