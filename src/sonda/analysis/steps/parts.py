"""Parts of a run as tables: steps, phases and layers in ns, warm-up and counted steps told apart."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sonda.analysis.span_tree import nearest
from sonda.analysis.statistics import effective_size, find_warmup
from sonda.analysis.steps.device_time import Activities, device_layer_times, spent
from sonda.analysis.steps.layers import LayerTimes, layer_spans, layer_times
from sonda.record.run import Run
from sonda.record.spans import Spans, phase_order

RANKS_APART = 1 << 20
"""More than the input shapes that one process numbers."""


@dataclass(frozen=True)
class StepIndex:
    """Where every span belongs: rows of the step and of the phase around it, or -1."""

    spans: Spans
    step_of: np.ndarray
    phase_of: np.ndarray


COMMUNICATE = "communicate"


@dataclass(frozen=True)
class Part:
    """One part of a run, by one rank. Steps are in the order in which they began, without the counted ones.

    Where several ranks did it together, this is the critical one: what they do differs, and the others wait for it.
    """

    name: str
    index: StepIndex
    rows: np.ndarray
    """Rows of the step spans, without counted ones."""
    durations: np.ndarray
    """ns."""
    measured: np.ndarray
    """Mask of the steps that the numbers are taken from: timed, and after the warm-up that was found."""
    warmup: int
    """Steps set apart before them, planned and found."""
    only_warmup: bool
    """Nothing but planned warm-up was seen; it is measured then."""
    counted: np.ndarray
    """Rows of the counted steps."""
    shapes: np.ndarray
    """Input shape of each step in `rows`, NaN where it is not known; of several ranks, each has its own."""
    phases: dict[str, np.ndarray]
    """ns of every phase in every step of `rows`; `other` is the time that no phase covers. What a rank exchanged inside
    of other phases, as batch norms do, is in `communicate`."""
    layers: LayerTimes
    """Of the measured steps that are `detailed`; on a GPU of those whose kernels were recorded; of those in pieces
    where there are any with layers."""
    activities: Activities
    """Of devices, in the steps whose kernels were recorded."""
    host: np.ndarray
    """ns of every step on the host's clock."""
    host_phases: dict[str, np.ndarray]
    """The same of the phases."""
    host_layers: LayerTimes
    """The same of the layers of the measured steps."""
    pieces: np.ndarray
    """ns of the steps in pieces, where there are such with layers; layers are theirs then."""
    piece_phases: dict[str, np.ndarray]
    """ns of every phase in these steps."""
    detailed: np.ndarray
    """Mask over the measured steps: those whose layers were recorded."""
    walks: int = 1
    """How often the program came to this part."""
    rank: int = 0
    others: tuple[Part, ...] = ()
    """The same part as other ranks did it."""

    @property
    def ranks(self) -> list[Part]:
        """Of all ranks, in their order."""
        return sorted((self, *self.others), key=lambda part: part.rank)

    @property
    def work(self) -> float:
        """ns of a step that a rank did not spend exchanging with others or waiting for them; NaN without steps."""
        return float(np.median(self.works)) if self.measured.any() else float("nan")

    @property
    def works(self) -> np.ndarray:
        """The same of each measured step."""
        waited = self.phases.get(COMMUNICATE, np.zeros(len(self.durations)))
        works: np.ndarray = (self.durations - waited)[self.measured]
        return works

    @property
    def on_device(self) -> bool:
        """Whether its layers' times are those of a GPU."""
        return self.layers is not self.host_layers

    @property
    def effective(self) -> int:
        """How many independent steps the measured ones are worth."""
        return effective_size(self.durations[self.measured])

    @property
    def shape(self) -> float | None:
        """The most frequent input shape of the measured steps, one that was counted where there is such; None where it
        is not known."""
        known = self.shapes[self.measured]
        known = known[~np.isnan(known)]
        counted = known[np.isin(known, shapes_of(self.index.spans, self.counted))]
        if len(known) == 0:
            return None
        # Where shares of a batch move, the step that is counted need not have the most frequent one.
        values, counts = np.unique(counted if len(counted) else known, return_counts=True)
        return float(values[np.argmax(counts)])

    @property
    def alike(self) -> np.ndarray:
        """Mask over the measured steps: those with the most frequent shape, which is what was counted."""
        shapes = self.shapes[self.measured]
        return np.ones(len(shapes), dtype=bool) if self.shape is None else shapes == self.shape


