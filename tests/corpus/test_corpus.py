"""Stored runs of every kind are shown as before: numbers never change, words only where CHANGELOG.md says so."""

from __future__ import annotations

import json
import re
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


MOST_LINES = 20
"""Of the first screen, at 100 columns: what a window shows at once."""
ABSENT = re.compile(r"no PMU|RAPL|powercap|NVML|no NVIDIA driver|perf_event|^ *(pmu|energy): ", re.MULTILINE)
"""Hardware that a machine lacks, which is the subject of `sonda doctor`."""
SHOWN = [name for name in commands() if name != "list"]


def kept_screen(name: str, file: str) -> str:
    return (ANSWERS / name / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SHOWN)
def test_a_first_screen_has_at_most_twenty_lines(name: str) -> None:
    lines = kept_screen(name, "100.txt").splitlines()
    assert len(lines) <= MOST_LINES
    assert [line for line in lines if len(line) > 100 and not line.startswith("sonda: ")] == []


@pytest.mark.parametrize("name", SHOWN)
def test_a_first_screen_names_no_hardware_that_is_absent(name: str) -> None:
    assert ABSENT.findall(kept_screen(name, "100.txt")) == []


@pytest.mark.parametrize("name", SHOWN)
def test_every_level_has_what_the_one_before_tells_in_tables(name: str) -> None:
    """Phases and layers stand in tables with -v, and -vv has every line of -v, in its order."""
    tables, everything = kept_screen(name, "v.txt").splitlines(), kept_screen(name, "vv.txt").splitlines()
    rest = iter(everything)
    assert [line for line in tables if line not in rest] == []
    document = json.loads((ANSWERS / name / "document.json").read_text(encoding="utf-8")) if len(tables) > 2 else {}
    heads = [line.split()[0] for line in tables if line.startswith("  ") and line.split()]
    parts = document.get("parts", ()) if document.get("kind") == "summary" else ()
    assert "phase" in heads or not any(part.get("phases") for part in parts)
    assert "layer" in heads or not any(layer.get("leaf") for part in parts[:1] for layer in part.get("layers", ()))


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
