"""The index of a store: a listing reads no run twice, and nothing that is wrong with the index is ever seen."""

from __future__ import annotations

import os
import shutil
from multiprocessing import get_context
from pathlib import Path

import msgspec
import pytest

from builders import stepped
from sonda.analysis import run_rows
from sonda.record.index import FULL, MOST_SMALL, Index, IndexEntry, sizes_of
from sonda.record.run import new_id, write_run
from sonda.record.store import Store
from sonda.report.views.listing import runs_in_pieces
from sonda.version import VERSION


def a_run(root: Path, created: str) -> None:
    """Three steps of 2 ms."""
    made = stepped([2.0, 2.0, 2.0])
    write_run(root, msgspec.structs.replace(made.info, id=new_id(), created=created), made.spans)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    root = tmp_path / "store"
    for day in range(1, 6):
        a_run(root, f"2026-03-{day:02d}T10:00:00.000+00:00")
    return Store(root)


def listed(store: Store, limit: int | None = 20) -> tuple[list[str], list[str]]:
    """Ids of the rows, and names of the runs that had to be read."""
    read: list[str] = []
    rows = list(run_rows.rows_of(store, limit, read.append))
    return [row.created[:10] for row in rows], read


def test_each_run_is_read_once(store: Store) -> None:
    days, read = listed(store)
    assert days == ["2026-03-05", "2026-03-04", "2026-03-03", "2026-03-02", "2026-03-01"]
    assert read == store.names()
    assert listed(store) == (days, [])


def test_rows_are_the_same_from_the_index(store: Store) -> None:
    first = list(run_rows.rows_of(store, None))
    store.tag(store.names()[0].rpartition("-")[2], "mine")
    again = list(run_rows.rows_of(store, None))
    assert again[0].tags == ("mine",)
    assert [row.step for row in again] == [row.step for row in first]
    assert [row.verdict for row in again] == [row.verdict for row in first]
    assert first[0].step.value == 2e6 and first[0].step.unit == "ns"


def test_a_new_run_is_read_alone(store: Store) -> None:
    listed(store)
    a_run(store.root, "2026-03-09T10:00:00.000+00:00")
    days, read = listed(store)
    assert days[0] == "2026-03-09" and read == store.names()[:1]


def test_a_run_that_was_removed_is_not_listed(store: Store) -> None:
    listed(store)
    store.remove(store.directories()[0])
    assert listed(store)[0][0] == "2026-03-04"


def test_runs_come_together_by_copying(store: Store, tmp_path: Path) -> None:
    other = Store(tmp_path / "other")
    a_run(other.root, "2026-03-07T10:00:00.000+00:00")
    listed(store)
    for directory in other.directories():
        shutil.copytree(directory, store.root / directory.name)
    assert listed(store)[0][0] == "2026-03-07"


def test_a_run_damaged_after_it_was_listed_is_named(store: Store) -> None:
    listed(store)
    (store.directories()[0] / "run.json").write_text("{")
    days, _ = listed(store)
    assert days[0] == "2026-03-04"
    assert len(store.damaged) == 1 and store.names()[0] in str(store.damaged[0])


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"name":1}\n', b"[]\n[]\n"])
def test_a_damaged_segment_is_made_anew(store: Store, content: bytes) -> None:
    days, _ = listed(store)
    (segment,) = (store.root / ".index" / VERSION).iterdir()
    segment.write_bytes(content)
    assert listed(store) == (days, store.names())
    assert listed(store) == (days, [])


def test_rows_of_another_version_are_not_believed(store: Store) -> None:
    listed(store)
    (store.root / ".index" / VERSION).rename(store.root / ".index" / "0.0.1")
    assert listed(store)[1] == store.names()


def test_a_store_that_cannot_be_written_is_listed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "mkdir", _refuse)
    assert len(listed(store)[0]) == 5
    assert not (store.root / ".index").exists()


