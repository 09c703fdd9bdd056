"""Which forwards of a program train, and where its training steps end.

A forward that a backward follows trains. So do those of a teacher, of a target network, or of a generator whose critic
is trained, which have no gradients; the others evaluate a model, or play with it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from math import inf

from sonda.frameworks.phase import FORWARDS, Phase

REGULAR = 0.5
"""A forward without gradients that is made in half of all training steps or more is a part of them."""


class TrainingForwards:
    """Which forwards train, and where steps end."""

    def __init__(self, phases: Sequence[Phase]) -> None:
        self.phases = phases
        self.by_hand = not any(phase.optimizer is not None for phase in phases)
        """Whether a program without an optimizer calls for gradients."""
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
            return dict.fromkeys(backwards, 0)  # the network is no module: every backward is of a step
        ends = {}
        for at, following in pairwise([*backwards, len(phases)]):
            between = {phase.name for phase in phases[at + 1 : following]}
            if following == len(phases) or between & {*FORWARDS, "data"}:
                ends[at] = 0
        return ends

    def _followed_by_backward(self) -> set[int]:
        """Forwards with a graph that a backward follows, before anything that is not part of the same pass."""
        found: set[int] = set()
        if not self.ends:
            return found
        waiting: list[int] = []

        def skipped() -> set[int]:
            """Gradients stay on in a training forward whose loss was skipped."""
            return {at for at in waiting if self.phases[at].learns}

        for position, phase in enumerate(self.phases):
            if phase.name in FORWARDS and phase.graph is not False:
                waiting.append(position)
            elif phase.name == "backward":
                found.update(self._trained(waiting))
                waiting = []
            elif phase.name == "data":
                found.update(skipped())
                waiting = []
        return found | skipped()

    def _trained(self, waiting: list[int]) -> list[int]:
        """Of the forwards before a backward those that it comes from.

        A model that was called in evaluation mode, and then in training mode, was evaluated first; one that was given
        an input that never comes again, before all training, was tried."""
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
        """Forwards without a graph that belong to a training step: those of a teacher, of a target network, of a
        generator whose critic is trained. The others evaluate a model, or play with it."""
        phases = self.phases
        aside = [at for at, phase in enumerate(phases) if phase.name in FORWARDS and phase.graph is False]
        if not aside or not self.ends:
            return set()
        trained = {(phases[at].model, phases[at].shape) for at in self.forwards}
        models = {model for model, _ in trained}
        steps_with: dict[tuple[int | None, int | None], set[int]] = {}
        """Steps by the model and the shape that it was given, and by the model whatever it was given."""
        for at in aside:
            for shape in (phases[at].shape, None):
                steps_with.setdefault((phases[at].model, shape), set()).add(self._step_of(at))
        found = set()
        for at in aside:
            phase = phases[at]
            call = phase.model, phase.shape
            often = call if phase.model in models else (phase.model, None)
            regular = len(steps_with[often]) >= REGULAR * len(self.ends)
            if phase.model in models:
                # Of the model that is trained: in its training mode, on the batch of the step or on one like it.
                belongs = phase.training and (self._on_batch(at) or (regular and call in trained))
            else:
                belongs = regular or self._on_batch(at)
            if belongs:
                found.add(at)
        return found

    def _step_of(self, position: int) -> int:
        """The number of the training step that a phase lies in or before."""
        return bisect_left(self._moments, position)

    def _on_batch(self, position: int) -> bool:
        """Whether the batch of a training step was fetched before this forward, and that step goes on after it."""
        fetched, end = (_before(positions, position) for positions in (self._fetched, self._moments))
        if fetched < 0 or fetched < end:
            return False
        following, *others = (_after(positions, position) for positions in (self._learning, self._data, self._moments))
        return following < min(others)


def _before(positions: list[int], position: int) -> int:
    """The last of these positions before another; -1 for none."""
    at = bisect_left(positions, position)
    return positions[at - 1] if at else -1


def _after(positions: list[int], position: int) -> float:
    """The first of these positions behind another; infinity for none."""
    at = bisect_right(positions, position)
    return positions[at] if at < len(positions) else inf
