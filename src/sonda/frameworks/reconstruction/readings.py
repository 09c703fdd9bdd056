"""Decodes readings of counters: what was counted between the begin and the end of every span."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sonda.frameworks.reconstruction.events import RawSpans

HEAD_WORDS = 3
"""Number of events, time enabled, time running."""


@dataclass(frozen=True)
class Boundaries:
    """Readings of one set of counters where spans began and ended."""

    part: dict[str, Any]
    """How its readings are decoded, as `CounterSet.describe_reading` writes it."""
    table: np.ndarray
    """A row per reading: time enabled, time running (ns), then the events; all -1 for one that cannot be read."""
    begin: np.ndarray
    end: np.ndarray
    """For every span the rows of its readings in `table`; -1 for none."""

    def subtract(self, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The counts between pairs of readings, and for which pairs they are known."""
        table = self.table
        known = (begin >= 0) & (end >= 0)
        known &= (table[begin, 0] >= 0) & (table[end, 0] >= 0) if len(table) else False
        difference = np.zeros((len(begin), table.shape[1]), dtype=np.int64)
        difference[known] = table[end[known]] - table[begin[known]]
        return difference, known

    def columns_across(
        self, bounds: list[tuple[int, int, int]], count: int, definitions: list[dict[str, Any]]
    ) -> dict[str, np.ndarray]:
        """Columns of `count` rows: for every (row, first span, last span) the counts from one span to the other."""
        # Pieces of phases that were cut stand behind the spans that have readings.
        with_readings = [bound for bound in bounds if max(bound[1:]) < len(self.begin)]
        rows, first, last = np.array(with_readings, dtype=np.int64).reshape(-1, 3).T
        columns: dict[str, np.ndarray] = {}
        for definition, pairs, values in self.decode(*self.subtract(self.begin[first], self.end[last])):
            column = np.full(count, np.nan)
            column[rows[pairs]] = values
            columns[f"{definitions[definition]['quantity']}:{definitions[definition]['source']}"] = column
        return columns

    def decode(self, difference: np.ndarray, known: np.ndarray) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """(definition of a value, pairs that have the value, values).

        An event that did not count all the time is scaled up to the whole time, and is an estimate. One that never
        counted is missing. Where a set has no estimates (one kind of core of several), counts are not scaled.
        """
        part = self.part
        enabled, running = difference[:, 0], difference[:, 1]
        decoded: list[tuple[int, np.ndarray, np.ndarray]] = []
        counted = list(part["values"])
        pairs = np.flatnonzero(known)
        if part["timed"]:
            decoded += [(definition, pairs, difference[pairs, at]) for at, definition in enumerate(counted[:2])]
            counted = counted[2:]
        whole = pairs if not part["estimated"] else pairs[running[pairs] >= enabled[pairs]]
        partial = pairs[(running[pairs] < enabled[pairs]) & (running[pairs] > 0)]
        for at, definition in enumerate(counted):
            decoded.append((definition, whole, difference[whole, 2 + at]))
        for at, definition in enumerate(part["estimated"]):
            if len(partial):
                scaled = difference[partial, 2 + at] * (enabled[partial] / running[partial])
                decoded.append((definition, partial, np.rint(scaled).astype(np.int64)))
        return decoded


def add_counts(
    raw: RawSpans, definitions: list[dict[str, Any]], readings: Sequence[bytes], gaps: Sequence[tuple[int, int]] = ()
) -> tuple[RawSpans, list[Boundaries]]:
    """The spans with the values of their readings, and the readings of every set.

    The last spans may be gaps between two others, whose rows are in `gaps`. A gap counts from the end of the one to the
    begin of the other.
    """
    before, after = np.array(gaps, dtype=np.int64).reshape(-1, 2).T
    number = np.cumsum(~raw.read_again) - 1
    boundaries: list[Boundaries] = []
    definition, value, row = [raw.value_definition], [raw.value], [raw.value_row]
    for part, users, offsets in _find_sets(definitions, raw.read_definition):
        here = np.flatnonzero(np.isin(raw.read_definition, users))
        numbers, position = np.unique(number[here], return_inverse=True)
        start = np.zeros(len(numbers), dtype=np.int64)
        start[position] = [offsets[user] for user in raw.read_definition[here].tolist()]
        table = _decode(part, readings, numbers, start)
        ends = {False: np.full(len(raw.start), -1), True: np.full(len(raw.start), -1)}
        for side, places in ends.items():
            chosen = (raw.read_ends[here] == side) & (raw.read_row[here] >= 0)
            places[raw.read_row[here[chosen]]] = position[chosen]
        if gaps:
            ends[False][-len(gaps) :] = ends[True][before]
            ends[True][-len(gaps) :] = ends[False][after]
        own = Boundaries(part, table, ends[False], ends[True])
        boundaries.append(own)
        for value_definition, rows, values in own.decode(*own.subtract(own.begin, own.end)):
            definition.append(np.full(len(rows), value_definition, dtype=np.int64))
            value.append(values)
            row.append(rows)
    counted = replace(
        raw,
        value_definition=np.concatenate(definition),
        value=np.concatenate(value),
        value_row=np.concatenate(row),
    )
    return counted, boundaries


def _find_sets(
    definitions: list[dict[str, Any]], used: np.ndarray
) -> list[tuple[dict[str, Any], list[int], dict[int, int]]]:
    """Every set of counters that was read: how it is decoded, which definitions of kind `counters` hold it, and the
    byte of their readings at which it begins."""
    sets: list[tuple[dict[str, Any], list[int], dict[int, int]]] = []
    for user in np.unique(used).tolist():
        offset = 0
        for part in definitions[user].get("parts", ()):
            entry = next((entry for entry in sets if entry[0] == part), None)
            if entry is None:
                entry = (part, [], {})
                sets.append(entry)
            entry[1].append(user)
            entry[2][user] = offset
            offset += _size(part)
    return sets


def _size(part: dict[str, Any]) -> int:
    """Bytes of a reading of this set."""
    return 8 * (HEAD_WORDS + int(part["events"])) * int(part["threads"])


def _decode(part: dict[str, Any], readings: Sequence[bytes], numbers: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Decode readings, given by their `numbers`, from their byte `start` on: the counts of all threads together."""
    events, threads = int(part["events"]), int(part["threads"])
    words = HEAD_WORDS + events
    table = np.full((len(numbers), 2 + events), -1, dtype=np.int64)
    size = _size(part)
    raw = [
        readings[number][at : at + size] if number < len(readings) else b""
        for number, at in zip(numbers.tolist(), start.tolist(), strict=True)
    ]
    whole = [row for row, reading in enumerate(raw) if len(reading) == size]
    if whole:
        joined = b"".join([raw[row] for row in whole])
        values = np.frombuffer(joined, dtype="<i8").reshape(len(whole), threads, words)
        valid = (values[:, :, 0] == events).all(axis=1)
        table[np.array(whole)[valid]] = values[valid, :, 1:].sum(axis=1)
    return table
