"""The points of an exploration as one table: a row for each, in the order of targets and then of axes.

Columns are the target, a column for each field that varies (null where a target does not have it), the metrics, whether
no other point beats this one, what runs on the host, and why a point is impossible or has no energy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sonda.record.spans import Words
from sonda.studies.explore.space import ON
from sonda.targets.simulated.design_space import AND, GridPoints, values_by_field

COUNTS = {"cycles": "cycle", "memory_cycles": "cycle", "dram_bytes": "B"}
SUFFIXES = ("", "_low", "_high")
NUMBER = re.compile(r"[+-]?\d{1,18}")
DECIMAL = re.compile(r"[+-]?\d{1,18}(\.\d{1,18})?")


def point_table(
    points: GridPoints, on: str, targets: Sequence[str], axes: Mapping[str, Sequence[str]], clocks: NDArray[np.float64]
) -> Any:
    """The Arrow table of points of one target, which are some of those of `axes`; without their place on the front.

    `clocks` are in Hz, NaN for a point without one.

    Tables of other targets and other points of the same axes have the same columns. Metrics carry their unit as
    metadata, as those of spans do.
    """
    import pyarrow as pa

    cannot = points.impossible > 0
    columns: dict[str, tuple[Any, str]] = {}
    columns[ON] = (_words(Words(np.full(len(cannot), list(targets).index(on), np.int32), tuple(targets))), "")
    for field, values in values_by_field(axes).items():
        columns[field] = (_values(_codes(field, points, values), values), "")
    for name, unit in COUNTS.items():
        columns[f"{name}:simulated"] = (pa.array(getattr(points, name), mask=cannot), unit)
    columns["clock:nominal"] = (pa.array(clocks, mask=np.isnan(clocks)), "Hz")
    for name, unit in zip(("energy", "area"), points.units, strict=True):
        for figures, suffix in zip(getattr(points, name).T, SUFFIXES, strict=True):
            columns[f"{name}{suffix}:simulated"] = (pa.array(figures.copy(), mask=np.isnan(figures)), unit)
    for name in ("on_host", "impossible", "unpriced"):
        columns[name] = (_words(Words(getattr(points, name), points.reasons)), "")
    fields = [
        pa.field(name, column.type, metadata={"unit": unit} if unit else None)
        for name, (column, unit) in columns.items()
    ]
    return pa.Table.from_arrays([column for column, _ in columns.values()], schema=pa.schema(fields))


def add_front(table: Any, front: NDArray[np.bool_]) -> Any:
    """The table with the column that says which points no other beats, in its place."""
    import pyarrow as pa

    return table.add_column(table.schema.get_field_index("on_host"), "front", pa.array(front))


def _codes(field: str, points: GridPoints, values: Sequence[str]) -> NDArray[np.int32]:
    """Which of all values of a field every point has; -1 where its target does not have the field."""
    lengths = [len(some) for some in points.axes.values()]
    order = {value: code for code, value in reversed(list(enumerate(values)))}
    for place, (key, chosen) in enumerate(points.axes.items()):
        if field in key.split(AND):
            own = np.array([order[value] for value in values_by_field({key: chosen})[field]], dtype=np.int32)
            after = int(np.prod(lengths[place + 1 :], dtype=np.int64))
            before = int(np.prod(lengths[:place], dtype=np.int64))
            return np.tile(np.repeat(own, after), before)
    return np.full(len(points.cycles), -1, np.int32)


def _values(codes: NDArray[np.int32], values: Sequence[str]) -> Any:
    """The values of one field, as numbers where all of them are; null where the code is -1."""
    import pyarrow as pa

    missing = codes < 0
    for form, kind in ((NUMBER, np.int64), (DECIMAL, np.float64)):
        if all(form.fullmatch(value) for value in values):
            convert: Callable[[str], float] = int if kind is np.int64 else float
            return pa.array(np.array([convert(value) for value in values], kind)[codes], mask=missing)
    return _words(Words(codes, tuple(value or "default" for value in values)))


def _words(column: Words) -> Any:
    """Words as a dictionary; null for code -1 and for ''."""
    import pyarrow as pa

    empty = np.array([not word for word in column.words], bool)
    return pa.DictionaryArray.from_arrays(
        pa.array(column.codes, mask=(column.codes < 0) | empty[column.codes]), pa.array(column.words, pa.string())
    )
