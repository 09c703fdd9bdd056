"""Derives parts, epochs and steps from the phases of a program that announced none.

A step ends with an optimizer's step. The next step begins when an optimizer steps a second time, when an optimizer that
was made since then steps, or when a batch is fetched. So several optimizers share a step, and gradient accumulation
stays inside it. Without an optimizer a step ends with its last backward and the update of weights by hand that follows.

A forward that no backward follows is a step of its own, together with the other forwards of the same batch. It is a
validation when training goes on afterwards, or when the same data was evaluated between trainings. Otherwise, and when
nothing is trained at all, it is a test. `TrainingForwards` says which forwards these are. Where a loop of the framework
says what it does, that holds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from sonda.frameworks.reconstruction.phases import FORWARDS, Phase, find_joined

# ---- Which forwards of a program train, and where its training steps end --------------------------------------------

REGULAR = 0.5
"""A forward without gradients belongs to training steps if it is made in at least this share of them."""


class TrainingForwards:
    """Finds which forwards belong to training, and where training steps end."""

    def __init__(self, phases: Sequence[Phase]) -> None:
        self.phases = phases
        self.by_hand = not any(phase.optimizer is not None for phase in phases)
        """Whether the program has no optimizer and updates weights by hand."""
        self.ends = self._find_ends()
        """Positions of the phases that end a step, and the optimizer of each."""
        self.calls = Counter((phase.place, phase.shape) for phase in phases if phase.name in FORWARDS and not phase.gap)
        """How often each module was called with each shape."""
        self._moments = sorted(self.ends)
        self._data = [at for at, phase in enumerate(phases) if phase.name == "data"]
        self._fetched = [at for at in self._data if not phases[at].exhausted]
        self.forwards = self._followed_by_backward()
        """Positions of the forwards that belong to training steps."""
        self._learning = sorted(self.forwards)
        self.forwards |= self._without_gradients()

    def _find_ends(self) -> dict[int, int]:
        phases = self.phases
        if not self.by_hand:
            return {at: phase.optimizer for at, phase in enumerate(phases) if phase.optimizer is not None}
        backwards = [at for at, phase in enumerate(phases) if phase.name == "backward"]
        if not any(phase.name in FORWARDS for phase in phases):
            return dict.fromkeys(backwards, 0)  # the network is no module: every backward ends a step
        ends = {}
        for at, following in pairwise([*backwards, len(phases)]):
            between = {phase.name for phase in phases[at + 1 : following]}
            if following == len(phases) or between & {*FORWARDS, "data"}:
                ends[at] = 0
        return ends

    def _followed_by_backward(self) -> set[int]:
        """Forwards with a graph that a backward follows, before a new batch is fetched."""
        followed: set[int] = set()
        if not self.ends:
            return followed
        waiting: list[int] = []

        def find_skipped() -> set[int]:
            """Waiting forwards of training whose loss was skipped: gradients were on."""
            return {at for at in waiting if self.phases[at].learns}

        for position, phase in enumerate(self.phases):
            if phase.name in FORWARDS and phase.graph is not False:
                waiting.append(position)
            elif phase.name == "backward":
                followed.update(self._choose_trained(waiting))
                waiting = []
            elif phase.name == "data":
                followed.update(find_skipped())
                waiting = []
        return followed | find_skipped()

    def _choose_trained(self, waiting: list[int]) -> list[int]:
        """The forwards before a backward to which it belongs.

        A model that was called in evaluation mode and then in training mode was evaluated first. One that was given,
        before all training, an input that never comes again was tried out."""
        training = {self.phases[at].model for at in waiting if self.phases[at].training and self.phases[at].graph}
        again = {self.phases[at].model for at in waiting if not self.is_single_call(at)}
        return [
            at
            for at in waiting
            if (self.phases[at].training or self.phases[at].model not in training)
            and not (self.is_single_call(at) and self.phases[at].model in again)
        ]

    def is_single_call(self, position: int) -> bool:
        """Whether this forward comes before all training, and the model is never given such an input again."""
        phase = self.phases[position]
        return self.calls[phase.place, phase.shape] == 1 and position < self._moments[0] and phase.place is not None

    def _without_gradients(self) -> set[int]:
        """Forwards without a graph that belong to a training step: of a teacher, of a target network, of a generator
        whose critic is trained. The others evaluate a model, or collect experience with it."""
        phases = self.phases
        without_graph = [at for at, phase in enumerate(phases) if phase.name in FORWARDS and phase.graph is False]
        if not without_graph or not self.ends:
            return set()
        trained = {(phases[at].model, phases[at].shape) for at in self.forwards}
        models = {model for model, _ in trained}
        steps_with: dict[tuple[int | None, int | None], set[int]] = {}
        """Steps by the model and its input's shape, and by the model with any input (None)."""
        for at in without_graph:
            for shape in (phases[at].shape, None):
                steps_with.setdefault((phases[at].model, shape), set()).add(self._step_of(at))
        belonging = set()
        for at in without_graph:
            phase = phases[at]
            call = phase.model, phase.shape
            key = call if phase.model in models else (phase.model, None)
            regular = len(steps_with[key]) >= REGULAR * len(self.ends)
            if phase.model in models:
                # The model that is trained: in training mode, on the batch of the step or on a similar one.
                belongs = phase.training and (self._on_batch(at) or (regular and call in trained))
            else:
                belongs = regular or self._on_batch(at)
            if belongs:
                belonging.add(at)
        return belonging

    def _step_of(self, position: int) -> int:
        """The number of the training step that a phase lies in or before."""
        return bisect_left(self._moments, position)

    def _on_batch(self, position: int) -> bool:
        """Whether the batch of a training step was fetched before this forward, and that step goes on after it."""
        fetched, end = (_last_before(positions, position) for positions in (self._fetched, self._moments))
        if fetched < 0 or fetched < end:
            return False
        forward, data, step_end = (_first_after(at, position) for at in (self._learning, self._data, self._moments))
        return forward < min(data, step_end)


