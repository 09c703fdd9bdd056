"""Derives parts, epochs and steps from the phases of a program that announced none.

A step ends with an optimizer step. An optimizer that steps a second time or was made since the last step, or a batch
that is fetched after an optimizer step, begins the next one; so several optimizers share a step and gradient
accumulation stays inside it. Without an optimizer a step ends with its last backward, and what updates weights by hand
follows it.

A forward that no backward follows is a step of its own, together with the other forwards of the same batch: of
validation when training goes on afterwards or when its data was used before, of a test when it comes after the last
training step, or when nothing is trained at all. `TrainingForwards` says which forwards these are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sonda.frameworks.phase import FORWARDS, Phase, find_joined
from sonda.frameworks.training_forwards import TrainingForwards

MOSTLY = 0.5
"""A pause in which the thread did not run for this part of the time is idle: a server waits for the next request."""


@dataclass
class Step:
    """Phases (positions in the sequence given) that belong together."""

    part: str
    phases: list[int]
    start: int
    end: int
    iterator: int | None = None
    loader: int | None = None


@dataclass
class Section:
    """A stretch of steps of one part."""

    part: str
    steps: list[Step] = field(default_factory=list)
    epoch: int | None = None
    """Number of the epoch that the program announced, among those of this part; such a section may have no steps."""
    bounds: tuple[int, int] | None = None
    """Its begin and end, ns, where it was announced."""

    @property
    def start(self) -> int:
        return self.bounds[0] if self.bounds else self.steps[0].start

    @property
    def end(self) -> int:
        return self.bounds[1] if self.bounds else self.steps[-1].end


def derive_sections(phases: Sequence[Phase]) -> list[Section]:
    """Group phases, given in order of time, into steps and sections. Phases of an unfinished step are left out."""
    sections: list[Section] = []
    training = TrainingForwards(phases)
    for step in _split(phases, training):
        if _is_dry_run(step, phases, training):
            continue
        if not sections or sections[-1].part != step.part or _other_data(sections[-1].steps[-1], step):
            sections.append(Section(step.part))
        section = sections[-1]
        if section.steps and section.steps[-1].iterator == step.iterator:
            _take_pause(step, section.steps[-1], phases[step.phases[0]])
        section.steps.append(step)
    _name_evaluations(sections)
    return sections


def _is_dry_run(step: Step, phases: Sequence[Phase], training: TrainingForwards) -> bool:
    """Whether this is a call before all training, and such a one never comes again: it tells a model its sizes."""
    if step.part != "evaluate" or step.loader is not None or not training.ends:
        return False
    calls = [at for at in step.phases if phases[at].place is not None and not phases[at].gap]
    return bool(calls) and all(training.is_single_call(at) for at in calls)


def _take_pause(step: Step, before: Step, first: Phase) -> None:
    """What happens between two steps of one section belongs to the later one; waiting for work to come does not."""
    pause = first.start - before.end
    if step.part == "train" or first.idle <= MOSTLY * pause:
        step.start = before.end


def _other_data(before: Step, step: Step) -> bool:
    """Whether an evaluation goes on with other data: from validation to test."""
    return step.part == "evaluate" and step.loader is not None and step.loader != before.loader


def _split(phases: Sequence[Phase], training: TrainingForwards) -> list[Step]:
    steps: list[Step] = []
    open_phases: list[int] = []
    """Phases since the last step, in order."""
    stepped: set[int] = set()
    last_end = -1
    """Position in `open_phases` of the last that ends a step, -1 for none."""
    last_begun = -1
    """The same of the last that belongs to training and ends no step."""
    fetched = False
    """Whether data is among them."""

    def take(position: int) -> None:
        nonlocal last_begun, fetched
        open_phases.append(position)
        fetched = fetched or phases[position].name == "data"
        if position in training.forwards or phases[position].name == "backward":
            last_begun = len(open_phases) - 1

    def close(count: int, part: str) -> None:
        """Make a step of the first `count` open phases."""
        nonlocal last_end, last_begun, fetched, stepped
        chosen, left = open_phases[:count], open_phases[count:]
        open_phases.clear()
        last_begun, fetched = -1, False
        for position in left:
            take(position)
        if chosen:
            data = next((phases[at] for at in chosen if phases[at].iterator is not None), None)
            stated = next((phases[at].part for at in chosen if phases[at].part), "")
            steps.append(
                Step(
                    stated or part,
                    chosen,
                    phases[chosen[0]].start,
                    phases[chosen[-1]].end,
                    data.iterator if data else None,
                    data.loader if data else None,
                )
            )
        last_end = -1
        stepped = set()

    def with_trailing() -> int:
        """How many open phases belong to a step that nothing but new data or an evaluation follows."""
        count = last_end + 1
        while count < len(open_phases) and phases[open_phases[count]].name == "optimizer":
            count += 1
        return count

    joined = find_joined(phase if phase.name in FORWARDS else None for phase in phases)
    helpers = any(phase.name in (*FORWARDS, "fused", "backward") and not phase.helper for phase in phases)
    evaluating = False
    """An evaluating forward is open and may still be followed by its loss and by other forwards of its batch."""
    for position, phase in enumerate(phases):
        if phase.helper and helpers:
            continue
        # Within a training step that has not ended, every forward is its own.
        evaluates = phase.name in FORWARDS and position not in training.forwards and last_begun <= last_end
        whole = phase.name == "fused" and not phase.continued
        evaluates |= whole and phase.optimizer is None and not phase.exhausted
        if evaluating and phase.name != "loss":
            goes_on = phase.name == "decode" or position in joined
            if not (evaluates and (fetched or goes_on)):
                close(len(open_phases), "evaluate")
                evaluating = False
        if last_end >= 0:
            again = training.by_hand and phase.name in (*FORWARDS, "backward")
            if phase.name == "data" or evaluates or again:
                close(with_trailing(), "train")
            elif phase.optimizer is not None and (
                phase.optimizer in stepped or phase.made > phases[open_phases[last_end]].end
            ):
                # What follows a whole step that is one function, and comes before the next, is an update by itself.
                close(with_trailing() if phase.name == "fused" else last_end + 1, "train")
        if phase.exhausted:
            continue
        take(position)
        if position in training.ends:
            stepped.add(training.ends[position])
            last_end = len(open_phases) - 1
        evaluating = evaluating or evaluates
    if evaluating:
        close(len(open_phases), "evaluate")
    elif last_end >= 0:
        close(with_trailing(), "train")
    return steps


def _name_evaluations(sections: list[Section]) -> None:
    """Say of each evaluating section whether it validates or tests."""
    training = [index for index, section in enumerate(sections) if section.part == "train"]
    last = training[-1] if training else -1
    used: dict[int | None, int] = {}
    for section in sections:
        if section.part == "evaluate":
            loader = section.steps[0].loader
            used[loader] = used.get(loader, 0) + 1
    for index, section in enumerate(sections):
        if section.part != "evaluate":
            continue
        loader = section.steps[0].loader
        again = loader is not None and used[loader] > 1
        section.part = "validate" if training and (index < last or again) else "test"
        for step in section.steps:
            step.part = section.part
