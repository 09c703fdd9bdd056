"""Launches of Nsight Compute as the spans of a run, written block by block."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from sonda.imports.ncu_spans import Remarks, launch_blocks
from sonda.imports.ncu_table import Damage, Launch
from sonda.record.span import NUMBER_COLUMNS, TEXT_COLUMNS, Spans
from sonda.record.span_file import SpanWriter


def write_launches(launches: Iterable[Launch], directory: Path, damage: Damage) -> list[str]:
    """Write `spans.parquet` of a run into its directory; returns what to know about the launches.

    Which metrics a launch has is known for all of them only at the end, and every block of the file has the same: so
    blocks wait in files of their own. Raises OSError when the disk is full.
    """
    import pyarrow.feather as feather

    remarks = Remarks()
    metrics: dict[str, None] = {}
    waiting: list[Path] = []
    for number, block in enumerate(launch_blocks(launches, remarks)):
        waiting.append(directory / f"launches-{number}")
        feather.write_feather(block.to_arrow(), str(waiting[-1]), compression="uncompressed")
        metrics |= dict.fromkeys(block.metrics)
    with SpanWriter(directory) as writer:
        for path in waiting:
            block = Spans.from_arrow(feather.read_table(path, memory_map=False), part=True)
            writer.append(_with_metrics(block, metrics))
            path.unlink()
    return remarks.notes(damage)


def _with_metrics(spans: Spans, names: Iterable[str]) -> Spans:
    """The same spans with these metrics in this order."""
    nothing = np.full(len(spans), np.nan)
    return Spans(
        {name: spans.number(name) for name in NUMBER_COLUMNS},
        {name: spans.words(name) for name in TEXT_COLUMNS},
        {name: spans.metrics.get(name, nothing) for name in names},
    )
