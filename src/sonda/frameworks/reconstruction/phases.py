"""What a thread's phases said of themselves: facts that make a phase what it is, and metrics."""

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

# ---- Phases of one thread as steps are derived from them, and which forwards go on with the one before --------------

FORWARDS = ("forward", "prefill", "decode")


@dataclass(frozen=True)
class Phase:
    """One phase of one thread. `optimizer` and `made` (ns) are set for an optimizer's own step, `loader`, `iterator`
    and `dataset` for data, `exhausted` where there was none left."""

    name: str
    start: int
    end: int
    optimizer: int | None = None
    loader: int | None = None
    iterator: int | None = None
    dataset: int | None = None
    training: bool = False
    """For a forward: the module was in training mode; in frameworks without gradient modes, gradients were on too."""
    graph: bool | None = None
    """For a forward: whether a backward can follow; None where that is not known."""
    place: ModulePlace | None = None
    """For a forward: the module that was called."""
    single: bool = False
    """For a forward: that module is a layer without parts, of no model."""
    shape: int = 0
    sequence: int = 0
    """For a forward: the tokens that it was given (`collector/generation.py`)."""
    address: int = 0
    """For a forward of an evaluation: where its input lies in memory."""
    idle: int = 0
    """For a forward: ns since the forward before it in which the thread did not run."""
    gap: bool = False
    """For a forward: what lies between two modules that are called one by one."""
    continued: bool = False
    """Whether another piece of the same phase follows, behind a phase inside it."""
    made: int = 0
    exhausted: bool = False
    part: str = ""
    """Where the framework's own loop says so."""
    fetches: bool = False
    """Whether a graph fetched its own batch in it."""
    helper: bool = False
    """Of a function without weights, called before one with weights was: no part of a step where there are such."""

    @property
    def learns(self) -> bool:
        """Whether a forward is one of training, also where no backward follows because its loss was skipped."""
        return self.training and self.graph is not False

    @property
    def model(self) -> int | None:
        return self.place.root if self.place is not None else None


def name_generation(phases: Sequence[Phase]) -> dict[int, str]:
    """By position, `prefill` and `decode` for the forwards that generate a text: the prompt's, and the others."""
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
    """Positions of forwards that go on with the one before: parts of a model that are called one by one.

    That is so where a program calls methods of its model. A forward goes on until its first part is called again. None
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
        self.waits: Facts = {}
        """By the row of a wait that was made a phase, the row of the graph's call that it is the begin of."""

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
