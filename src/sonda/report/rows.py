"""Rows of a long table as data: a page cannot hold an element for each of 100,000 rows, but can draw those in sight."""

from __future__ import annotations

import re
from typing import Any

from sonda.report.labels import plain
from sonda.report.quantities import title_with_unit
from sonda.report.table import Cell, Column, Table

_NUMBER = re.compile(r"\d[\d,.]*")
EXACT = 2**53
"""Whole numbers below it are the same in JavaScript."""
BLANK = "\0"
"""Stands in a hint where a number is."""


def pack_rows(table: Table) -> dict[str, Any]:
    """A table's rows by column, for the page's script.

    Hints of a column differ in their numbers only, so that each is the number of a template and what fills it:
    `0|402|396|410`.
    """
    columns = [_column([row[index] for row in table.rows]) for index in range(len(table.columns))]
    document: dict[str, Any] = {"count": len(table.rows), "columns": columns}
    if table.attributes and "id" in table.attributes[0]:
        place = {row["id"]: index for index, row in enumerate(table.attributes)}
        document["parent"] = [place.get(row["parent"], -1) for row in table.attributes]
        document["leaf"] = [int(row["leaf"]) for row in table.attributes]
        document["path"] = [plain(row["path"]) for row in table.attributes]
    return document


def cell_classes(cell: Cell) -> str:
    """Classes of a cell beside its column's: its tone, and `estimated` where its number is a guess."""
    return " ".join(name for name in (cell.tone, "estimated" if cell.estimated else "") if name)


def has_units(cells: list[Cell]) -> bool:
    """Whether numbers of a column know their unit, so that what is copied need not be what is written.

    Words among them, and ranges that have no middle, are copied as they are written.
    """
    return any(cell.unit and cell.order is not None for cell in cells)


def copied_name(column: Column, cells: list[Cell]) -> str:
    """What heads a copied column: its unit stands in the name where all numbers share it."""
    units = {cell.unit for cell in cells if cell.unit}
    return title_with_unit(plain(column.name), units.pop()) if len(units) == 1 else plain(column.name)


def _column(cells: list[Cell]) -> dict[str, Any]:
    texts = [plain(cell.text) for cell in cells]
    packed_column: dict[str, Any] = {"text": texts}
    orders = [_copied_number(cell.order) if cell.unit else _rounded(cell.order) for cell in cells]
    if orders != texts:
        packed_column["order"] = orders
    if any(cell.hint for cell in cells):
        templates: dict[str, int] = {}
        codes = []
        for cell in cells:
            hint = plain(cell.hint)
            number = templates.setdefault(_NUMBER.sub(BLANK, hint), len(templates))
            codes.append("|".join([str(number), *_NUMBER.findall(hint)]))
        packed_column["hint"], packed_column["templates"] = codes, list(templates)
    if has_units(cells):
        units = [cell.unit for cell in cells]
        used = {cell.unit for cell in cells if cell.order is not None}
        packed_column["unit"] = units if len(used) > 1 else used.pop()
        for end in ("low", "high"):
            ends = [_copied_number(getattr(cell, end)) for cell in cells]
            if any(bound is not None for bound in ends):
                packed_column[end] = ends
    tones = [cell_classes(cell) for cell in cells]
    if any(tones):
        known = {tone: index for index, tone in enumerate(dict.fromkeys(tones))}
        packed_column["tone"], packed_column["tones"] = [known[tone] for tone in tones], list(known)
    return packed_column


def _copied_number(number: float | str | None) -> float | str | None:
    """A number with all digits, because it is copied; a whole number without the point."""
    if isinstance(number, float) and number.is_integer() and abs(number) < EXACT:
        return int(number)
    return number


def _rounded(order: float | str | None) -> float | str | None:
    """A sort key: seven digits sort as well as seventeen, names sort as they are shown."""
    if isinstance(order, str):
        return plain(order)
    return _copied_number(float(f"{order:.7g}")) if isinstance(order, float) else order