def parts(run: Run) -> list[Part]:
    """The parts that have steps: train first, then by the time they took."""
    spans = run.spans
    parent = spans.number("parent")
    # A modelled step has counters and no times.
    is_step = spans.where(kind="step") & ~spans.words("pass").equal("modelled")
    index = StepIndex(spans, nearest(parent, is_step), nearest(parent, spans.where(kind="phase")))
    steps = np.flatnonzero(is_step)
    part_of = nearest(parent, spans.where(kind="part"))[steps]
    name = spans.words("name")
    without = "train" if run.info.workload.train else "test"
    names = [name.words[name.codes[row]] if row >= 0 else without for row in part_of]
    run_parts = []
    for part in dict.fromkeys(names):
        rows = steps[np.array([part_name == part for part_name in names], dtype=bool)]
        critical = _critical(part, index, rows[np.argsort(spans.number("start")[rows], kind="stable")])
        walks = len(np.unique(part_of[np.array([part_name == part for part_name in names], dtype=bool)]))
        run_parts.append(replace(critical, walks=walks))
    return sorted(run_parts, key=lambda part: (part.name != "train", not part.measured.any(), -part.durations.sum()))


def _critical(name: str, index: StepIndex, steps: np.ndarray) -> Part:
    """The part by the rank that works longest in a step, with those of the others."""
    rank = index.spans.number("rank")[steps]
    by_rank = [replace(_part(name, index, steps[rank == number]), rank=int(number)) for number in np.unique(rank)]
    # A rank of which only counted steps were seen has no times.
    first = min(by_rank, key=lambda part: (np.isnan(part.work), -part.work, part.rank))
    return replace(first, others=tuple(part for part in by_rank if part is not first))


def _part(name: str, index: StepIndex, steps: np.ndarray) -> Part:
    """The part by one rank."""
    spans = index.spans
    counted = spans.words("pass").equal("count")[steps]
    profiled = spans.words("pass").equal("kernels")[steps]
    apart = spans.words("pass").equal("pieces")[steps]
    rows = steps[~counted & ~profiled & ~apart]
    times = spent(spans)
    host = spans.number("duration").astype(np.float64)
    durations = times[rows]
    planned = spans.words("pass").equal("warmup")[rows]
    only_warmup = bool(len(rows)) and bool(planned.all())
    measured = np.ones(len(rows), dtype=bool) if only_warmup else ~planned
    timed = np.flatnonzero(measured)
    measured[timed[: find_warmup(durations[timed])]] = False

    number = np.full(len(spans), -1, dtype=np.int64)
    number[rows] = np.arange(len(rows))
    phases = _phases(index, number, times, durations)
    host_phases = _phases(index, number, host, host[rows])
    detailed = _has_layers(index, rows[measured])
    chosen = measured.copy()
    chosen[measured] = detailed
    number[rows] = np.where(chosen, np.cumsum(chosen) - 1, -1)
    many = int(chosen.sum())
    piece_phases: dict[str, np.ndarray] = {}
    pieces = _told(index, steps[apart])
    if len(pieces):
        number[:] = -1
        number[pieces] = np.arange(len(pieces))
        many = len(pieces)
        piece_phases = _phases(index, number, times, times[pieces])
    step_index = np.where(index.step_of >= 0, number[np.maximum(index.step_of, 0)], -1)
    layers = host_layers = layer_times(spans, layer_spans(spans, step_index, many, index.phase_of))
    activities = Activities.of(spans, index.step_of, steps[profiled])
    # A step that is one function launches all its kernels as one: steps in pieces tell its layers.
    if len(activities.rows) and not len(pieces):
        number[:] = -1
        number[activities.steps] = np.arange(len(activities.steps))
        step_index = np.where(index.step_of >= 0, number[np.maximum(index.step_of, 0)], -1)
        own = layer_spans(spans, step_index, len(activities.steps), index.phase_of)
        layers = device_layer_times(spans, own)
    return Part(
        name=name, index=index, rows=rows, durations=durations, measured=measured, warmup=int((~measured).sum()),
        only_warmup=only_warmup, counted=steps[counted], shapes=shapes_of(spans, rows),
        phases=phases, layers=layers, activities=activities, host=host[rows], host_phases=host_phases,
        host_layers=host_layers, pieces=times[pieces], piece_phases=piece_phases, detailed=detailed,
    )  # fmt: skip


