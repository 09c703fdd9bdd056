"""The file of samples in pieces, so that no run has to fit in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator

from sonda.record.errors import SondaError
from sonda.record.run import SAMPLES, Run, damaged
from sonda.record.sample import Sample, samples_from_arrow

TOGETHER = 1 << 12


def read_samples(run: Run) -> Iterator[list[Sample]]:
    """The samples of a run in the order of the file, some at a time; none where there is no file.

    Raises SondaError when the file cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = run.directory / SAMPLES
    if not os.path.lexists(path):
        return
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for batch in file.iter_batches(TOGETHER, use_threads=False):
                yield samples_from_arrow(pa.Table.from_batches([batch]))
    except (OSError, ValueError, pa.ArrowException, SondaError) as error:
        raise damaged(path, error) from None
