"""A folder of images, one directory per class."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sonda.record.errors import SondaError
from sonda.workloads.data.image_file import SUFFIXES, image_size, read_image, require_images
from sonda.workloads.data.source import ImageSource, Skipped


@dataclass(frozen=True, kw_only=True)
class FolderSource(ImageSource):
    """Image files with their classes, as `read_folder` and `read_fish` give them."""

    files: tuple[Path, ...]
    root: Path

    def title(self, number: int) -> str:
        return title(self.files[number], self.root)

    def size(self, number: int) -> tuple[int, int]:
        return image_size(self.files[number])

    def read(self, number: int) -> np.ndarray:
        return read_image(self.files[number])


def read_folder(root: Path) -> FolderSource:
    """The images of a folder. Every directory of `root` is a class with all images below it, hidden ones apart."""
    return gather("folder", root, [(path.name, path) for path in directories(root)])


def gather(layout: str, root: Path, classes: Iterable[tuple[str, Path]]) -> FolderSource:
    """The images below each class's directory, in order of their names.

    Raises SondaError where a class has none, or nothing here reads images.
    """
    require_images()
    names: list[str] = []
    files: list[Path] = []
    labels: list[int] = []
    left_out: list[Skipped] = []
    for name, directory in classes:
        images, others = _images(directory) if directory.is_dir() else ([], [])
        left_out += [Skipped(title(path, root), "not named like an image") for path in others]
        if not images:
            raise SondaError(
                f"class {printable(name)!r} has no images in {directory}", "put some there, or take the directory away"
            )
        labels += [len(names)] * len(images)
        files += images
        names.append(printable(name))
    if not names:
        raise SondaError(
            f"{root} holds no directories, and each class is one", "give the folder above the classes' directories"
        )
    return FolderSource(
        layout=layout, name=printable(root.resolve().name), classes=tuple(names), labels=np.array(labels, np.int64),
        left_out=tuple(left_out), files=tuple(files), root=root,
    )  # fmt: skip


def directories(root: Path) -> list[Path]:
    """The directories in a folder, sorted by name, without hidden ones. Raises SondaError where it cannot be read."""
    try:
        return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith((".", "__MACOSX")))
    except OSError as error:
        raise SondaError(f"cannot read the folder {root}: {error.strerror}", "give a folder of images") from None


def title(path: Path, root: Path) -> str:
    """A file's path below the root, as printable text."""
    return printable(path.relative_to(root).as_posix())


def printable(name: str) -> str:
    # A file name is bytes to the system, and may not be valid text.
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _images(directory: Path) -> tuple[list[Path], list[Path]]:
    """Files below a directory, sorted: those named like images, and the others."""
    images: list[Path] = []
    others: list[Path] = []
    for place, inner, names in os.walk(directory, onerror=_refuse):
        inner[:] = [name for name in inner if not name.startswith(".")]
        for name in names:
            if not name.startswith("."):
                path = Path(place, name)
                (images if path.suffix.lower() in SUFFIXES else others).append(path)
    return sorted(images), sorted(others)


def _refuse(error: OSError) -> None:
    raise SondaError(f"cannot read {error.filename}: {error.strerror}", "make it readable, or take it away")
