"""A study taken apart where one picture of all would be too long: along one axis, and along another where need be."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sonda.report.views.study.tables import Document

Count = Callable[[Document], int]

MOST_LINES = 40
"""Lines of a picture that a reader can follow: as many as a screen is high."""


def split_study(study: Document, lines: Count, most: int = MOST_LINES) -> list[tuple[str, Document]]:
    """The study as parts, none of which has more than `most` lines in a picture; `('', study)` where all of it fits.

    Parts go along the axis that makes the fewest; every row is in one of them. Where the axes do not suffice, a part
    has more: nothing is left out.
    """
    return list(_parts(study, lines, most))


def _parts(study: Document, lines: Count, most: int) -> Iterator[tuple[str, Document]]:
    ways = [_split_along(study, axis) for axis in study["axes"]] if lines(study) > most else []
    ways = [way for way in ways if len(way) > 1]
    if not ways:
        yield "", study
        return
    # Those that fit by fewest parts; else the one that comes nearest to it.
    longest = [max(lines(part) for part in way.values()) for way in ways]
    order = [(max(size, most), len(way)) for size, way in zip(longest, ways, strict=True)]
    for name, part in ways[order.index(min(order))].items():
        for inner, whole in _parts(part, lines, most):
            yield ", ".join(word for word in (name, inner) if word), whole


def _split_along(study: Document, axis: str) -> dict[str, Document]:
    """Parts by the values of an axis, by their names."""
    names = [_name(axis, row["configuration"].get(axis, "")) for row in study["rows"]]
    others = [other for other in study["axes"] if other != axis]
    return {
        name: {
            **study,
            "axes": others,
            "rows": [row for row, its in zip(study["rows"], names, strict=True) if its == name],
        }
        for name in dict.fromkeys(names)
    }


def _name(axis: str, value: object) -> str:
    """`resnet50`, `batch 32`."""
    if isinstance(value, str):
        return value or f"no {axis}"
    return f"{axis} {str(value).lower() if isinstance(value, bool) else value}"
