"""Readings of counters, decoded: what was counted between the begin and the end of every span."""

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
    """What one set of counters stood at where spans began and ended."""

    part: dict[str, Any]
    """How its readings are to be understood."""
    table: np.ndarray
    """A row per reading: time enabled, time running (ns), then the events; all -1 for one that cannot be read."""
    begin: np.ndarray
    end: np.ndarray
    """For every span the row of its readings in `table`; -1 for none."""

    def between(self, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What was counted between pairs of readings, and for which pairs that is known."""
        table = self.table
        known = (begin >= 0) & (end >= 0)
        known &= (table[begin, 0] >= 0) & (table[end, 0] >= 0) if len(table) else False
        difference = np.zeros((len(begin), table.shape[1]), dtype=np.int64)
        difference[known] = table[end[known]] - table[begin[known]]
        return difference, known

    def across(
        self, pieces: list[tuple[int, int, int]], count: int, definitions: list[dict[str, Any]]
    ) -> dict[str, np.ndarray]:
        """Columns of `count` rows: for every piece (row, first span, last span) what was counted from one to other."""
        # Pieces of phases that were cut stand behind the spans that readings were taken for.
        known = [piece for piece in pieces if max(piece[1:]) < len(self.begin)]
        rows, first, last = np.array(known, dtype=np.int64).reshape(-1, 3).T
        columns: dict[str, np.ndarray] = {}
        for which, found, values in self.values(*self.between(self.begin[first], self.end[last])):
            column = np.full(count, np.nan)
            column[rows[found]] = values
            columns[f"{definitions[which]['quantity']}:{definitions[which]['source']}"] = column
        return columns

    def values(self, difference: np.ndarray, known: np.ndarray) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """(definition of a value, pairs that have one, values).

        An event that did not count all the time is scaled up to it and is an estimate; one that never counted is
        missing. Where a definition has no estimates (one kind of core of several) counts stay as they are.
        """
        one = self.part
        enabled, running = difference[:, 0], difference[:, 1]
        found: list[tuple[int, np.ndarray, np.ndarray]] = []
        counted = list(one["values"])
        pairs = np.flatnonzero(known)
        if one["timed"]:
            found += [(which, pairs, difference[pairs, at]) for at, which in enumerate(counted[:2])]
            counted = counted[2:]
        whole = pairs if not one["estimated"] else pairs[running[pairs] >= enabled[pairs]]
        part = pairs[(running[pairs] < enabled[pairs]) & (running[pairs] > 0)]
        for at, which in enumerate(counted):
            found.append((which, whole, difference[whole, 2 + at]))
        for at, which in enumerate(one["estimated"]):
            if len(part):
                scaled = difference[part, 2 + at] * (enabled[part] / running[part])
                found.append((which, part, np.rint(scaled).astype(np.int64)))
        return found


def add_counts(
    raw: RawSpans, definitions: list[dict[str, Any]], readings: Sequence[bytes], gaps: Sequence[tuple[int, int]] = ()
) -> tuple[RawSpans, list[Boundaries]]:
    """The spans with the values that their readings give, and the readings themselves.

    The last spans may be gaps between two others, whose rows `gaps` has: they were counted from one to the other.
    """
    before, after = np.array(gaps, dtype=np.int64).reshape(-1, 2).T
    number = np.cumsum(~raw.read_again) - 1
    boundaries: list[Boundaries] = []
    definition, value, row = [raw.value_definition], [raw.value], [raw.value_row]
    for part, which, offset in _find_sets(definitions, raw.read_definition):
        here = np.flatnonzero(np.isin(raw.read_definition, which))
        taken, position = np.unique(number[here], return_inverse=True)
        begins = [offset[one] for one in raw.read_definition[here].tolist()]
        start = np.zeros(len(taken), dtype=np.int64)
        start[position] = begins
        table = _decode(part, readings, taken, start)
        ends = {False: np.full(len(raw.start), -1), True: np.full(len(raw.start), -1)}
        for side, places in ends.items():
            chosen = (raw.read_ends[here] == side) & (raw.read_row[here] >= 0)
            places[raw.read_row[here[chosen]]] = position[chosen]
        if gaps:
            ends[False][-len(gaps) :] = ends[True][before]
            ends[True][-len(gaps) :] = ends[False][after]
        found = Boundaries(part, table, ends[False], ends[True])
        boundaries.append(found)
        for one, rows, values in found.values(*found.between(found.begin, found.end)):
            definition.append(np.full(len(rows), one, dtype=np.int64))
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
    """Every set of counters that was read: how, by which definitions, and at which byte of each one's readings."""
    found: list[tuple[dict[str, Any], list[int], dict[int, int]]] = []
    for which in np.unique(used).tolist():
        at = 0
        for part in definitions[which].get("parts", ()):
            known = next((one for one in found if one[0] == part), None)
            if known is None:
                known = (part, [], {})
                found.append(known)
            known[1].append(which)
            known[2][which] = at
            at += _size(part)
    return found


def _size(part: dict[str, Any]) -> int:
    """Bytes of a reading."""
    return 8 * (HEAD_WORDS + int(part["events"])) * int(part["threads"])


def _decode(part: dict[str, Any], readings: Sequence[bytes], taken: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Readings by number, from their byte `start` on: what all threads counted together."""
    events, threads = int(part["events"]), int(part["threads"])
    words = HEAD_WORDS + events
    table = np.full((len(taken), 2 + events), -1, dtype=np.int64)
    size = _size(part)
    found = [
        readings[which][at : at + size] if which < len(readings) else b""
        for which, at in zip(taken.tolist(), start.tolist(), strict=True)
    ]
    whole = [at for at, raw in enumerate(found) if len(raw) == size]
    if whole:
        joined = b"".join([found[at] for at in whole])
        numbers = np.frombuffer(joined, dtype="<i8").reshape(len(whole), threads, words)
        right = (numbers[:, :, 0] == events).all(axis=1)
        table[np.array(whole)[right]] = numbers[right, :, 1:].sum(axis=1)
    return table
