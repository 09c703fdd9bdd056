"""A run says for itself what a listing needs: the first listing of a store reads no spans."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from builders import stepped
from sonda.analysis import run_rows
from sonda.record import run as record
from sonda.record.run import LISTED, Run, describe_runs, new_id, write_run
from sonda.record.store import Store

RUNS = 4


@pytest.fixture(autouse=True)
def described(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(record, "_describers", [])
    run_rows.describe_new_runs()
    yield


@pytest.fixture
def store(tmp_path: Path) -> Store:
    for day in range(1, 1 + RUNS):
        made = stepped([2.0, 2.0, 3.0])
        info = msgspec.structs.replace(made.info, id=new_id(), created=f"2026-03-{day:02d}T10:00:00.000+00:00")
        write_run(tmp_path / "store", info, made.spans)
    return Store(tmp_path / "store")


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the Parquet files that were opened."""
    opened: list[str] = []
    read = record._read_table

    def reading(path: Path) -> Any:
        opened.append(path.name)
        return read(path)

    monkeypatch.setattr(record, "_read_table", reading)
    return opened


def rows(store: Store) -> list[run_rows.RunRow]:
    shutil.rmtree(store.root / ".index", ignore_errors=True)
    return list(run_rows.rows_of(store, None))


def test_the_first_listing_opens_no_spans_and_says_what_reading_them_says(store: Store, tables: list[str]) -> None:
    tables.clear()
    first = rows(store)
    assert len(first) == RUNS and tables == []
    for directory in store.directories():
        (directory / LISTED).unlink()
    assert rows(store) == first and tables == RUNS * ["spans.parquet"]
    assert first[0].step.value == 2e6 and first[0].verdict


def test_a_copy_with_an_id_of_its_own_needs_no_reading(store: Store, tables: list[str]) -> None:
    source = store.directories()[0]
    copy = source.with_name("20260401T100000000-0123456789abcdef")
    shutil.copytree(source, copy)
    told = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps({**told, "id": "0123456789abcdef", "status": "incomplete"}))
    tables.clear()
    assert rows(store)[0].status == "incomplete" and tables == []


@pytest.mark.parametrize("change", [{"version": "0.0.1"}, {"spans": 1}, {"step": 7}])
def test_what_another_version_or_other_spans_said_is_not_believed(
    store: Store, tables: list[str], change: dict[str, Any]
) -> None:
    path = store.directories()[0] / LISTED
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    tables.clear()
    assert rows(store)[0].step.value == 2e6 and tables == ["spans.parquet"]


def test_a_damaged_file_is_not_believed(store: Store) -> None:
    before = rows(store)
    (store.directories()[0] / LISTED).write_bytes(b'{"version":')
    assert rows(store) == before


def test_a_run_that_cannot_be_described_is_kept(tmp_path: Path) -> None:
    def fails(_: Run) -> bytes:
        raise ValueError("no")

    describe_runs(fails)
    made = stepped([2.0])
    run = write_run(tmp_path, made.info, made.spans)
    assert Run.load(run.directory).id == made.info.id and not (run.directory / LISTED).exists()


def test_a_large_run_waits_until_it_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_rows, "MOST_BYTES", 10)
    made = stepped([2.0])
    assert not (write_run(tmp_path, made.info, made.spans).directory / LISTED).exists()