def _last_before(positions: list[int], position: int) -> int:
    """The last of these positions before `position`; -1 for none."""
    at = bisect_left(positions, position)
    return positions[at - 1] if at else -1


def _first_after(positions: list[int], position: int) -> float:
    """The first of these positions after `position`; infinity for none."""
    at = bisect_right(positions, position)
    return positions[at] if at < len(positions) else inf


# ----------------------------------------------------------------------------------------------------------------------

MOSTLY = 0.5
"""A pause is idle if the thread did not run for more than this share of it: a server waits for the next request."""


@dataclass
class Step:
    """A step of a program; `phases` are positions in the given sequence of phases."""

    part: str
    phases: list[int]
    start: int
    end: int
    iterator: int | None = None
    loader: int | None = None
    data: int | None = None
    """Number of the data that the loader gave; None without a loader."""
    calls: tuple[tuple[str | None, int], ...] = ()
    """The paths of the modules that were called, of any model, each with the number of its input's shape."""
    addresses: tuple[int, ...] = ()
    """Addresses of the inputs of an evaluation; 0 where they are not known."""


@dataclass
class StepSection:
    """Consecutive steps of one part."""

    part: str
    steps: list[Step] = field(default_factory=list)
    epoch: int | None = None
    """Number of the epoch that the program announced, among those of this part; such a section may have no steps."""
    bounds: tuple[int, int] | None = None
    """Begin and end of an announced epoch, ns."""

    @property
    def data(self) -> int | None:
        """Number of the data that a loader gave; None without a loader."""
        return self.steps[0].data if self.steps else None

    @property
    def start(self) -> int:
        return self.bounds[0] if self.bounds else self.steps[0].start

    @property
    def end(self) -> int:
        return self.bounds[1] if self.bounds else self.steps[-1].end


def derive_sections(phases: Sequence[Phase]) -> list[StepSection]:
    """Group phases, given in order of time, into steps and sections. Phases of an unfinished step are left out."""
    sections: list[StepSection] = []
    training = TrainingForwards(phases)
    for step in _StepSplitter(phases, training).split():
        if _is_dry_run(step, phases, training):
            continue
        if not sections or sections[-1].part != step.part or _has_other_data(sections[-1].steps[-1], step):
            sections.append(StepSection(step.part))
        section = sections[-1]
        if section.steps and section.steps[-1].iterator == step.iterator:
            _add_pause(step, section.steps[-1], phases[step.phases[0]])
        section.steps.append(step)
    return _name_evaluations(sections)


