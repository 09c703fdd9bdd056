"""Stored runs of every kind are shown as before: numbers never change, words only where CHANGELOG.md says so."""

from __future__ import annotations

import json
from difflib import unified_diff

import pytest

from answers import ANSWERS, commands, differences, files_of, is_document, with_kept_digits


@pytest.mark.parametrize("name", list(commands()))
def test_the_answer_is_the_kept_one(name: str) -> None:
    kept = {path.name: path.read_text(encoding="utf-8") for path in (ANSWERS / name).iterdir()}
    now = files_of(name)
    assert set(now) == set(kept)
    for file in kept:
        if is_document(file, kept[file]):
            assert differences(json.loads(kept[file]), json.loads(now[file])) == []
        else:
            lines = unified_diff(kept[file].splitlines(), now[file].splitlines(), "kept", "now", lineterm="", n=1)
            assert list(lines) == [], file


def test_every_kept_answer_belongs_to_a_run() -> None:
    assert {path.name for path in ANSWERS.iterdir()} == set(commands())


@pytest.mark.parametrize(
    ("kept", "now", "count"),
    [
        ({"a": 1}, {"a": 1}, 0), ({"a": 1}, {"a": 1.0}, 1), ({"a": 1}, {"b": 1}, 2), ([1.5], [1.5 + 1e-12], 0),
        ([1.5], [1.5001], 1), ([1, 2], [1], 1), ({"a": [{"b": "x"}]}, {"a": [{"b": "y"}]}, 1),
        (None, 0, 1), (True, 1, 1),
    ],
)  # fmt: skip
def test_the_comparison_itself_sees_differences(kept: object, now: object, count: int) -> None:
    assert len(differences(kept, now)) == count


@pytest.mark.parametrize(
    ("kept", "now", "written"),
    [
        ({"b": 1.5, "a": 2.0}, {"a": 2.0 + 1e-12, "b": 1.5001}, {"a": 2.0, "b": 1.5001}),
        ([1.5, {"a": 2.5}], [1.5 + 1e-12, {"a": 2.5 + 1e-12}, 3.5], [1.5, {"a": 2.5}, 3.5]),
        ([1.5, 2.5], [1.5 + 1e-12], [1.5]),
        ({"a": 1}, {"a": 1.0}, {"a": 1.0}),
        ({"a": 0.0}, {"a": 1e-300}, {"a": 1e-300}),
    ],
)
def test_an_answer_written_anew_keeps_the_digits_of_numbers_that_are_the_same(
    kept: object, now: object, written: object
) -> None:
    assert repr(with_kept_digits(kept, now)) == repr(written)
