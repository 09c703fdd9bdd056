"""A store may be named by its directory, as a path or as text."""

from __future__ import annotations

from pathlib import Path

import pytest

import sonda
from record_examples import an_info, two_spans
from sonda.record.errors import SondaError
from sonda.record.run import write_run
from sonda.record.store import Store


def test_text_a_path_and_a_store_are_the_same_place(tmp_path: Path) -> None:
    run = write_run(tmp_path, an_info(), two_spans())
    assert Store(str(tmp_path)).root == tmp_path
    for place in (str(tmp_path), tmp_path, Store(str(tmp_path))):
        assert sonda.load("last", store=place).run.id == run.id


def test_a_run_goes_to_a_store_that_is_named_by_text(tmp_path: Path) -> None:
    for place in (str(tmp_path / "one"), Store(str(tmp_path / "two"))):
        sonda.run("dlrm", on="sim:dlrm-hybrid", batch=2, store=place)
    assert [len(Store(tmp_path / name).directories()) for name in ("one", "two")] == [1, 1]


def test_the_home_directory_is_meant_by_its_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Store("~/runs").root == tmp_path / "runs"


def test_what_is_no_directory_is_said_in_one_line() -> None:
    with pytest.raises(SondaError, match="a store is a directory, not int; give its path"):
        Store(3)  # type: ignore[arg-type]
