"""Layouts of image folders, and how each is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sonda.record.errors import SondaError, nearest
from sonda.workloads.data.cifar import has_cifar, read_cifar
from sonda.workloads.data.fish_folder import fish_root, read_fish
from sonda.workloads.data.folder import read_folder
from sonda.workloads.data.idx import has_idx, read_idx_folder
from sonda.workloads.data.source import ImageSource

LAYOUTS: dict[str, Callable[[Path], ImageSource]] = {
    "folder": read_folder,
    "fish": read_fish,
    "fish-photos": lambda folder: read_fish(folder, photographs=True),
    "idx": read_idx_folder,
    "cifar10": read_cifar,
}


def open_source(folder: Path, layout: str = "auto") -> ImageSource:
    """The images in a folder. `auto` detects the layout by the names in it. Raises SondaError for an unknown layout."""
    if not folder.is_dir():
        raise SondaError(f"there is no folder {folder}", "give a folder of images")
    if layout == "auto":
        layout = _detect_layout(folder)
    if layout not in LAYOUTS:
        raise SondaError(f"there is no layout {layout!r}", nearest(layout, ["auto", *LAYOUTS]))
    return LAYOUTS[layout](folder)


def _detect_layout(folder: Path) -> str:
    if has_idx(folder):
        return "idx"
    if has_cifar(folder):
        return "cifar10"
    return "fish" if fish_root(folder) else "folder"
