"""Parquet files put behind one another without unpacking them, and the protocol in which they say what they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonda.record.files.parquet_join import join_files
from sonda.record.files.thrift_compact import CompactReader, write_struct


def part(path: Path, first: int, rows: int, word: str = "w") -> tuple[Path, pa.Table]:
    table = pa.table({
        "number": np.arange(first, first + rows),
        "word": pa.array([f"{word}{at % 3}" for at in range(rows)], pa.string()).dictionary_encode(),
        "value": pa.array([None if at % 4 == 0 else at / 2 for at in range(rows)], pa.float64()),
    })  # fmt: skip
    with pq.ParquetWriter(
        path, table.schema, compression="zstd", write_page_checksum=True,
        column_encoding={"number": "DELTA_BINARY_PACKED"}, use_dictionary=["word"],
    ) as writer:  # fmt: skip
        for at in range(0, rows, 40):
            writer.write_table(table.slice(at, 40))
    return path, table


def test_joined_files_hold_all_rows_and_all_that_is_said_about_them(tmp_path: Path) -> None:
    parts = [part(tmp_path / f"{at}.parquet", 1000 * at, rows, "ab"[at % 2]) for at, rows in enumerate((100, 1, 0, 90))]
    whole = tmp_path / "whole.parquet"
    assert join_files([path for path, _ in parts], whole) == 191
    with pq.ParquetFile(whole, page_checksum_verification=True) as file:
        expected = pa.concat_tables([table for _, table in parts])
        assert file.read().to_pydict() == expected.to_pydict()
        assert file.num_row_groups == 3 + 1 + 0 + 3 and file.metadata.num_rows == 191
        assert file.schema_arrow.equals(expected.schema)
        assert file.metadata.row_group(6).column(0).statistics.max == 3089
        assert file.read_row_group(4, columns=["number"])["number"].to_pylist() == list(range(3000, 3040))


def test_what_does_not_belong_together_is_not_joined(tmp_path: Path) -> None:
    one, _ = part(tmp_path / "one.parquet", 0, 50)
    pq.write_table(pa.table({"other": [1]}), tmp_path / "other.parquet")
    with pytest.raises(ValueError, match=r"other\.parquet has other columns than one\.parquet"):
        join_files([one, tmp_path / "other.parquet"], tmp_path / "whole.parquet")
    (tmp_path / "cut.parquet").write_bytes(one.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"cut\.parquet is no Parquet file"):
        join_files([tmp_path / "cut.parquet"], tmp_path / "whole.parquet")
    with pytest.raises(ValueError, match="nothing to join"):
        join_files([], tmp_path / "whole.parquet")


values = st.recursive(
    st.one_of(
        st.tuples(st.sampled_from((4, 5, 6)), st.integers(-(1 << 62), 1 << 62)),
        st.tuples(st.just(8), st.binary(max_size=20)),
        st.tuples(st.just(3), st.integers(0, 255)),
        st.tuples(st.just(7), st.binary(min_size=8, max_size=8)),
        st.tuples(st.sampled_from((1, 2)), st.none()),
        st.tuples(st.sampled_from((9, 10)), st.tuples(st.just(5), st.lists(st.integers(-99, 99), max_size=40))),
        st.tuples(st.sampled_from((9, 10)), st.tuples(st.just(2), st.lists(st.sampled_from((1, 2)), max_size=20))),
        st.tuples(
            st.just(11),
            st.tuples(
                st.just(8), st.just(6), st.lists(st.tuples(st.binary(), st.integers(-9, 9)), min_size=1, max_size=4)
            ),
        ),
    ),
    lambda inner: st.tuples(st.just(12), st.dictionaries(st.integers(1, 300), inner, max_size=5)),
    max_leaves=12,
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.integers(1, 300), values, max_size=6))
def test_what_is_written_compactly_is_read_back(struct: Any) -> None:
    assert CompactReader(write_struct(struct)).struct() == struct


def test_the_footer_of_a_real_file_is_written_back_as_it_was(tmp_path: Path) -> None:
    path, _ = part(tmp_path / "one.parquet", 0, 100)
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    footer = content[-8 - length : -8]
    assert write_struct(CompactReader(footer).struct()) == footer
