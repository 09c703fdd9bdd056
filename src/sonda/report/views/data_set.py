"""A prepared data set on a screen: what it holds, class by class, and how it was made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sonda.report import quantities
from sonda.report.blocks import Block, Gap, Heading, Items, Paragraph, TableBlock
from sonda.report.table import Cell, Column, Table, build

SHOWN = 5
"""Skipped images that are named; all are in the manifest."""
FEW_SHARES = ("training", "validation", "test")


def data_set_blocks(
    directory: str, manifest: Any, shares: Sequence[Sequence[int]] = (), verified: bool = False
) -> list[Block]:
    """`manifest` is the data set's; `shares` are counts of images by class, for every share that was asked for."""
    count, _, height, across = manifest.shape
    made = manifest.made
    size = manifest.files["images.npy"].bytes / 1e6
    right = " Its checksums are right." if verified else ""
    blocks: list[Block] = [
        Heading(directory),
        Gap(),
        Paragraph(
            f"{count:,} images of {across}x{height}, {made.colour}, float16 in [0, 1], "
            f"{quantities.rounded(size, 1)} MB.{right}",
            "first",
        ),
    ]
    origin = "".join(f", {key} {value}" for key, value in made.origin.items())
    blocks.append(Paragraph(f"From {made.source} ({made.layout}), seed {made.seed}, sonda {made.sonda}{origin}"))
    if manifest.parts:
        blocks.append(Items([f"{part.name} {part.count:,}" for part in manifest.parts], "Parts: ", ", "))
    blocks += [Gap(), TableBlock(classes_table(manifest, shares))]
    if manifest.skipped:
        blocks += [
            Gap(),
            Paragraph(f"Skipped {len(manifest.skipped):,}", "remark", hang=0),
            *(Paragraph(f"{skipped.name}: {skipped.reason}", "", 4, 2) for skipped in manifest.skipped[:SHOWN]),
        ]
        if len(manifest.skipped) > SHOWN:
            blocks.append(Paragraph(f"and {len(manifest.skipped) - SHOWN:,} more, in manifest.json", "quiet", 4, 0))
    blocks += [Gap(), Paragraph(f"Train on it: sonda run resnet18 --train --epochs 2 --data {directory}")]
    return blocks


def classes_table(manifest: Any, shares: Sequence[Sequence[int]] = ()) -> Table:
    """Images of every class, in all and in every share; the last row is their sum."""
    names = [Cell(name, name, tone="name") for name in manifest.classes]
    columns = [(Column("class", right=False), [*names, Cell("together", tone="quiet")] if shares else names)]
    titles = FEW_SHARES if len(shares) == len(FEW_SHARES) else [f"share {number + 1}" for number in range(len(shares))]
    for title, counts in zip(("images", *titles), (manifest.counts, *shares), strict=True):
        cells = [Cell(f"{number:,}", number) for number in counts]
        columns.append((Column(title), [*cells, Cell(f"{sum(counts):,}", sum(counts))] if shares else cells))
    return build(columns, "classes")
