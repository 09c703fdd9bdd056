"""A walk over a parsed study file that collects every mistake with its key and line."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sonda.record.nearest import nearest
from sonda.studies.lines import Path
from sonda.studies.mistake import Mistake
from sonda.studies.study import same


class Walk:
    """Asks for values by key, and notes what is wrong instead of stopping."""

    def __init__(self, lines: Mapping[Path, int]) -> None:
        self.lines = lines
        self.mistakes: list[Mistake] = []

    def wrong(self, path: Path, text: str) -> None:
        """Note a mistake at a key; a key that is missing is reported on the line of the table that lacks it."""
        known = path
        while known and known not in self.lines:
            known = known[:-1]
        self.mistakes.append(Mistake(self.lines.get(known, 1), dotted(path), text))

    def table(self, document: Mapping[str, Any], path: Path) -> dict[str, Any]:
        """The table at the last key of `path`; an empty one where it is missing or something else."""
        value = document.get(str(path[-1]), {})
        if isinstance(value, dict):
            return value
        self.wrong(path, f"must be a table, not {kind(value)}")
        return {}

    def tables(self, document: Mapping[str, Any], key: str) -> list[tuple[Path, dict[str, Any]]]:
        """The tables of `[[key]]` with their paths."""
        value = document.get(key, [])
        if not isinstance(value, list):
            self.wrong((key,), f"must be written as [[{key}]], not as {kind(value)}")
            return []
        found: list[tuple[Path, dict[str, Any]]] = []
        for index, row in enumerate(value):
            if isinstance(row, dict):
                found.append(((key, index), row))
            else:
                self.wrong((key, index), f"must be a table, not {kind(row)}")
        return found

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
        self.wrong((*path, key), "must not be empty" if isinstance(value, str) else f"must be text, not {kind(value)}")
        return otherwise

    def texts(self, table: Mapping[str, Any], path: Path, key: str) -> tuple[str, ...]:
        value = table.get(key, [])
        if not isinstance(value, list):
            self.wrong((*path, key), f"must be a list of texts, not {kind(value)}")
            return ()
        for index, one in enumerate(value):
            if not isinstance(one, str) or not one.strip():
                self.wrong((*path, key, index), "must be text")
        return tuple(one for one in value if isinstance(one, str))

    def whole(self, table: Mapping[str, Any], path: Path, key: str, least: int, most: int, otherwise: int) -> int:
        """An integer between `least` and `most`."""
        value = table.get(key, otherwise)
        if isinstance(value, bool) or not isinstance(value, int):
            self.wrong((*path, key), f"must be a whole number, not {kind(value)}")
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
            self.wrong((*path, key), f"must be a number, not {kind(value)}")
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
            self.wrong(path, f"must be text, a number, true or false, not {kind(value)}")
        return False

    def scalars(self, values: list[Any], path: Path, check: Callable[[Any, Path], bool] | None = None) -> list[Any]:
        """The values of a list that are plain, pass the check and appear for the first time."""
        if not values:
            self.wrong(path, "must not be empty")
        found: list[Any] = []
        for index, value in enumerate(values):
            place = (*path, index)
            if not self.scalar(value, place):
                continue
            if any(same(value, other) for other in found):
                self.wrong(place, f"{shown(value)} is there twice")
            elif check is None or check(value, place):
                found.append(value)
        return found


def dotted(path: Path) -> str:
    """`published[2].where.op`"""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".")


def kind(value: Any) -> str:
    """What a value is, in the words of somebody who writes a study file."""
    if isinstance(value, bool):
        return str(value).lower()
    words = {str: "text", int: "a whole number", float: "a number", list: "a list", dict: "a table"}
    return words.get(type(value), "a date or time")


def shown(value: Any) -> str:
    """A value as it stands in the file."""
    return str(value).lower() if isinstance(value, bool) else repr(value)
