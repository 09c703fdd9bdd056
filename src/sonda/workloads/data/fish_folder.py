"""The layout of "A Large-Scale Dataset for Fish Segmentation and Classification" (Ulucan, Karakaya, Turkan, 2020).

    Trout/Trout/00001.png       a photograph
    Trout/Trout GT/00001.png    its silhouette

The archive wraps this in one or two more directories, which may be given as well. `sonda data make fish` writes the
same layout, without photographs, and a file that says how the fish were drawn.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from sonda.record.errors import SondaError
from sonda.workloads.data.folder import FolderSource, directories, gather

MASKS = " GT"
DRAWN_FILE = "drawn.json"
"""File that the generator writes beside the kinds."""
WRAPPINGS = 2
"""Number of directories of the archive around the kinds, at most."""


def fish_root(folder: Path) -> Path | None:
    """The folder with the kinds of fish: this one, or one inside of it; None where it has another layout."""
    level = [folder]
    for _ in range(WRAPPINGS + 1):
        roots = [place for place in level if any(_masks(kind).is_dir() for kind in directories(place))]
        if len(roots) > 1:
            raise SondaError(f"{folder} holds {len(roots)} fish data sets", f"give one of them, such as {roots[0]}")
        if roots:
            return roots[0]
        level = [inner for place in level for inner in directories(place)]
    return None


def read_fish(folder: Path, photographs: bool = False) -> FolderSource:
    """Silhouettes (layout `fish`) or photographs (`fish-photos`) by kind. Raises SondaError for another layout."""
    root = fish_root(folder)
    if root is None:
        raise SondaError(
            f"{folder} does not have the layout of the fish data set (Trout/Trout GT/00001.png)",
            "leave out --layout, or give the folder above the kinds",
        )
    # A kind that lacks one of its two directories is still a kind: it must not vanish from the classes silently.
    kinds = [kind for kind in directories(root) if _masks(kind).is_dir() or (kind / kind.name).is_dir()]
    classes = [(kind.name, kind / kind.name if photographs else _masks(kind)) for kind in kinds]
    return replace(gather("fish-photos" if photographs else "fish", root, classes), origin=_origin(root))


def _masks(kind: Path) -> Path:
    return kind / (kind.name + MASKS)


def _origin(root: Path) -> dict[str, str]:
    try:
        return msgspec.json.decode((root / DRAWN_FILE).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError):
        return {}
