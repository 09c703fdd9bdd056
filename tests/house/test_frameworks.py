"""Every framework is a folder with the same entries: `observe`, `drive` and, where it writes profiles, `profile`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from rooms_cases import PACKAGE, REPOSITORY
from sonda.frameworks.collector.start import OBSERVERS

ROOM = PACKAGE / "frameworks"
SHARED = {"collector", "harness", "inject", "reconstruction"}
"""Folders that belong to no framework."""
FRAMEWORKS = sorted(path.parent.name for path in ROOM.glob("*/__init__.py") if path.parent.name not in SHARED)
ENTRIES = {"observe": "observer", "drive": "steps", "profile": "operations"}
"""The module of each folder in which others find its functions."""
READING_PROFILES = {"write_profile", "place_of", "time_by_place"}


def functions_of(framework: str, folder: str) -> set[str]:
    path = ROOM / framework / folder / f"{ENTRIES[folder]}.py"
    return {node.name for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.FunctionDef)}


def docstring_of(folder: Path) -> str:
    return ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8"))) or ""


def test_the_frameworks_are_those_that_are_observed() -> None:
    assert set(FRAMEWORKS) == {module.partition(".")[0] for module, _ in OBSERVERS.values()}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_has_the_entries_of_all_others(framework: str) -> None:
    place = ROOM / framework
    assert not [path.name for path in place.glob("*.py") if path.stem in ENTRIES], "these are folders"
    assert f"observe_{framework}" in functions_of(framework, "observe")
    assert OBSERVERS[framework] == (f"{framework}.observe.observer", f"observe_{framework}")
    assert any(name.startswith("drive_") for name in functions_of(framework, "drive"))
    for folder in ENTRIES:
        assert not (place / folder).is_dir() or docstring_of(place / folder)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_reads_profiles_as_the_others_do_or_says_why_not(framework: str) -> None:
    if (ROOM / framework / "profile").is_dir():
        assert functions_of(framework, "profile") >= READING_PROFILES
    else:
        assert "It has no `profile`: " in docstring_of(ROOM / framework)


def test_the_page_tells_which_frameworks_read_profiles() -> None:
    page = (REPOSITORY / "docs" / "rooms" / "frameworks.md").read_text("utf-8").splitlines()
    (head,) = (line for line in page if line.startswith("| entry |"))
    (row,) = (line for line in page if line.startswith("| profile: `profile/operations.py` |"))
    names = [cell.strip().lower().replace("pytorch", "torch") for cell in head.strip("|").split("|")[2:]]
    answers = [cell.strip().partition(":")[0] for cell in row.strip("|").split("|")[2:]]
    told = dict(zip(names, answers, strict=True))
    assert told == {name: "yes" if (ROOM / name / "profile").is_dir() else "no" for name in FRAMEWORKS}