def _is_dry_run(step: Step, phases: Sequence[Phase], training: TrainingForwards) -> bool:
    """Whether this is a single call before all training, which is never made again: it tells a model its sizes."""
    if step.part != "evaluate" or step.loader is not None or not training.ends:
        return False
    calls = [at for at in step.phases if phases[at].place is not None and not phases[at].gap]
    return bool(calls) and all(training.is_single_call(at) for at in calls)


def _add_pause(step: Step, before: Step, first: Phase) -> None:
    """Let a step begin where the one before it ended: the time between belongs to it, unless it is idle."""
    pause = first.start - before.end
    if step.part == "train" or first.idle <= MOSTLY * pause:
        step.start = before.end


def _has_other_data(before: Step, step: Step) -> bool:
    """Whether an evaluation continues with other data: from validation to test."""
    return step.part == "evaluate" and step.loader is not None and step.loader != before.loader


class _StepSplitter:
    """Makes steps of a thread's phases, which it takes one after the other in order of time."""

    def __init__(self, phases: Sequence[Phase], training: TrainingForwards) -> None:
        self.phases = phases
        self.training = training
        self.steps: list[Step] = []
        self._open: list[int] = []
        """Positions of the phases since the last step."""
        self._last_end = -1
        """Index in `_open` of the last phase that ends a step, -1 for none."""
        self._last_begun = -1
        """The same of the last phase that belongs to training and ends no step."""
        self._stepped: set[int] = set()
        """Optimizers that have stepped in the open phases."""
        self._fetched = False
        """Whether data is among the open phases."""
        self._evaluating = False
        """Whether an evaluating forward is open: its loss and other forwards of its batch may still follow."""
        self._joined = find_joined(phase if phase.name in FORWARDS else None for phase in phases)
        self._leaves_helpers = any(
            phase.name in (*FORWARDS, "fused", "backward") and not phase.helper for phase in phases
        )

    def split(self) -> list[Step]:
        """All steps; the phases of one that did not end are in none."""
        for position, phase in enumerate(self.phases):
            if phase.helper and self._leaves_helpers:
                continue
            evaluates = self._evaluates(position)
            self._end_evaluation(position, evaluates)
            self._end_training_step(phase, evaluates)
            if phase.exhausted:
                continue
            self._take(position)
            if position in self.training.ends:
                self._stepped.add(self.training.ends[position])
                self._last_end = len(self._open) - 1
            self._evaluating = self._evaluating or evaluates
        if self._evaluating:
            self._close(len(self._open), "evaluate")
        elif self._last_end >= 0:
            self._close(self._count_with_trailing(), "train")
        return self.steps

    def _evaluates(self, position: int) -> bool:
        """Whether this phase is a forward that no training step needs. In an open training step each one is needed."""
        phase = self.phases[position]
        if phase.name == "fused" and not phase.continued:
            return phase.optimizer is None and not phase.exhausted
        in_training = position in self.training.forwards or self._last_begun > self._last_end
        return phase.name in FORWARDS and not in_training

    def _end_evaluation(self, position: int, evaluates: bool) -> None:
        """Close an open evaluation unless this phase goes on with it."""
        phase = self.phases[position]
        if not self._evaluating or phase.name == "loss":
            return
        continues = self._fetched or phase.name == "decode" or position in self._joined
        if not (evaluates and continues) or phase.fetches:
            self._close(len(self._open), "evaluate")
            self._evaluating = False

    def _end_training_step(self, phase: Phase, evaluates: bool) -> None:
        """Close a training step that has ended where this phase begins something else."""
        if self._last_end < 0:
            return
        again = self.training.by_hand and phase.name in (*FORWARDS, "backward")
        if phase.name == "data" or evaluates or again:
            self._close(self._count_with_trailing(), "train")
        elif phase.optimizer is not None and (
            phase.optimizer in self._stepped or phase.made > self.phases[self._open[self._last_end]].end
        ):
            # What follows a whole step that is one function, and comes before the next, is an update by itself.
            self._close(self._count_with_trailing() if phase.name == "fused" else self._last_end + 1, "train")

    def _take(self, position: int) -> None:
        """Add a phase to the open ones."""
        self._open.append(position)
        name = self.phases[position].name
        self._fetched = self._fetched or name == "data"
        if position in self.training.forwards or name == "backward":
            self._last_begun = len(self._open) - 1

    def _close(self, count: int, part: str) -> None:
        """Make a step of the first `count` open phases."""
        chosen, rest = self._open[:count], self._open[count:]
        self._open.clear()
        self._last_begun, self._fetched = -1, False
        for position in rest:
            self._take(position)
        if chosen:
            self.steps.append(_make_step(self.phases, chosen, part))
        self._last_end = -1
        self._stepped = set()

    def _count_with_trailing(self) -> int:
        """How many open phases belong to a step that nothing but new data or an evaluation follows."""
        count = self._last_end + 1
        while count < len(self._open) and self.phases[self._open[count]].name == "optimizer":
            count += 1
        return count


