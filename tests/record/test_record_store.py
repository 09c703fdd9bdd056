"""The store: finding and naming runs, also where something in it is damaged or foreign."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from record_examples import keep, two_spans
from sonda.record.errors import SondaError
from sonda.record.files.partial import PARTIAL
from sonda.record.run import SCHEMA, Run
from sonda.record.store import Store, default_root


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def complaint(store: Store, reference: str) -> str:
    with pytest.raises(SondaError) as caught:
        store.find(reference)
    return str(caught.value)


# ---- damaged and foreign ----------------------------------------------------------------------------------------


def assert_named_and_skipped(store: Store, name: str, healthy: Run) -> str:
    """The damaged one is named in one line, the healthy one still found; returns the line."""
    assert [run.id for run in store.runs()] == [healthy.id]
    assert len(store.damaged) == 1
    line = str(store.damaged[0])
    assert name in line and "\n" not in line
    assert store.one("last").id == healthy.id
    assert complaint(store, name) == line
    store.remove(store.locate(name)[0])
    assert not os.path.lexists(store.root / name)
    assert [run.id for run in store.runs()] == [healthy.id]
    assert not store.damaged
    return line


def test_run_json_cut_short_anywhere(store: Store) -> None:
    run = keep(store)
    path = run.directory / "run.json"
    whole = path.read_bytes()
    for length in range(len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(SondaError, match=f"{run.directory.name} is "):
            Run.load(run.directory)
    path.write_bytes(whole)
    assert Run.load(run.directory).info == run.info


@pytest.mark.parametrize("name", ["spans.parquet", "samples.parquet"])
def test_a_table_cut_short_anywhere(store: Store, name: str) -> None:
    run = keep(store)
    path = run.directory / name
    whole = path.read_bytes()
    for length in (*range(0, len(whole), 97), *range(len(whole) - 20, len(whole))):
        path.write_bytes(whole[:length])
        fresh = Run.load(run.directory)
        with pytest.raises(SondaError, match=f"{run.directory.name} is damaged: {name}: .*sonda rm"):
            fresh.spans if name.startswith("spans") else fresh.samples
    path.write_bytes(whole)
    assert len(Run.load(run.directory).spans) == 2


def test_a_flipped_byte_is_an_error_or_changes_nothing(store: Store) -> None:
    """Wherever one byte of the file is wrong, no number that is read is wrong."""
    run = keep(store)
    path = run.directory / "spans.parquet"
    whole = path.read_bytes()
    refused = 0
    for at in range(0, len(whole), 31):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            spans = Run.load(run.directory).spans
        except SondaError as error:
            assert run.directory.name in str(error)
            refused += 1
            continue
        assert list(spans.number("duration")) == [100, 40], at
        assert list(spans.number("start")) == [0, 10], at
    assert refused > 10


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "damaged: run.json"),
        (b"null", "not a run of Sonda's"),
        (b"[1, 2]", "not a run of Sonda's"),
        (b'{"name": "other tool"}', "not a run of Sonda's"),
        (b'{"schema": "1"}', "not a run of Sonda's"),
        (b'{"schema": true}', "not a run of Sonda's"),
        (b'{"schema": 0}', "not a run of Sonda's"),
        (b'{"schema": 1}', "damaged: run.json: Object missing required field `id`"),
        (b"[" * 100_000, "not a run of Sonda's"),
        (b'{"schema": 1, "a": ' + b"[" * 100_000, "damaged: run.json"),
        (b'{"schema": 1, "id": "\xff\xfe"}', "damaged: run.json"),
        (b'{"schema": 1, "id": "abcd", "created": "x", "status": "splendid"}', "Invalid enum value 'splendid'"),
        (b'{"schema": 1, "id": "../../etc", "created": "x", "status": "complete"}', "'../../etc' is no id"),
        (f'{{"schema": {SCHEMA + 1}, "id": 5}}'.encode(), "was written by a newer Sonda .*; upgrade Sonda"),
        (b"\x00" * 1000, "damaged: run.json"),
        (b"PAR1", "damaged: run.json"),
    ],
)
def test_a_strange_run_json(store: Store, content: bytes, what: str) -> None:
    healthy = keep(store, created="2020-01-01T00:00:00+00:00")
    strange = store.root / "20260101T000000-abcdabcd"
    strange.mkdir()
    (strange / "run.json").write_bytes(content)
    with pytest.raises(SondaError, match=what):
        Run.load(strange)
    assert_named_and_skipped(store, strange.name, healthy)


@pytest.mark.parametrize("shape", ["empty directory", "file", "dangling link", "link to itself", "run.json directory",
                                   "run.json pipe", "link to file"])  # fmt: skip
def test_what_is_only_named_like_a_run(store: Store, tmp_path: Path, shape: str) -> None:
    healthy = keep(store, created="2020-01-01T00:00:00+00:00")
    strange = store.root / "20260101T000000123-abcdabcd"
    (tmp_path / "precious").write_text("years")
    if shape == "file":
        strange.write_text("hello")
    elif shape == "dangling link":
        strange.symlink_to(tmp_path / "nowhere")
    elif shape == "link to itself":
        strange.symlink_to(strange)
    elif shape == "link to file":
        strange.symlink_to(tmp_path / "precious")
    else:
        strange.mkdir()
        if shape == "run.json directory":
            (strange / "run.json").mkdir()
        elif shape == "run.json pipe":
            os.mkfifo(strange / "run.json")
    assert_named_and_skipped(store, strange.name, healthy)
    assert (tmp_path / "precious").read_text() == "years"


def test_a_link_to_a_run_is_read_and_removing_it_leaves_the_run(store: Store, tmp_path: Path) -> None:
    elsewhere = Store(tmp_path / "elsewhere")
    run = keep(elsewhere)
    store.root.mkdir()
    (store.root / run.directory.name).symlink_to(run.directory)
    assert [one.id for one in store.runs()] == [run.id]
    store.remove(store.locate(run.id)[0])
    assert not list(store.root.iterdir())
    assert len(Run.load(run.directory).spans) == 2


@pytest.mark.parametrize("shape", ["missing", "directory", "text", "pipe", "another table", "unknown source"])
def test_strange_spans(store: Store, shape: str) -> None:
    run = keep(store)
    path = run.directory / "spans.parquet"
    table = two_spans().to_arrow()
    path.unlink()
    if shape == "directory":
        path.mkdir()
        pq.write_table(table, path / "part.parquet")
    elif shape == "text":
        path.write_text("hello")
    elif shape == "pipe":
        os.mkfifo(path)
    elif shape == "another table":
        pq.write_table(pa.table({"x": [1]}), path)
    elif shape == "unknown source":
        pq.write_table(table.rename_columns([*table.column_names[:-1], "flops:rumour"]), path)
    with pytest.raises(SondaError, match=f"{run.directory.name} is damaged: spans.parquet: "):
        store.one(run.id).spans  # noqa: B018


def test_other_things_in_the_store_are_not_runs(store: Store) -> None:
    run = keep(store)
    for name in ("studies", "notes", "20260101T000000-ABCD", "20260101T000000-abcd\n", "x20260101T000000-abcd",
                 f"{PARTIAL}x", "20260101T000000-abc", "٢٠٢٦٠١٠١T000000-abcd"):  # fmt: skip
        (store.root / name).mkdir()
    assert store.directories() == [run.directory]
    assert [one.id for one in store.runs()] == [run.id]
    assert not store.damaged


def test_a_store_that_is_not_there_or_not_a_directory(store: Store, tmp_path: Path) -> None:
    assert store.directories() == []
    assert store.tags() == {}
    assert "there are no runs in" in complaint(store, "last")
    (tmp_path / "file").write_text("")
    with pytest.raises(SondaError, match=r"cannot read the store .*Not a directory"):
        Store(tmp_path / "file").directories()
    with pytest.raises(SondaError, match=r"cannot write the store .*\$SONDA_HOME"):
        with Store(tmp_path / "file" / "inside").scratch():
            pass


def test_a_later_field_of_run_json_is_left_alone(store: Store) -> None:
    run = keep(store)
    document = msgspec.json.decode((run.directory / "run.json").read_bytes())
    document["colour"] = "red"
    (run.directory / "run.json").write_bytes(msgspec.json.encode(document))
    assert Run.load(run.directory).info == run.info


# ---- finding ----------------------------------------------------------------------------------------------------


def test_by_prefix_name_path_and_last(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    old = keep(store, "abcd1234", "2026-01-01T00:00:00+00:00")
    new = keep(store, "abcd9999", "2026-01-02T00:00:00+00:00")
    assert store.one("abcd1").id == "abcd1234"
    assert store.one("abcd9999").id == "abcd9999"
    assert store.one(old.directory.name).id == "abcd1234"
    assert store.one(str(old.directory)).id == "abcd1234"
    assert store.one("last").id == new.id
    monkeypatch.chdir(old.directory)
    assert store.one(".").id == "abcd1234"
    monkeypatch.chdir(store.root)
    assert Store(Path("elsewhere")).one(f"./{old.directory.name}").id == "abcd1234"
    assert [len(store.locate(word)) for word in ("abcd1", "last")] == [1, 1]


def test_what_names_no_run_or_several(store: Store) -> None:
    keep(store, "abcd1234", "2026-01-01T00:00:00+00:00")
    keep(store, "abcd9999", "2026-01-02T00:00:00+00:00")
    assert complaint(store, "abcd") == "'abcd' could be any of abcd9999, abcd1234; write more of the id or name"
    assert "no run, tag or path 'abc' in" in complaint(store, "abc"), "three digits are too few to mean an id"
    for reference in ("", "ffff", "abcd12345", "a\0b", "x" * 100_000, "../..", "/", "abcd*", "\n", "🦊" * 300):
        line = complaint(store, reference)
        assert line.startswith("no run, tag or path ")
        assert len(line) < 1000 + len(str(store.root))


def test_two_copies_of_one_run_are_told_apart_by_name(store: Store) -> None:
    keep(store, "abcd1234", "2026-01-01T00:00:00+00:00")
    keep(store, "abcd1234", "2026-01-02T00:00:00+00:00")
    assert "20260102T000000000-abcd1234, 20260101T000000000-abcd1234" in complaint(store, "abcd1234")
    assert store.one("20260101T000000000-abcd1234").info.created == "2026-01-01T00:00:00+00:00"


def test_runs_written_before_names_had_milliseconds(store: Store) -> None:
    old = keep(store, "abcd1234", "2026-01-01T00:00:00+00:00")
    old.directory.rename(store.root / "20260101T000000-abcd1234")
    new = keep(store, "abcd9999", "2026-01-01T00:00:00.001+00:00")
    assert [run.id for run in store.runs()] == [new.id, old.id]
    assert [path.name[-8:] for path in store.remove_older_than(timedelta(0))] == [new.id, old.id]
    assert not store.directories()


def test_the_shortest_beginning(store: Store) -> None:
    for identity in ("abcd1234", "abcd1299", "ffff0000"):
        keep(store, identity)
    assert store.short("ffff0000") == "ffff"
    assert store.short("abcd1234") == "abcd123"
    assert store.one(store.short("abcd1234")).id == "abcd1234"
    assert store.has("abcd1234")
    assert not store.has("abcd")


def test_default_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SONDA_HOME", raising=False)
    assert default_root() == Path("sonda-runs")
    monkeypatch.setenv("SONDA_HOME", str(tmp_path))
    assert Store().root == tmp_path


def test_a_limit_counts_runs_that_can_be_read(store: Store) -> None:
    runs = [keep(store, created=f"2026-01-0{day}T00:00:00+00:00") for day in (1, 2, 3)]
    (runs[2].directory / "run.json").unlink()
    assert [run.id for run in store.runs(limit=1)] == [runs[1].id]
    assert [run.id for run in store.runs(limit=0)] == []


# ---- tags -------------------------------------------------------------------------------------------------------


def test_tags(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = keep(store, created="2026-01-01T00:00:00+00:00"), keep(store, created="2026-01-02T00:00:00+00:00")
    for run in (new, old):
        store.tag(run.id, "base")
        store.tag(run.id, "base")
    store.tag(new.id, "v1.2+cpu_x-y")
    assert [run.id for run in store.find("base")] == [old.id, new.id], "oldest first"
    assert store.one("base").id == new.id
    assert store.tags() == {old.id: ["base"], new.id: ["base", "v1.2+cpu_x-y"]}
    assert store.tags([old.id, "0" * 16]) == {old.id: ["base"]}, "of a few runs it is asked"
    monkeypatch.setattr("sonda.record.store.MOST_ASKED", 1)
    assert store.tags([old.id])[old.id] == ["base"], "of many tags they are listed"
    store.untag(old.id, "base")
    store.untag(old.id, "base")
    assert store.find("base")[0].id == new.id
    store.untag(new.id, "base")
    assert "no run, tag or path 'base'" in complaint(store, "base")
    assert not (store.root / "tags" / "base").exists()


@pytest.mark.parametrize("tag", ["", "last", "..", "../x", "a/b", "a\n", "a b", "-x", ".x", "x" * 101, "a\0", "é"])
def test_what_cannot_be_a_tag(store: Store, tmp_path: Path, tag: str) -> None:
    run = keep(store)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / run.id).write_text("not ours")
    for action in (store.tag, store.untag):
        with pytest.raises(SondaError, match="cannot be a tag"):
            action(run.id, tag)
    with pytest.raises(SondaError, match="is not the id of a run"):
        store.tag("../../x", "base")
    assert (tmp_path / "x" / run.id).read_text() == "not ours"
    assert store.tags() == {}


def test_a_tag_on_a_damaged_run_still_finds_the_others(store: Store) -> None:
    broken, healthy = keep(store), keep(store)
    for run in (broken, healthy):
        store.tag(run.id, "base")
    (broken.directory / "run.json").write_text("{")
    assert [run.id for run in store.find("base")] == [healthy.id]
    assert broken.directory.name in str(store.damaged[0])
    (healthy.directory / "run.json").write_text("{")
    assert "is damaged: run.json" in complaint(store, "base")


TAGGER = """
import sys
from pathlib import Path
from sonda.record.store import Store
store = Store(Path(sys.argv[1]))
sys.stdin.readline()
for _ in range(150):
    store.tag(sys.argv[2], "shared")
    store.untag(sys.argv[2], "shared")
store.tag(sys.argv[2], "shared")
store.tag(sys.argv[2], "own-" + sys.argv[2])
"""


def test_two_processes_tag_at_the_same_time(store: Store) -> None:
    runs = [keep(store), keep(store)]
    taggers = [
        subprocess.Popen([sys.executable, "-c", TAGGER, str(store.root), run.id], stdin=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
        for run in runs
    ]  # fmt: skip
    for tagger in taggers:
        assert tagger.stdin is not None
        tagger.stdin.write("go\n")
        tagger.stdin.flush()
    for tagger in taggers:
        _, errors = tagger.communicate(timeout=240)
        assert tagger.returncode == 0, errors
    assert {run.id for run in store.find("shared")} == {run.id for run in runs}
    assert store.tags() == {run.id: [f"own-{run.id}", "shared"] for run in runs}
