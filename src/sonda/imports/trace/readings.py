"""Readings of counters as the samples of a run, written block by block."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from sonda.imports.trace.marks import BETWEEN
from sonda.record.run import SAMPLES
from sonda.record.samples import Sample, samples_to_arrow

if TYPE_CHECKING:
    import pyarrow.parquet as pq

BLOCK = 1 << 14
"""Samples written together; each takes about a kB until then."""


class ReadingWriter:
    """The samples of a run that is being written; without a reading there is no file."""

    def __init__(self, directory: Path, origin: int) -> None:
        """`origin` is the moment in ns that becomes 0."""
        self._path = directory / SAMPLES
        self._origin = origin
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> ReadingWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()

    def append(self, readings: Iterable[tuple[int, int, float]], names: list[str]) -> None:
        """Write readings: ns, the place of their name in `names`, value. Raises OSError when the disk is full."""
        import pyarrow.parquet as pq

        rest = iter(readings)
        while block := list(islice(rest, BLOCK)):
            samples = []
            for time, name, value in block:
                sensor, unit, source, device = names[name].rsplit(BETWEEN, 3)
                samples.append(Sample(time - self._origin, sensor, value, unit, source, device=device))
            table = samples_to_arrow(samples)
            if self._writer is None:
                self._writer = pq.ParquetWriter(self._path, table.schema, compression="zstd", write_page_checksum=True)
            self._writer.write_table(table)