def _make_step(phases: Sequence[Phase], chosen: list[int], part: str) -> Step:
    """A step of the phases at these positions; of `part` unless one of them says otherwise."""
    data = next((phases[at] for at in chosen if phases[at].iterator is not None), None)
    stated = next((phases[at].part for at in chosen if phases[at].part), "")
    forwards = [phases[at] for at in chosen if phases[at].name in FORWARDS and not phases[at].gap]
    return Step(
        stated or part,
        chosen,
        phases[chosen[0]].start,
        phases[chosen[-1]].end,
        data.iterator if data else None,
        data.loader if data else None,
        (data.loader if data.dataset is None else data.dataset) if data else None,
        tuple((phase.place.path if phase.place else None, phase.shape) for phase in forwards),
        tuple(phase.address for phase in forwards),
    )


# ---- Which evaluations validate, and which test ----------------------------------------------------------------------


def _name_evaluations(sections: list[StepSection]) -> list[StepSection]:
    """Name each evaluating section: it validates or tests. A section that does both is cut in two."""
    last = max((index for index, section in enumerate(sections) if section.part == "train"), default=-1)
    ending = sections[last + 1 :]
    for section in sections[: last + 1]:
        if section.part == "evaluate":
            _name_section(section, "validate")
    if last < 0:
        for section in ending:
            if section.part == "evaluate":
                _name_section(section, "test")
        return sections
    validations = [section for section in sections[:last] if section.part == "validate"]
    named: list[StepSection] = []
    for place, section in enumerate(ending):
        if section.part != "evaluate":
            named.append(section)
        elif section.data is None:
            named += _cut_repeated(section, [validation for validation in validations if validation.data is None])
        else:
            named.append(_name_section(section, "validate" if _is_repeated(place, ending, validations) else "test"))
    return [*sections[: last + 1], *named]


def _name_section(section: StepSection, part: str) -> StepSection:
    section.part = part
    for step in section.steps:
        step.part = part
    return section


def _is_repeated(place: int, ending: list[StepSection], validations: list[StepSection]) -> bool:
    """Whether an evaluation after all training uses data that was evaluated before.

    Where each validation had its own data, as with folds, the first evaluation after the training is one more of them.
    """
    data = ending[place].data
    used = Counter(section.data for section in validations)
    if not used:
        return sum(section.data == data for section in ending) > 1
    return data in used or (place == 0 and len(validations) > 1 and max(used.values()) == 1)


def _cut_repeated(section: StepSection, validations: list[StepSection]) -> list[StepSection]:
    """Cut an evaluation after all training, without a loader, into those like the last validation and the others.

    The first is a validation if the same modules had inputs of the same shapes; not if all validations had their inputs
    at one address and this one has not. Any further one must have its inputs at the same address.
    """
    if not validations:
        return [_name_section(section, "test")]
    usual = validations[-1].steps
    places = {_addresses(validation.steps) for validation in validations} - {None}
    settled = len(validations) > 1 and len(places) == 1
    count = len(usual)
    at = 0
    while [step.calls for step in section.steps[at : at + count]] == [step.calls for step in usual]:
        here = _addresses(section.steps[at : at + count])
        if (at or settled) and here not in places:
            break
        places |= {here} - {None}
        at += count
    parts = (("validate", section.steps[:at]), ("test", section.steps[at:]))
    return [_name_section(StepSection(part, steps), part) for part, steps in parts if steps]


def _addresses(steps: list[Step]) -> tuple[int, ...] | None:
    """Addresses of the inputs of these steps; None where one is not known."""
    addresses = tuple(address for step in steps for address in step.addresses)
    return addresses if addresses and all(addresses) else None
