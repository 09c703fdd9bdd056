"""Mistakes in a study file, and the walk over the parsed file that collects them all with key and line."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sonda.record.errors import SondaError, nearest
from sonda.studies.file.lines import Path
from sonda.studies.file.study import is_same

# ---- Mistakes in a study file, all of them at once ------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class Mistake:
    """What is wrong at one place of a study file."""

    line: int
    key: str
    text: str


class StudyMistakes(SondaError):  # noqa: N818 (it is the mistakes that are raised)
    """A study file that cannot be used; `str()` has one line for each mistake: `file:line: key: what is wrong`."""

    def __init__(self, file: str, mistakes: Iterable[Mistake]) -> None:
        self.file = file
        self.mistakes = tuple(sorted(set(mistakes)))
        count = len(self.mistakes)
        super().__init__(f"{file} has {count} mistake{'s' if count != 1 else ''}", "correct them; nothing has run")

    def __str__(self) -> str:
        lines = [f"{self.file}:{mistake.line}: {mistake.key}: {mistake.text}" for mistake in self.mistakes]
        return "\n".join(" ".join(line.split()) for line in lines)


# ----------------------------------------------------------------------------------------------------------------------


class StudyWalk:
    """Asks for values by key, and notes what is wrong instead of stopping."""

    def __init__(self, lines: Mapping[Path, int]) -> None:
        self.lines = lines
        self.mistakes: list[Mistake] = []

    def wrong(self, path: Path, text: str) -> None:
        """Note a mistake at a key; a key that is missing is reported on the line of the table that lacks it."""
        known = path
        while known and known not in self.lines:
            known = known[:-1]
        self.mistakes.append(Mistake(self.lines.get(known, 1), dotted_key(path), text))

    def table(self, document: Mapping[str, Any], path: Path) -> dict[str, Any]:
        """The table at the last key of `path`; an empty one where it is missing or something else."""
        value = document.get(str(path[-1]), {})
        if isinstance(value, dict):
            return value
        self.wrong(path, f"must be a table, not {kind_of_value(value)}")
        return {}

    def tables(self, document: Mapping[str, Any], key: str) -> list[tuple[Path, dict[str, Any]]]:
        """The tables of `[[key]]` with their paths."""
        value = document.get(key, [])
        if not isinstance(value, list):
            self.wrong((key,), f"must be written as [[{key}]], not as {kind_of_value(value)}")
            return []
        tables: list[tuple[Path, dict[str, Any]]] = []
        for index, row in enumerate(value):
            if isinstance(row, dict):
                tables.append(((key, index), row))
            else:
                self.wrong((key, index), f"must be a table, not {kind_of_value(row)}")
        return tables

    def only(self, table: Mapping[str, Any], path: Path, known: Iterable[str]) -> None:
        """Note the keys that are not known."""
        known = tuple(known)
        for key in table:
            if key not in known:
                self.wrong((*path, key), f"unknown key; {nearest(key, known)}")

    def text(self, table: Mapping[str, Any], path: Path, key: str, otherwise: str = "") -> str:
        value = table.get(key, otherwise)
        if isinstance(value, str) and (value.strip() or key not in table):
            return value
        self.wrong(
            (*path, key), "must not be empty" if isinstance(value, str) else f"must be text, not {kind_of_value(value)}"
        )
        return otherwise

    def texts(self, table: Mapping[str, Any], path: Path, key: str) -> tuple[str, ...]:
        value = table.get(key, [])
        if not isinstance(value, list):
            self.wrong((*path, key), f"must be a list of texts, not {kind_of_value(value)}")
            return ()
        for index, item in enumerate(value):
            if not isinstance(item, str) or not item.strip():
                self.wrong((*path, key, index), "must be text")
        return tuple(item for item in value if isinstance(item, str))

    def whole(self, table: Mapping[str, Any], path: Path, key: str, least: int, most: int, otherwise: int) -> int:
        """An integer between `least` and `most`."""
        value = table.get(key, otherwise)
        if isinstance(value, bool) or not isinstance(value, int):
            self.wrong((*path, key), f"must be a whole number, not {kind_of_value(value)}")
        elif not least <= value <= most:
            self.wrong((*path, key), f"must be between {least} and {most}, not {value}")
        else:
            return value
        return otherwise

    def number(
        self, table: Mapping[str, Any], path: Path, key: str, least: float, most: float, otherwise: float
    ) -> float:
        """A number between `least` and `most`."""
        value = table.get(key, otherwise)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.wrong((*path, key), f"must be a number, not {kind_of_value(value)}")
        elif not least <= value <= most:
            self.wrong((*path, key), f"must be between {least:g} and {most:g}, not {value}")
        else:
            return float(value)
        return otherwise

    def scalar(self, value: Any, path: Path) -> bool:
        """Whether this is one plain value: text, a finite number, true or false."""
        if isinstance(value, str):
            if value.strip():
                return True
            self.wrong(path, "must not be empty")
        elif isinstance(value, float) and not math.isfinite(value):
            self.wrong(path, f"must be a finite number, not {value}")
        elif isinstance(value, (bool, int, float)):
            return True
        else:
            self.wrong(path, f"must be text, a number, true or false, not {kind_of_value(value)}")
        return False

    def scalars(self, values: list[Any], path: Path, check: Callable[[Any, Path], bool] | None = None) -> list[Any]:
        """The values of a list that are plain, pass the check and appear for the first time."""
        if not values:
            self.wrong(path, "must not be empty")
        distinct: list[Any] = []
        for index, value in enumerate(values):
            place = (*path, index)
            if not self.scalar(value, place):
                continue
            if any(is_same(value, earlier) for earlier in distinct):
                self.wrong(place, f"{show_value(value)} is there twice")
            elif check is None or check(value, place):
                distinct.append(value)
        return distinct


def dotted_key(path: Path) -> str:
    """`published[2].where.op`"""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".")


def kind_of_value(value: Any) -> str:
    """What a value is, in the words of somebody who writes a study file."""
    if isinstance(value, bool):
        return str(value).lower()
    words = {str: "text", int: "a whole number", float: "a number", list: "a list", dict: "a table"}
    return words.get(type(value), "a date or time")


def show_value(value: Any) -> str:
    """A value as it stands in the file."""
    return str(value).lower() if isinstance(value, bool) else repr(value)
