"""The manifest of a prepared data set: what it holds, how it was made, and checksums of its files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from sonda.record.errors import SondaError
from sonda.workloads.data.source import Skipped

FORMAT = "sonda-data"
VERSION = 1
MANIFEST, IMAGES, LABELS = "manifest.json", "images.npy", "labels.npy"
HASHED_AT_ONCE = 1 << 22


class FileEntry(msgspec.Struct, frozen=True):
    """A file of the data set: its size in bytes and its SHA-256."""

    bytes: int
    sha256: str


class DataPart(msgspec.Struct, frozen=True):
    """Images that came as one part (train, test); they are contiguous in the arrays."""

    name: str
    count: int


class PreparationRecord(msgspec.Struct, frozen=True):
    """How the arrays were made. The same source and the same values here give the same bytes."""

    sonda: str
    layout: str
    source: str
    """Name of the folder, without its path."""
    seed: int
    """Seed of the order: NumPy's PCG64 permutes the images of each part, which are sorted by name before."""
    colour: str
    image: tuple[int, int]
    """Width and height in pixels."""
    stretch: float
    origin: dict[str, str] = {}
    """How the source itself was made, where it says so."""


class Manifest(msgspec.Struct, frozen=True):
    """Everything about a prepared data set except its pixels."""

    format: str
    version: int
    classes: tuple[str, ...]
    counts: tuple[int, ...]
    """Images of each class."""
    shape: tuple[int, int, int, int]
    """Images, channels, height, width."""
    parts: tuple[DataPart, ...]
    skipped: tuple[Skipped, ...]
    made: PreparationRecord
    files: dict[str, FileEntry]


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a prepared data set. Raises SondaError where it is missing, broken or contradictory."""
    path = directory / MANIFEST
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        raise SondaError(
            f"{directory} is no prepared data set: it has no {MANIFEST}", "make one with: sonda data prepare FOLDER"
        ) from None
    except OSError as error:
        raise SondaError(f"cannot read {path}: {error.strerror}", "make it readable") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SondaError(f"{path} is broken: {error}", "prepare the data set again") from None
    if manifest.format != FORMAT or manifest.version != VERSION:
        raise SondaError(
            f"{path} is {manifest.format!r}, version {manifest.version}, and this Sonda reads {FORMAT!r}, {VERSION}",
            "prepare the data set again",
        )
    count = manifest.shape[0]
    if (
        len(manifest.classes) != len(manifest.counts)
        or min(manifest.shape) < 1
        or min(manifest.counts, default=0) < 0
        or sum(manifest.counts) != count
        or (manifest.parts and sum(part.count for part in manifest.parts) != count)
        or set(manifest.files) != {IMAGES, LABELS}
    ):
        raise SondaError(f"{path}: its numbers contradict each other", "prepare the data set again")
    return manifest


def file_entry(path: Path, say: Callable[[int, int], None] | None = None) -> FileEntry:
    """Size and checksum of a file, read in pieces. `say` is called with the bytes read so far and those of the file."""
    checksum, size = hashlib.sha256(), 0
    with open(path, "rb") as file:
        whole = os.fstat(file.fileno()).st_size
        while piece := file.read(HASHED_AT_ONCE):
            checksum.update(piece)
            size += len(piece)
            if say:
                say(size, whole)
    return FileEntry(size, checksum.hexdigest())
