"""What a thread's phases said of themselves: facts that make a phase what it is, and metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from sonda.frameworks.collector.torch_compiled import LOSS
from sonda.frameworks.events import RawSpans
from sonda.frameworks.paths import LayerPlaces
from sonda.frameworks.phase import Phase
from sonda.record.span import PARTS

FACTS = (
    "shape", "training", "graph", "module", "sequence", "idle", "optimizer", "made", "loader", "iterator", "exhausted",
    "of_part", "device_begin", "device_end", "helper",
)  # fmt: skip
"""Values that say what a phase is, and are no metrics; `of_part` counts the parts of a run from 1."""
Facts = dict[int, int]
"""A value by the row of its phase."""


def read_facts(raw: RawSpans, definitions: list[dict[str, Any]]) -> dict[str, Facts]:
    """Values that say what a phase is, by name and row."""
    facts: dict[str, Facts] = {name: {} for name in FACTS}
    for which, rows, values in _values(raw):
        if definitions[which]["quantity"] in FACTS:
            facts[definitions[which]["quantity"]].update(zip(rows.tolist(), values.tolist(), strict=True))
    return facts


def read_metrics(raw: RawSpans, definitions: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """All other values by metric column."""
    metrics: dict[str, np.ndarray] = {}
    for which, rows, values in _values(raw):
        definition = definitions[which]
        if definition["quantity"] in FACTS:
            continue
        column = np.full(len(raw.start), np.nan)
        if definition.get("sums"):  # said again and again while a span is open
            column[rows] = 0.0
            np.add.at(column, rows, values)
        else:
            column[rows] = values
        metrics[f"{definition['quantity']}:{definition['source']}"] = column
    return metrics


def _values(raw: RawSpans) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """For every definition of a value its number, the rows that have one, and these values."""
    for which in np.unique(raw.value_definition):
        chosen = (raw.value_definition == which) & (raw.value_row >= 0)
        yield int(which), raw.value_row[chosen], raw.value[chosen]


class PhaseReader:
    """Tells what a phase is, from its row."""

    def __init__(self, definitions: list[dict[str, Any]], facts: dict[str, Facts], places: LayerPlaces) -> None:
        self.definitions = definitions
        self.facts = facts
        self.places = places
        self.names = [one.get("name", "") if one.get("kind") == "phase" else "" for one in definitions]
        """Of every definition that of its phase; '' where it is none."""
        self.numbers = {name: number for number, name in reversed(list(enumerate(self.names))) if name}
        """The first definition of every phase's name."""
        self.gaps: Facts = {}
        """By the row of a gap that was made a phase, the row of the phase before it."""

    def name_compiled(self, raw: RawSpans) -> None:
        """Call a compiled function forward or loss that said whether it has a graph, and no step of training."""
        for row, graph in self.facts["graph"].items():
            if self.names[raw.definition[row]] == "fused" and row not in self.facts["optimizer"]:
                raw.definition[row] = self.numbers["loss" if graph == LOSS else "forward"]

    def phase(self, raw: RawSpans, row: int) -> Phase:
        facts = self.facts
        if row in self.gaps:
            before = self.phase(raw, self.gaps[row])
            start, end, name = int(raw.start[row]), int(raw.end[row]), self.names[raw.definition[row]]
            if name != before.name:
                return Phase(name, start, end)
            return replace(before, start=start, end=end, optimizer=None, sequence=0, idle=0, gap=True)
        place = self.places.place(facts["module"].get(row, -1))
        return Phase(
            name=self.names[raw.definition[row]],
            start=int(raw.start[row]),
            end=int(raw.end[row]),
            optimizer=facts["optimizer"].get(row),
            loader=facts["loader"].get(row),
            iterator=facts["iterator"].get(row),
            training=facts["training"].get(row, 0) > 0,
            graph=facts["graph"][row] > 0 if row in facts["graph"] else None,
            place=place,
            single=place is not None and self.places.is_single(place.root),
            shape=facts["shape"].get(row, 0),
            sequence=facts["sequence"].get(row, 0),
            idle=facts["idle"].get(row, 0),
            made=facts["made"].get(row, 0),
            exhausted=row in facts["exhausted"],
            part=("", *PARTS)[facts["of_part"].get(row, 0)],
            helper=row in facts["helper"],
        )
