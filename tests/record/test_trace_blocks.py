"""Traces of runs that do not fit in memory: the same file, whatever is held at a time."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chrome_format import faults
from plain_runs import run_info
from report_trace_cases import spans_of
from sonda.record.errors import SondaError
from sonda.record.files import rows as row_file
from sonda.record.files import rows as sorted_rows
from sonda.record.files import tables as sample_file
from sonda.record.files.rows import SortedRows
from sonda.record.files.tables import SpanWriter
from sonda.record.run import Run, RunInfo, keep_run
from sonda.record.samples import Sample, samples_to_arrow
from sonda.record.spans import NUMBER_COLUMNS, TEXT_COLUMNS, Spans, Words
from sonda.report.trace import counters as trace_counters
from sonda.report.trace import spans as drawn_spans
from sonda.report.trace.chrome import write_trace
from sonda.targets.imported.launcher import import_files
from trace_examples import KINETO

METRICS = ("flops:nominal", "launch_latency:measured", "memory:measured")


def part(spans: Spans, rows: slice) -> Spans:
    """Some rows; their words have numbers of their own, as in any block of a file."""
    words = {name: Words.of(spans.words(name).decoded()[rows]) for name in TEXT_COLUMNS}
    numbers = {name: spans.number(name)[rows] for name in NUMBER_COLUMNS}
    return Spans(numbers, words, {name: values[rows] for name, values in spans.metrics.items()})


def kept(folder: Path, spans: Spans, block: int, samples: list[Sample] | None = None) -> Run:
    """A run on disk whose spans stand in blocks."""

    def fill(directory: Path) -> RunInfo:
        import pyarrow.parquet as pq

        with SpanWriter(directory) as writer:
            for first in range(0, len(spans), block):
                writer.append(part(spans, slice(first, first + block)))
        if samples:
            pq.write_table(samples_to_arrow(samples), directory / "samples.parquet")
        return run_info(id="7f3a9c21", created="2026-11-15T03:30:12+00:00", status="complete")

    return keep_run(folder, fill)


rows = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(("phase", "layer", "kernel", "copy", "op")),
        "name": st.sampled_from(("a", "b<i>", 'c"')),
        "pass": st.sampled_from(("timed", "warmup", "count", "kernels")),
        "node": st.sampled_from(("", "n1")),
        "device": st.sampled_from(("cpu", "cuda:0", "cuda:1")),
        "clock": st.sampled_from(("host", "device")),
        "path": st.sampled_from(("", "net.fc")),
        "start": st.integers(-3, 30), "duration": st.integers(0, 12), "thread": st.integers(1, 2),
        "stream": st.integers(7, 8), "rank": st.integers(0, 1),
        "values": st.tuples(*[st.sampled_from((math.nan, 1.0, 2.5))] * len(METRICS)),
    }
)  # fmt: skip


@settings(max_examples=15, deadline=None)
@given(st.lists(rows, min_size=1, max_size=25), st.integers(1, 8), st.integers(1, 6))
def test_a_trace_is_the_same_whatever_is_held_at_a_time(
    tmp_path_factory: pytest.TempPathFactory, listed: list[dict[str, Any]], block: int, held: int
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    metrics = {name: [row["values"][number] for row in listed] for number, name in enumerate(METRICS)}
    spans = spans_of(listed, metrics)
    samples = [Sample(10 * n, f"power{n % 2}", n / 7, "W", "measured") for n in range(5)]
    whole = Run(folder, run_info(id="7f3a9c21", created="2026-11-15T03:30:12+00:00", status="complete"))
    whole.__dict__.update(spans=spans, samples=samples)
    expected = write_trace(folder / "whole.json", whole).read_text()
    assert not faults(expected)
    run = kept(folder, spans, block, samples)
    with (
        patch.object(sorted_rows, "RUN_ROWS", held), patch.object(sorted_rows, "READ_ROWS", held),
        patch.object(sorted_rows, "FEWEST", 1), patch.object(row_file, "BLOCK_ROWS", held),
        patch.object(drawn_spans, "AT_ONCE", held), patch.object(trace_counters, "AT_ONCE", held),
        patch.object(sample_file, "TOGETHER", held),
    ):  # fmt: skip
        assert write_trace(folder / "blocks.json", run).read_text() == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-4, 4)), max_size=60), st.integers(1, 9), st.integers(1, 9))
def test_rows_come_back_sorted(values: list[tuple[int, int]], held: int, read: int) -> None:
    shape = np.dtype([("a", np.int64), ("b", np.int64)])
    with (
        patch.object(sorted_rows, "READ_ROWS", read), patch.object(sorted_rows, "FEWEST", 1),
        SortedRows(shape, ("a", "b"), held, in_memory=1) as found,
    ):  # fmt: skip
        for first in range(0, len(values), 3):
            found.add(np.array(values[first : first + 3], dtype=shape))
        for _ in range(2):
            assert [row for block in found.blocks() for row in block.tolist()] == sorted(values)
    assert len(found) == len(values)


def test_a_real_trace_is_the_same_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = import_files([KINETO / "mlp.json.gz"], tmp_path)
    whole = Run.load(run.directory)
    assert len(whole.spans) > 100  # now in memory
    expected = write_trace(tmp_path / "whole.json", whole).read_bytes()
    monkeypatch.setattr(sorted_rows, "RUN_ROWS", 50)
    assert write_trace(tmp_path / "pieces.json", run).read_bytes() == expected
    assert not {"spans", "samples"} & set(run.__dict__), "the run was taken into memory"
    assert not faults(expected.decode())


@pytest.mark.parametrize(
    "wrong",
    [
        '{"ph":"X","name":"a","cat":"op","ts":1.0,"dur":-1.0,"pid":1,"tid":1,"args":{}}',
        '{"ph":"X","name":"a","cat":"op","ts":1.0,"dur":1.0,"pid":1,"tid":2,"args":{}}',
        '{"ph":"X","name":"a","cat":"op","ts":5.0,"dur":9.0,"pid":1,"tid":1,"args":{}}',
        '{"ph":"C","name":"a","pid":1,"ts":1.0,"args":{"W":NaN}}',
        '{"ph":"C","name":"a","pid":1,"ts":1.0,"args":{"W":1,"W":2}}',
        '{"ph":"C","name":"a","pid":2,"ts":1.0,"args":{"W":1}}',
        '{"ph":"M","name":"thread","pid":1,"tid":1,"args":{"name":"b"}}',
        '{"ph":"Q","name":"a","pid":1}',
    ],
)
def test_what_is_not_in_chromes_format_is_found(wrong: str) -> None:
    """The judge of the other tests, judged."""
    right = (
        '{"displayTimeUnit":"ms","otherData":{},"traceEvents":['
        '{"ph":"M","name":"thread_name","pid":1,"tid":1,"args":{"name":"thread 1"}},'
        '{"ph":"M","name":"thread_sort_index","pid":1,"tid":1,"args":{"sort_index":1}},'
        '{"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"rank 0"}},'
        '{"ph":"M","name":"process_sort_index","pid":1,"tid":0,"args":{"sort_index":1}},'
        '{"ph":"X","name":"a","cat":"op","ts":0.0,"dur":9.0,"pid":1,"tid":1,"args":{}}MORE]}'
    )
    assert not faults(right.replace("MORE", ""))
    assert faults(right.replace("MORE", f",{wrong}"))


def test_a_full_disk_is_one_line_and_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = import_files([KINETO / "mlp.json.gz"], tmp_path / "runs")
    monkeypatch.setattr(row_file, "IN_MEMORY", 1)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    monkeypatch.setattr(sorted_rows, "RUN_ROWS", 1)
    with pytest.raises(SondaError, match=r"no room for temporary files in .*gone: No such file.*TMPDIR"):
        write_trace(tmp_path / "trace.json", run)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
