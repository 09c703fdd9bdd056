"""What processes do in the benchmark of ranks: found by its name, so it stands in a module of its own."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.process import highest_memory
from sonda.record.run import SPANS
from sonda.targets.imported.launcher import import_files


def import_share(files: list[Path]) -> int:
    """Read files one after the other into a run that nobody keeps; returns its spans."""
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory(dir=files[0].parent) as place:
        run = import_files(files, Path(place))
        return int(pq.read_metadata(run.directory / SPANS).num_rows)


def peak_memory(_: int) -> float:
    """MB that this process had at most; it takes its time, so that every process is asked."""
    time.sleep(0.5)
    return highest_memory()