def _told(index: StepIndex, steps: np.ndarray) -> np.ndarray:
    """These steps in pieces; none, where no layer was told apart in them, as where a profiler failed."""
    return steps if np.isin(steps, index.step_of[index.spans.where(kind="layer")]).any() else steps[:0]


def _has_layers(index: StepIndex, steps: np.ndarray) -> np.ndarray:
    """Which of these steps had their layers recorded: of a long training the first do. All, where none had."""
    detailed = np.isin(steps, index.step_of[index.spans.where(kind="layer")])
    return detailed if detailed.any() else np.ones(len(steps), dtype=bool)


def shapes_of(spans: Spans, steps: np.ndarray) -> np.ndarray:
    """Input shapes of some steps, NaN where they are not known.

    Every process numbers its own: with the same number two ranks may have shares of different size, or different
    stages of a pipeline, so those of different ranks never count as the same.
    """
    shapes: np.ndarray = spans.metric("shape", "counted")[steps] + RANKS_APART * spans.number("rank")[steps]
    return shapes


def _phases(index: StepIndex, number: np.ndarray, times: np.ndarray, durations: np.ndarray) -> dict[str, np.ndarray]:
    """ns by phase and step, in the order in which a step walks through them, and `other`.

    `times` are those of all spans, `durations` those of the steps.
    """
    spans = index.spans
    rows = np.flatnonzero(spans.where(kind="phase") & (index.step_of >= 0))
    step = number[index.step_of[rows]]
    rows, step = rows[step >= 0], step[step >= 0]
    name = spans.words("name")
    codes = name.codes[rows]
    duration = times[rows]
    ordered = sorted((name.words[code] for code in np.unique(codes)), key=phase_order)
    table = {}
    exchanged = _exchange_time(index, times)[rows]
    waited = np.zeros(len(durations))
    for phase in ordered:
        mask = codes == name.words.index(phase)
        lasted, inside = (
            np.bincount(step[mask], weights=of[mask], minlength=len(durations)) for of in (duration, exchanged)
        )
        moved = np.minimum(lasted, inside) if phase != COMMUNICATE else np.zeros(len(durations))
        table[phase] = lasted - moved
        waited += moved
    if waited.any():
        table[COMMUNICATE] = table.get(COMMUNICATE, 0) + waited
    if len(durations):
        table["other"] = np.maximum(durations - sum(table.values(), np.zeros(len(durations))), 0)
    return table


def _exchange_time(index: StepIndex, times: np.ndarray) -> np.ndarray:
    """ns that each phase spent exchanging with other ranks, in its layers or by itself; 0 for all other spans.

    Of a phase that was marked on a GPU nothing is taken off: that is the host's time.
    """
    spans = index.spans
    exchanged = np.zeros(len(spans))
    measured = spans.metric("communication", "measured")
    rows = np.flatnonzero(~np.isnan(measured) & (index.phase_of >= 0))
    np.add.at(exchanged, index.phase_of[rows], measured[rows])
    exchanged[times != spans.number("duration")] = 0
    return exchanged
