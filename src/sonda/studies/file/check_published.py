"""The check of what was published, and of conditions that name axes and their values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from sonda.record.errors import nearest
from sonda.studies.engine.plan import configurations
from sonda.studies.figures.registry import parse_figure
from sonda.studies.file.lines import Path
from sonda.studies.file.mistakes import StudyWalk, dotted_key, kind_of_value, show_value
from sonda.studies.file.study import Printed, Published, Scalar, Study, is_same, matches

PUBLISHED_KEYS = ("where", "hardware", "source", "note")


class AxisNames:
    """Checks conditions such as `where = { op = "add" }` against the axes."""

    def __init__(self, walk: StudyWalk, names: Iterable[str], axes: Mapping[str, tuple[Scalar, ...]]) -> None:
        self.walk = walk
        self.names = tuple(names)
        self.axes = axes

    def condition(self, where: Mapping[str, Any], path: Path, does: str) -> bool:
        """Whether every key is an axis and every value is plain. Values that no axis has are noted."""
        if not where:
            self.walk.wrong(path, f"{does} nothing; name an axis and its value")
            return False
        sound = True
        for key, value in where.items():
            place = (*path, key)
            if key not in self.names:
                self.walk.wrong(place, f"is not an axis; {nearest(key, self.names)}")
                sound = False
                continue
            values = value if isinstance(value, list) else [value]
            plain = self.walk.scalars(value, place) if isinstance(value, list) else values
            if plain != values or not all(self.walk.scalar(value, place) for value in plain):
                sound = False
            elif key in self.axes and does == "excludes":
                for scalar in plain:
                    if not any(is_same(scalar, axis_value) for axis_value in self.axes[key]):
                        self.walk.wrong(place, f"excludes nothing: the axis has no {show_value(scalar)}")
        return sound


def check_published(
    walk: StudyWalk, document: Mapping[str, Any], study: Study, named: AxisNames, sound: bool
) -> tuple[Published, ...]:
    """The rows of `[[published]]`; whether they stand for a point is looked at where the rest is `sound`."""
    points = configurations(study) if sound else []
    for name in study.scales if sound else ():
        points += configurations(study.at_scale(name))
    rows: list[Published] = []
    seen: dict[tuple[str, str, str], Path] = {}
    for path, table in walk.tables(document, "published"):
        where = walk.table(table, (*path, "where"))
        if "where" not in table:
            walk.wrong((*path, "where"), "is missing; name the axes and values that the figures stand for")
        elif named.condition(where, (*path, "where"), "matches") and sound and not _any(where, points):
            walk.wrong((*path, "where"), "matches no point of the study")
        source = walk.text(table, path, "source")
        if not source and not study.source and "source" not in table:
            walk.wrong((*path, "source"), "is missing; say where the figures were printed")
        hardware = walk.text(table, path, "hardware")
        figures = _figures(walk, table, path)
        for key in figures:
            first = seen.setdefault((repr(sorted(where.items())), hardware, key), path)
            if first != path:
                walk.wrong(
                    (*path, key), f"is there twice: {dotted_key(first)} has it for the same 'where' and 'hardware'"
                )
        place = ", ".join(text for text in (study.source, source) if text)
        rows.append(Published(dict(where), figures, place, hardware, walk.text(table, path, "note")))
    return tuple(rows)


def _any(where: Mapping[str, Any], points: list[dict[str, Scalar]]) -> bool:
    return any(matches(where, point) for point in points)


def _figures(walk: StudyWalk, table: Mapping[str, Any], path: Path) -> dict[str, Printed]:
    figures: dict[str, Printed] = {}
    for key, value in table.items():
        place = (*path, key)
        if key in PUBLISHED_KEYS:
            continue
        if isinstance(value, str):
            walk.wrong(place, f"unknown key; {nearest(key, PUBLISHED_KEYS)}")
        elif problem := _number(value, key) if not isinstance(value, list) else _range(value, key):
            walk.wrong(place, problem)
        elif parse_figure(key).mistake:
            walk.wrong(place, parse_figure(key).mistake)
        else:
            figures[key] = (float(value[0]), float(value[1])) if isinstance(value, list) else float(value)
    if not figures and not set(table) - set(PUBLISHED_KEYS):
        walk.wrong(path, "has no figure; add one with its unit, such as step_ms = 6.1")
    return figures


def _number(value: Any, key: str) -> str:
    """Why this is no printed figure; empty where it is one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"must be a number, not {kind_of_value(value)}"
    if not math.isfinite(value):
        return f"must be a finite number, not {value}"
    figure = parse_figure(key)
    return f"must be above 0, not {value}" if figure.measurable and not figure.mistake and value <= 0 else ""


def _range(value: list[Any], key: str) -> str:
    """Why this is no printed range; empty where it is one."""
    if len(value) != 2:
        return f"a range has two ends, not {len(value)}"
    numbers = all(not isinstance(end, bool) and isinstance(end, (int, float)) for end in value)
    if not numbers or not all(map(math.isfinite, value)):
        return "both ends of a range must be finite numbers"
    if not value[0] < value[1]:
        return f"the range ends at {value[1]}, not above its beginning {value[0]}"
    return "a range cannot begin below 0" if parse_figure(key).measurable and value[0] < 0 else ""
