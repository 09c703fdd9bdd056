"""Removing runs: one by one, by their age, and what is left of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from command_line import run_command
from record_examples import keep
from sonda.record.errors import SondaError
from sonda.record.files.partial import PARTIAL
from sonda.record.store import Store, parse_age


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_removing_takes_the_run_and_its_tags(store: Store) -> None:
    run, other = keep(store), keep(store)
    store.tag(run.id, "base")
    store.tag(other.id, "base")
    store.remove(run.directory)
    assert [one.id for one in store.runs()] == [other.id]
    assert store.tags() == {other.id: ["base"]}
    assert not list(store.root.glob(f"{PARTIAL}*"))
    with pytest.raises(SondaError, match="there is no run"):
        store.remove(run.directory)


def test_a_project_with_a_run_json_of_its_own_is_not_removed(store: Store, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "run.json").write_text("{}")
    (project / "thesis.txt").write_text("years")
    with pytest.raises(SondaError, match="not named like a run of Sonda's; remove it yourself"):
        store.remove(store.locate(str(project))[0])
    assert (project / "thesis.txt").read_text() == "years"


def test_a_run_elsewhere_is_removed_where_it_is(store: Store, tmp_path: Path) -> None:
    run = keep(Store(tmp_path / "elsewhere"))
    store.remove(store.locate(str(run.directory))[0])
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_name_that_is_wrong_removes_nothing(store: Store, tmp_path: Path) -> None:
    first, second = keep(store), keep(store)
    mistaken = run_command(tmp_path, "rm", first.id, "nobody")
    assert mistaken.returncode == 2 and "no run, tag or path 'nobody'" in mistaken.stderr
    assert {run.id for run in store.runs()} == {first.id, second.id}
    twice = run_command(tmp_path, "rm", first.id, f"store/{first.directory.name}")
    assert twice.stdout == "removed 1 run\n"
    assert [run.id for run in store.runs()] == [second.id]


def test_removing_by_age(store: Store) -> None:
    today = datetime.now(UTC)
    runs = {
        days: keep(store, created=(today - timedelta(days=days, minutes=5)).isoformat()) for days in (0, 1, 29, 30, 400)
    }
    (runs[400].directory / "run.json").write_text("damaged")
    (store.root / "20269999T999999-abcd").mkdir()
    removed = store.remove_older_than(parse_age("30d"))
    assert sorted(removed) == sorted([runs[30].directory, runs[400].directory])
    assert {run.id for run in store.runs()} == {runs[days].id for days in (0, 1, 29)}
    assert len(store.directories()) == 4, "what says no age stays"


def test_removing_by_age_passes_over_what_somebody_else_removes_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [keep(store, created=f"2020-01-0{day}T00:00:00+00:00") for day in (1, 2, 3)]
    listed = store.directories()
    Store(store.root).remove(runs[1].directory)
    monkeypatch.setattr(store, "directories", lambda: listed)
    assert sorted(store.remove_older_than(parse_age("30d"))) == [runs[0].directory, runs[2].directory]
    assert not list(store.root.glob("2020*"))


@pytest.mark.parametrize("age", ["104000w", "730000d", "9999999d", "100000000w"])
def test_no_run_is_older_than_time_itself(store: Store, age: str) -> None:
    keep(store)
    assert store.remove_older_than(parse_age(age)) == []
    assert len(store.directories()) == 1


def test_ages() -> None:
    assert parse_age("90m") == timedelta(minutes=90)
    assert parse_age(" 12 h ") == timedelta(hours=12)
    assert parse_age("30d") == timedelta(days=30)
    assert parse_age("1.5w") == timedelta(days=10.5)
    for wrong in ("", "30", "d", "-3d", "3 days", "3y", "1e3d", "nan d", "٣d", "3d3h", "9" * 400 + "d"):
        with pytest.raises(SondaError, match=r"is not an age|longer than any run"):
            parse_age(wrong)


def test_scratch_goes_away_with_what_is_in_it(store: Store) -> None:
    with pytest.raises(RuntimeError), store.scratch() as directory:
        (directory / "inside").mkdir()
        (directory / "inside" / "file").write_text("x")
        assert store.directories() == []
        raise RuntimeError
    assert not directory.exists()
