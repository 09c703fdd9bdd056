"""Phases of one thread with their facts, and the metrics of all spans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sonda.frameworks.collector.generation import continues_text
from sonda.frameworks.collector.phases import LOSS
from sonda.frameworks.reconstruction.events import RawSpans
from sonda.frameworks.reconstruction.paths import LayerPlaces, ModulePlace
from sonda.record.spans import PARTS

# ---- Phases of one thread, from which steps are derived, and which forwards continue the one before -----------------

FORWARDS = ("forward", "prefill", "decode")


@dataclass(frozen=True)
class Phase:
    """One phase of one thread. An optimizer's step has `optimizer` and `made` (when the optimizer was made, ns). Data
    has `loader`, `iterator` and `dataset`, and is `exhausted` where none was left."""

    name: str
    start: int
    end: int
    optimizer: int | None = None
    loader: int | None = None
    iterator: int | None = None
    dataset: int | None = None
    training: bool = False
    """For a forward: the module was in training mode. In frameworks without such modes: gradients were computed."""
    graph: bool | None = None
    """For a forward: whether a backward can follow; None where that is not known."""
    place: ModulePlace | None = None
    """For a forward: the module that was called."""
    single: bool = False
    """For a forward: that module is a layer without parts, in no model."""
    shape: int = 0
    sequence: int = 0
    """For a forward: the tokens that it was given (`collector/generation.py`)."""
    address: int = 0
    """For a forward of an evaluation: the address of its input in memory."""
    idle: int = 0
    """For a forward: how long the thread did not run since the forward before it, ns."""
    gap: bool = False
    """For a forward: whether it is the time between two modules that are called one by one."""
    continued: bool = False
    """Whether another piece of the same phase follows: a phase inside it cut it."""
    made: int = 0
    exhausted: bool = False
    part: str = ""
    """The part, where a loop of the framework says it; '' otherwise."""
    fetches: bool = False
    """Whether a graph fetched its own batch in it."""
    helper: bool = False
    """Whether it is of a function without weights, called before any with weights. Where there are functions with
    weights, it is no part of a step."""

    @property
    def learns(self) -> bool:
        """Whether a forward belongs to training, even if no backward follows because its loss was skipped."""
        return self.training and self.graph is not False

    @property
    def model(self) -> int | None:
        return self.place.root if self.place is not None else None


def name_generation(phases: Sequence[Phase]) -> dict[int, str]:
    """By position, the names of forwards that generate a text: `prefill` for the prompt, `decode` for the others."""
    names: dict[int, str] = {}
    for position in range(1, len(phases)):
        last, this = phases[position - 1], phases[position]
        alike = last.name == this.name == "forward" and last.place == this.place and not (last.graph or this.graph)
        running = (position - 1) in names
        if alike and continues_text(last.sequence, this.sequence, running):
            names.setdefault(position - 1, "prefill")
            names[position] = "decode"
    return names


def find_joined(forwards: Iterable[Phase | None]) -> set[int]:
    """Positions of forwards that continue the one before: parts of a model that are called one by one.

    Programs that call methods of their model do so. A forward continues until its first part is called again. None
    stands for any other phase.
    """
    joined = set()
    first: ModulePlace | None = None
    last: Phase | None = None
    for position, phase in enumerate(forwards):
        if phase is None or phase.place is None:
            first = last = None
            continue
        if phase.gap:
            joined.add(position)
            continue
        together = last is not None and last.place is not None and phase.graph == last.graph and (
            (last.single and phase.single)
            or (last.place.root == phase.place.root and last.place.path != "" and phase.place.path != "")
        )  # fmt: skip
        if together and phase.place != first:
            joined.add(position)
        else:
            first = phase.place
        last = phase
    return joined


# ----------------------------------------------------------------------------------------------------------------------

FACTS = (
    "shape", "training", "graph", "module", "sequence", "idle", "optimizer", "made", "loader", "iterator", "exhausted",
    "of_part", "dataset", "address", "device_begin", "device_end", "helper", "fetch",
)  # fmt: skip
"""Values that describe a phase and are no metrics. `of_part` numbers the parts of a run from 1."""
Facts = dict[int, int]
"""Values by the rows of their phases."""


def read_facts(raw: RawSpans, definitions: list[dict[str, Any]]) -> dict[str, Facts]:
    """Read the values that describe phases, by name and row."""
    facts: dict[str, Facts] = {name: {} for name in FACTS}
    for which, rows, values in _values(raw):
        if definitions[which]["quantity"] in FACTS:
            facts[definitions[which]["quantity"]].update(zip(rows.tolist(), values.tolist(), strict=True))
    return facts


def read_metrics(raw: RawSpans, definitions: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Read all other values, by metric column."""
    metrics: dict[str, np.ndarray] = {}
    for which, rows, values in _values(raw):
        definition = definitions[which]
        if definition["quantity"] in FACTS:
            continue
        column = np.full(len(raw.start), np.nan)
        if definition.get("sums"):  # recorded several times while a span is open
            column[rows] = 0.0
            np.add.at(column, rows, values)
        else:
            column[rows] = values
        metrics[f"{definition['quantity']}:{definition['source']}"] = column
    return metrics