def _refuse(*_: object, **__: object) -> None:
    raise PermissionError(13, "Permission denied")


def test_rebuilt_from_run_json_alone(store: Store) -> None:
    listed(store)
    spans = {name: (store.root / name / "spans.parquet").read_bytes() for name in store.names()}
    for name in spans:
        (store.root / name / "spans.parquet").write_bytes(b"")
    assert run_rows.rebuild(store) == 5
    for name, data in spans.items():
        (store.root / name / "spans.parquet").write_bytes(data)
    known = Index(store.root, VERSION).known(store.names())
    assert known == {}, "sizes have changed since"
    assert run_rows.rebuild(store) == 5
    known = Index(store.root, VERSION).known(store.names())
    assert len(known) == 5 and not any(entry.whole for entry in known.values())
    assert next(run_rows.rows_of(store, None)).step.value == 2e6


def test_small_segments_are_merged(tmp_path: Path) -> None:
    index = Index(tmp_path, "1")
    names = [f"20260301T1000{second:02d}000-{second:012x}" for second in range(MOST_SMALL + 5)]
    for name in names:
        (tmp_path / name).mkdir()
        index.add([IndexEntry(name, (-1, -1), {"n": name})])
    assert len(os.listdir(index.folder)) <= MOST_SMALL
    assert {name: entry.row["n"] for name, entry in index.known(names).items()} == {name: name for name in names}


def test_only_segments_that_can_help_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index(tmp_path, "1")
    names = [f"2026{1 + n // 28:02d}{1 + n % 28:02d}T100000000-{n:012x}" for n in range(300)]
    for name in names:
        (tmp_path / name).mkdir()
    index.add([IndexEntry(name, (-1, -1), {}) for name in names[:150]])
    index.add([IndexEntry(name, (-1, -1), {}) for name in names[150:]])
    opened: list[str] = []
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: opened.append(path.name) or read(path))
    assert len(index.known(names[-20:])) == 20
    assert len(opened) == 1


def _write_and_merge(root: str, writer: int) -> None:
    index = Index(Path(root), "1")
    for number in range(80):
        name = f"20260301T10{number:02d}{writer:02d}000-{number:06x}{writer:06x}"
        (Path(root) / name).mkdir()
        index.add([IndexEntry(name, sizes_of(Path(root) / name), {"writer": writer, "number": number})])


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    context = get_context("spawn")  # a fork of a process that has threads may never end
    writers = [context.Process(target=_write_and_merge, args=(str(tmp_path), writer)) for writer in range(3)]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    assert [one.exitcode for one in writers] == [0, 0, 0]
    names = [entry.name for entry in tmp_path.iterdir() if not entry.name.startswith(".")]
    known = Index(tmp_path, "1").known(names)
    assert len(names) == 240
    # What one writer merges while another lists may be missing for a moment, never wrong.
    for name, entry in known.items():
        assert entry.row == {"writer": int(name[-6:], 16), "number": int(name[-12:-6], 16)}
    assert len(known) == 240


def test_full_segments_stay(tmp_path: Path) -> None:
    index = Index(tmp_path, "1")
    index.add([IndexEntry(f"20260301T100000000-{n:012x}", (-1, -1), {}) for n in range(FULL + 1)])
    counts = sorted(int(name.split("_")[2]) for name in os.listdir(index.folder))
    assert counts == [1, FULL]


def test_the_document_comes_in_pieces(store: Store) -> None:
    rows = list(run_rows.rows_of(store, None))
    whole = b"".join(runs_in_pieces(iter(rows), lambda: ["x is damaged"]))
    document = msgspec.json.decode(whole)
    assert [one["run"] for one in document["runs"]] == [row.id for row in rows] and rows
    assert (document["kind"], document["damaged"]) == ("runs", ["x is damaged"])
    assert msgspec.json.decode(b"".join(runs_in_pieces(iter([]), list)))["runs"] == []
