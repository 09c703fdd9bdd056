"""Chooses the steps whose operations are counted: those with inputs, or a number of forwards, not counted before.

A step must be counted from its first forward on. One that is counted from its middle is disturbed and has no count.
"""

from __future__ import annotations

import itertools
import sys
import threading
from typing import Any

COUNTED_SHAPES = 4
"""For every outermost module and part, so many steps with a new shape of input are counted at once."""
COUNTED_LATER = (6, 10, 16, 26, 42, 68, 110, 178)
"""Where shapes go on changing, one more step is counted after so many calls of the module. This samples the shapes of
the whole run; what the other shapes compute follows from the sample."""
MOST_COUNTED = 64
"""How often counting may begin in one process, whatever its modules, shapes and threads are."""
MOST_SHAPES = 10_000
"""How many shapes get numbers; later ones have the number 0."""
REGULAR = 0.5
"""A forward without gradients of a module that is not trained belongs to training steps if it comes in at least this
share of them: that of a teacher or a target network."""


class CountedShapes:
    """The shapes of inputs in one process and what was counted of them, shared by its threads.

    A call is a tuple: an outermost module, the number of its input's shape, whether the module is in training mode, and
    whether gradients are on. `called` is the module and whether gradients are on.
    """

    def __init__(self) -> None:
        self.numbers: dict = {}
        self._numbering = itertools.count(1)
        self.known: set = set()
        """Calls that were counted."""
        self.steps: set = set()
        """Steps that were counted, each as a frozen set of (call, how often it was made)."""
        self.begun = 0
        self._calls: dict = {}
        """How often counting might have begun, for each `called`."""
        self._counted: dict = {}
        """How often counting began, for each `called`."""
        self._holder: Any = None
        """The schedule of the thread that counts, or counted last; `_thread` is its id."""
        self._thread = 0

    def number(self, shape: object) -> tuple[int, bool]:
        """The number of this input's shape, and whether the shape is new."""
        number = self.numbers.get(shape)
        if number is not None:
            return number, False
        if len(self.numbers) >= MOST_SHAPES:
            return 0, False
        number = next(self._numbering)  # two threads never get the same one
        return number, self.numbers.setdefault(shape, number) == number

    def note_chance(self, called: tuple) -> None:
        """Note that counting might begin with this forward."""
        self._calls[called] = self._calls.get(called, 0) + 1

    def is_trained(self, module: int) -> bool:
        return (module, True) in self._calls

    def affords(self, called: tuple) -> bool:
        """Whether counting may begin again with this module, called like this."""
        counted = self._counted.get(called, 0)
        if self.begun >= MOST_COUNTED:
            return False
        if counted < COUNTED_SHAPES:
            return True
        later = COUNTED_LATER[counted - COUNTED_SHAPES : counted - COUNTED_SHAPES + 1]
        return any(self._calls.get(called, 0) >= calls for calls in later)

    def begin(self, called: tuple, schedule: Any) -> bool:
        """Begin counting for the schedule of this thread; False while another living thread counts."""
        holder = self._holder
        if holder is not None and holder is not schedule and holder.counting and not holder.is_waiting:
            if self._thread in sys._current_frames():
                return False
            holder.counting = False
        self._holder, self._thread = schedule, threading.get_ident()
        self.begun += 1
        self._counted[called] = self._counted.get(called, 0) + 1
        return True

    def exhaust(self) -> None:
        """Let counting never begin again."""
        self.begun = MOST_COUNTED


class StepForwards:
    """The forwards of one thread since its last step ended, and which of them are counted."""

    def __init__(self, shapes: CountedShapes) -> None:
        self.shapes = shapes
        self._made: dict = {}
        """How often each call was made in this step."""
        self._evaluates = False
        """Whether some of these calls were in evaluation mode."""
        self._without_gradients: set = set()
        """Modules that were called without gradients since the last step ended."""
        self._steps_with: dict = {}
        """In how many steps each of these modules was called."""
        self._steps = 0
        self._unlike = False
        """Whether there was a step unlike all counted ones since the last count."""
        self._waits = 0
        """How many steps pass before one is counted for that reason."""
        self._in_vain = 0
        """How many steps in a row were counted for that reason and were like others. The wait grows with it, so that a
        step which comes every fifth time is counted eventually."""
        self._first = False
        self._whole: bool | None = None
        """Whether this step is counted from its first forward on; None where nothing of it is counted."""
        self._added: list = []
        """Calls that only this step's count covers."""

    def begin_forward(self, call: tuple, middle: bool) -> bool:
        """A forward begins; whether it is worth counting. `middle`: the step had a backward already."""
        module, shape, training, learns = call
        shapes, called = self.shapes, (module, learns)
        if not learns:
            self._without_gradients.add(called)
            if not self._is_regular(called):  # an evaluation is a step of its own
                self._first = False
                shapes.note_chance(called)
                return bool(shape) and call not in shapes.known and shapes.affords(called)
        if training and self._evaluates:
            self._drop_evaluations(module)
        self._first = not middle and not self._made
        self._made[call] = self._made.get(call, 0) + 1
        self._evaluates |= not training
        if not self._first:
            return False
        shapes.note_chance(called)
        due = self._unlike and not self._waits
        self._waits -= self._waits > 0
        return bool(shape) and (due or call not in shapes.known) and shapes.affords(called)

    def _is_regular(self, called: tuple) -> bool:
        often = self._steps_with.get(called, 0) >= REGULAR * self._steps
        return self._steps > 0 and often and not self.shapes.is_trained(called[0])

    def _drop_evaluations(self, module: int) -> None:
        """Drop calls of a module in evaluation mode before one in training mode: it was evaluated before this step."""
        self._made = {call: often for call, often in self._made.items() if call[0] != module or call[2]}
        self._evaluates = any(not call[2] for call in self._made)

    def count(self, call: tuple) -> None:
        """The forward that began last is counted."""
        if call[1] and call not in self.shapes.known:
            self.shapes.known.add(call)
            self._added.append(call)
        if self._whole is None and call in self._made:
            self._whole = self._first

    def continues(self, call: tuple) -> bool:
        """Whether a forward belongs to the step of a counted one without gradients, that of a frozen part: one with
        gradients does, and so does that of another frozen part."""
        module, _, _, learns = call
        return self._whole is not None and (learns or self._is_regular((module, learns)))

    def break_off(self) -> None:
        """Counting ended before the step."""
        if self._whole:
            self._whole = False

    def discard(self) -> None:
        """Drop forwards that no backward followed: they were no step."""
        self._made.clear()
        self._evaluates = False

    def end(self, counted: bool = True) -> None:
        """The step ended. `counted` is False where counting could not begin in it."""
        forwards = frozenset(self._made.items())
        if self._whole and counted:
            self._in_vain = self._in_vain + 1 if forwards in self.shapes.steps else 0
            self.shapes.steps.add(forwards)
            self._unlike = False
        elif forwards and forwards not in self.shapes.steps:
            self._waits = self._waits if self._unlike else self._in_vain
            self._unlike = True
        if self._whole is False and counted:  # one of the next steps is to be counted as a whole
            self.shapes.known.difference_update(self._added)
        if counted or self._whole is None:
            self._added.clear()
        self._whole = None
        self._made.clear()
        self._evaluates = False
        self._steps += 1
        for called in self._without_gradients:
            self._steps_with[called] = self._steps_with.get(called, 0) + 1
        self._without_gradients.clear()