def _values(raw: RawSpans) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """For every definition of a value: its number, the rows that have such values, and the values."""
    for definition in np.unique(raw.value_definition):
        chosen = (raw.value_definition == definition) & (raw.value_row >= 0)
        yield int(definition), raw.value_row[chosen], raw.value[chosen]


class PhaseReader:
    """Describes phases by their rows."""

    def __init__(self, definitions: list[dict[str, Any]], facts: dict[str, Facts], places: LayerPlaces) -> None:
        self.definitions = definitions
        self.facts = facts
        self.places = places
        self.names = [
            definition.get("name", "") if definition.get("kind") == "phase" else "" for definition in definitions
        ]
        """For every definition the name of its phase; '' where it is no phase."""
        self.numbers = {name: number for number, name in reversed(list(enumerate(self.names))) if name}
        """The first definition of every name of a phase."""
        self.gaps: Facts = {}
        """By the row of a gap that became a phase, the row of the phase before it."""
        self.waits: Facts = {}
        """By the row of a wait that became a phase, the row of the graph's call that begins with it."""

    def name_compiled(self, raw: RawSpans) -> None:
        """Name phases of compiled functions forward or loss, where their results are known and they are no step."""
        for row, graph in self.facts["graph"].items():
            if self.names[raw.definition[row]] == "fused" and row not in self.facts["optimizer"]:
                raw.definition[row] = self.numbers["loss" if graph == LOSS else "forward"]

    def phase(self, raw: RawSpans, row: int) -> Phase:
        """The phase in this row."""
        facts = self.facts
        if row in self.gaps:
            before = self.phase(raw, self.gaps[row])
            start, end, name = int(raw.start[row]), int(raw.end[row]), self.names[raw.definition[row]]
            if name != before.name:
                return Phase(name, start, end)
            return replace(before, start=start, end=end, optimizer=None, sequence=0, idle=0, gap=True)
        if row in self.waits:
            graph = self.phase(raw, self.waits[row])
            name, start, end = "data", int(raw.start[row]), int(raw.end[row])
            return Phase(name, start, end, None, graph.loader, graph.iterator, part=graph.part)
        place = self.places.place(facts["module"].get(row, -1))
        return Phase(
            name=self.names[raw.definition[row]],
            start=int(raw.start[row]),
            end=int(raw.end[row]),
            optimizer=facts["optimizer"].get(row),
            loader=facts["loader"].get(row),
            iterator=facts["iterator"].get(row),
            dataset=facts["dataset"].get(row),
            training=facts["training"].get(row, 0) > 0,
            graph=facts["graph"][row] > 0 if row in facts["graph"] else None,
            place=place,
            single=place is not None and self.places.is_single(place.root),
            shape=facts["shape"].get(row, 0),
            sequence=facts["sequence"].get(row, 0),
            address=facts["address"].get(row, 0),
            idle=facts["idle"].get(row, 0),
            made=facts["made"].get(row, 0),
            exhausted=row in facts["exhausted"],
            part=("", *PARTS)[facts["of_part"].get(row, 0)],
            fetches=row in facts["fetch"],
            helper=row in facts["helper"],
        )
