"""Helpers of `test_import_ranks.py` that other tests use too."""

from __future__ import annotations

import pyarrow.parquet as pq

from places import DATA
from sonda.record.run import SAMPLES, SPANS, Run

RANKS = DATA / "ranks"


def same(one: Run, other: Run) -> None:
    """Rows, samples and everything that is said, but for id and time."""
    for name in (SPANS, SAMPLES):
        assert (one.directory / name).exists() == (other.directory / name).exists()
        if (one.directory / name).exists():
            files = [pq.ParquetFile(run.directory / name, page_checksum_verification=True) for run in (one, other)]
            assert files[0].read().equals(files[1].read())
            groups = [[file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)] for file in files]
            assert groups[0] == groups[1]
    for field in ("status", "workload", "target", "machine", "versions", "notes"):
        assert getattr(one.info, field) == getattr(other.info, field)
    assert sorted(path.name for path in other.directory.iterdir()) == sorted(
        path.name for path in one.directory.iterdir()
    )
