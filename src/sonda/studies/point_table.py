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

from sonda.record.span import Words
from sonda.studies.space import ON
from sonda.targets.exploring import Points, by_field

COUNTS = {"cycles": "cycle", "memory_cycles": "cycle", "dram_bytes": "B"}
SUFFIXES = ("", "_low", "_high")
NUMBER = re.compile(r"[+-]?\d{1,18}")
DECIMAL = re.compile(r"[+-]?\d{1,18}(\.\d{1,18})?")


def joined(points: Mapping[str, Points], name: str) -> NDArray[Any]:
    """One array of all targets, one after the other."""
    return np.concatenate([getattr(one, name) for one in points.values()])


def reasons(points: Mapping[str, Points], name: str) -> Words:
    """Why points are `impossible` or `unpriced`, or what is `on_host`, as words; '' where nothing is."""
    order: dict[str, int] = {"": 0}
    codes = []
    for one in points.values():
        places = np.array([order.setdefault(reason, len(order)) for reason in one.reasons], np.int32)
        codes.append(places[getattr(one, name)])
    return Words(np.concatenate(codes), tuple(order))


def point_table(points: Mapping[str, Points], axes: Mapping[str, Sequence[str]], front: NDArray[np.bool_]) -> Any:
    """The Arrow table. Metrics carry their unit as metadata, as those of spans do."""
    import pyarrow as pa

    cannot = joined(points, "impossible") > 0
    sizes = [len(one.cycles) for one in points.values()]
    columns: dict[str, tuple[Any, str]] = {}
    columns[ON] = (_words(Words(np.repeat(np.arange(len(sizes), dtype=np.int32), sizes), tuple(points))), "")
    for key, values in axes.items():
        codes = _codes(key, points)
        for field, own in by_field({key: values}).items():
            columns[field] = (_values(codes, own), "")
    for name, unit in COUNTS.items():
        columns[f"{name}:simulated"] = (pa.array(joined(points, name), mask=cannot), unit)
    units = next(iter(points.values())).units
    for name, unit in zip(("energy", "area"), units, strict=True):
        for figures, suffix in zip(joined(points, name).T, SUFFIXES, strict=True):
            columns[f"{name}{suffix}:simulated"] = (pa.array(figures.copy(), mask=np.isnan(figures)), unit)
    columns["front"] = (pa.array(front), "")
    for name in ("on_host", "impossible", "unpriced"):
        columns[name] = (_words(reasons(points, name)), "")
    fields = [
        pa.field(name, column.type, metadata={"unit": unit} if unit else None)
        for name, (column, unit) in columns.items()
    ]
    return pa.Table.from_arrays([column for column, _ in columns.values()], schema=pa.schema(fields))


def _codes(key: str, points: Mapping[str, Points]) -> NDArray[np.int32]:
    """Which value of a key every point has; -1 where its target does not have the field."""
    codes = []
    for one in points.values():
        if key not in one.axes:
            codes.append(np.full(len(one.cycles), -1, np.int32))
            continue
        lengths = [len(some) for some in one.axes.values()]
        place = list(one.axes).index(key)
        after = int(np.prod(lengths[place + 1 :], dtype=np.int64))
        before = int(np.prod(lengths[:place], dtype=np.int64))
        codes.append(np.tile(np.repeat(np.arange(lengths[place], dtype=np.int32), after), before))
    return np.concatenate(codes)


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
