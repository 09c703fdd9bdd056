"""The files of spans and samples in pieces, written and read block by block: no run has to fit in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from sonda.record.errors import SondaError
from sonda.record.run import SAMPLES, SPANS, Run, damaged_run_error
from sonda.record.samples import Sample, samples_from_arrow
from sonda.record.spans import NEEDED, TEXT_COLUMNS, Spans

if TYPE_CHECKING:
    import pyarrow.parquet as pq


GROWING = ("id", "parent", "start", "duration")


class SpanWriter:
    """`spans.parquet` of a run that is being written; every `append` is a row group.

    All blocks have the same metrics. Rows count on from block to block: `id` and `parent` are rows of the whole file,
    which the caller gives. A file without a block holds no spans.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / SPANS
        self._writer: pq.ParquetWriter | None = None
        self.rows = 0
        """Rows so far."""

    def __enter__(self) -> SpanWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._writer is None:
            self.append(Spans({"start": []}, {}))  # type: ignore[dict-item]
        if self._writer is not None:
            self._writer.close()

    def append(self, spans: Spans) -> None:
        """Write a block. Raises OSError when the disk is full, ValueError when its columns are not those before."""
        import pyarrow.parquet as pq

        with _system_memory():
            table = spans.to_arrow()
            if self._writer is None:
                # Dictionaries pay for words only; rows and times that grow are best kept as differences.
                self._writer = pq.ParquetWriter(
                    self._path, table.schema, compression="zstd", compression_level=1, write_page_checksum=True,
                    use_dictionary=list(TEXT_COLUMNS), column_encoding=dict.fromkeys(GROWING, "DELTA_BINARY_PACKED"),
                    write_statistics=False,
                )  # fmt: skip
            self._writer.write_table(table, row_group_size=max(1, len(spans)))
        self.rows += len(spans)


def read_blocks(run: Run, columns: Sequence[str] | None = ()) -> Iterator[Spans]:
    """The spans of a run in blocks, in the order of the file, with these columns beside those that all spans need;
    None for all columns.

    Columns that the file does not have are left out. Parents are rows of the whole file. Raises SondaError when the
    file cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = run.directory / SPANS
    try:
        with _system_memory():
            opened = pq.ParquetFile(path, page_checksum_verification=True)
        with opened as file:
            wanted = [name for name in file.schema_arrow.names if columns is None or name in NEEDED or name in columns]
            for group in range(file.num_row_groups):
                yield Spans.from_arrow(file.read_row_group(group, columns=wanted, use_threads=False), part=True)
    except (OSError, pa.ArrowException, SondaError) as error:
        raise damaged_run_error(path, error) from None


@contextmanager
def _system_memory() -> Iterator[None]:
    """What is made meanwhile takes its memory from the system, and what is free goes back to it: Arrow's own allocator
    keeps several times a block."""
    import pyarrow as pa

    before, system = pa.default_memory_pool(), pa.system_memory_pool()
    pa.set_memory_pool(system)
    try:
        yield
    finally:
        pa.set_memory_pool(before)
        system.release_unused()


# ---- The file of samples --------------------------------------------------------------------------------------------

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
        raise damaged_run_error(path, error) from None
