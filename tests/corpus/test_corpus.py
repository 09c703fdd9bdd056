"""Stored runs of every kind are shown as before: numbers never change, words only where CHANGELOG.md says so."""

from __future__ import annotations

import json
from difflib import unified_diff
from math import isclose

import pytest

from answers import ANSWERS, commands, files_of


@pytest.mark.parametrize("name", list(commands()))
def test_the_answer_is_the_kept_one(name: str) -> None:
    kept = {path.name: path.read_text(encoding="utf-8") for path in (ANSWERS / name).iterdir()}
    now = files_of(name)
    assert set(now) == set(kept)
    for file in kept:
        if file == "document.json" and kept[file].startswith("{"):
            assert differences(json.loads(kept[file]), json.loads(now[file])) == []
        else:
            lines = unified_diff(kept[file].splitlines(), now[file].splitlines(), "kept", "now", lineterm="", n=1)
            assert list(lines) == [], file


def test_every_kept_answer_belongs_to_a_run() -> None:
    assert {path.name for path in ANSWERS.iterdir()} == set(commands())


def differences(kept: object, now: object, place: str = "") -> list[str]:
    """Where two documents differ. Numbers may differ after the ninth digit, as they do on another processor."""
    if isinstance(kept, dict) and isinstance(now, dict):
        keys, absent = dict.fromkeys([*kept, *now]), "(missing)"
        places = [(kept.get(key, absent), now.get(key, absent), f"{place}.{key}") for key in keys]
        return [line for one in places for line in differences(*one)]
    if isinstance(kept, list) and isinstance(now, list) and len(kept) == len(now):
        return [
            line for at, pair in enumerate(zip(kept, now, strict=True)) for line in differences(*pair, f"{place}[{at}]")
        ]
    if type(kept) is type(now) is float and isclose(kept, now, rel_tol=1e-9):
        return []
    return [] if type(kept) is type(now) and kept == now else [f"{place}: {kept!r} became {now!r}"]


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
