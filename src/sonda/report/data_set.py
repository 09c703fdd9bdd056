"""A prepared data set on a screen: what it holds, class by class, and how it was made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sonda.report.screen import Screen
from sonda.report.table import Cell, Column, Table, build

SHOWN = 5
"""Skipped images that are named; all are in the manifest."""
FEW_SHARES = ("training", "validation", "test")


def render_data_set(
    directory: str,
    manifest: Any,
    shares: Sequence[Sequence[int]] = (),
    verified: bool = False,
    width: int | None = None,
    *,
    color: bool | None = None,
) -> str:
    """`manifest` is the data set's; `shares` are counts of images by class, for every share that was asked for."""
    screen = Screen(width, color)
    count, _, height, across = manifest.shape
    made = manifest.made
    size = manifest.files["images.npy"].bytes / 1e6
    right = " Its checksums are right." if verified else ""
    screen.line(directory, "bold")
    screen.line()
    screen.line(
        f"{count:,} images of {across}x{height}, {made.colour}, float16 in [0, 1], {size:,.1f} MB.{right}", "bold", 2, 2
    )
    origin = "".join(f", {key} {value}" for key, value in made.origin.items())
    screen.line(f"From {made.source} ({made.layout}), seed {made.seed}, sonda {made.sonda}{origin}", "", 2, 2)
    if manifest.parts:
        screen.items("Parts: ", [f"{part.name} {part.count:,}" for part in manifest.parts], ", ")
    screen.line()
    screen.table(classes_table(manifest, shares))
    if manifest.skipped:
        screen.line()
        screen.line(f"Skipped {len(manifest.skipped):,}", "yellow", 2)
        for one in manifest.skipped[:SHOWN]:
            screen.line(f"{one.name}: {one.reason}", "", 4, 2)
        if len(manifest.skipped) > SHOWN:
            screen.line(f"and {len(manifest.skipped) - SHOWN:,} more, in manifest.json", "dim", 4)
    screen.line()
    screen.line(f"Train on it: sonda run resnet18 --train --epochs 2 --data {directory}", "", 2, 2)
    return screen.text()


def classes_table(manifest: Any, shares: Sequence[Sequence[int]] = ()) -> Table:
    """Images of every class, in all and in every share; the last row is their sum."""
    names = [Cell(name, name, tone="name") for name in manifest.classes]
    columns = [(Column("class", right=False), [*names, Cell("together", tone="quiet")] if shares else names)]
    titles = FEW_SHARES if len(shares) == len(FEW_SHARES) else [f"share {number + 1}" for number in range(len(shares))]
    for title, counts in zip(("images", *titles), (manifest.counts, *shares), strict=True):
        cells = [Cell(f"{number:,}", number) for number in counts]
        columns.append((Column(title), [*cells, Cell(f"{sum(counts):,}", sum(counts))] if shares else cells))
    return build(columns, "classes")
