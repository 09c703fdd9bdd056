"""Which steps are worth counting: those with inputs, or with a number of forwards, that no counted step had.

A step is counted from its first forward on: one that is counted from its middle has no count, and is only disturbed.
"""

from __future__ import annotations

import itertools
import sys
import threading
from typing import Any

COUNTED_SHAPES = 4
"""Steps with a new shape of input that are spent on counting at once, for every outermost module and part."""
COUNTED_LATER = (6, 10, 16, 26, 42, 68, 110, 178)
"""Where shapes go on changing, one more is counted after so many steps of the module: shapes of the whole run are
sampled, and what the others compute follows from these."""
MOST_COUNTED = 64
"""Times that counting begins in one process, whatever its modules, shapes and threads are."""
MOST_SHAPES = 10_000
"""Shapes that are told apart; those of further inputs have the number 0."""
REGULAR = 0.5
"""A forward without gradients that comes in half of all steps or more, of a module that is not trained, is a part of
them: a teacher's, a target network's."""


class CountedShapes:
    """What the threads of one process know of its shapes, and have counted, together.

    A call is an outermost module, the number of its input's shape, whether the module is in training mode, and whether
    gradients are on; `called` is the module and whether gradients are on.
    """

    def __init__(self) -> None:
        self.numbers: dict = {}
        self._numbering = itertools.count(1)
        self.known: set = set()
        """Calls that were counted."""
        self.steps: set = set()
        """Steps that were counted: how often each call was made in them."""
        self.begun = 0
        self._calls: dict = {}
        """How often counting might have begun with each `called`."""
        self._counted: dict = {}
        """How often it did."""
        self._holder: Any = None
        self._thread = 0

    def number(self, shape: object) -> tuple[int, bool]:
        """The number of this input's shape, and whether it was not known before."""
        number = self.numbers.get(shape)
        if number is not None:
            return number, False
        if len(self.numbers) >= MOST_SHAPES:
            return 0, False
        number = next(self._numbering)  # two threads never get the same one
        return number, self.numbers.setdefault(shape, number) == number

    def meet(self, called: tuple) -> None:
        """Counting might begin with this forward."""
        self._calls[called] = self._calls.get(called, 0) + 1

    def is_trained(self, module: int) -> bool:
        return (module, True) in self._calls

    def affords(self, called: tuple) -> bool:
        """Whether counting may begin once more with this module, called like this."""
        counted = self._counted.get(called, 0)
        if self.begun >= MOST_COUNTED:
            return False
        if counted < COUNTED_SHAPES:
            return True
        later = COUNTED_LATER[counted - COUNTED_SHAPES : counted - COUNTED_SHAPES + 1]
        return any(self._calls.get(called, 0) >= calls for calls in later)

    def begin(self, called: tuple, schedule: Any) -> bool:
        """Whether counting begins for this thread's schedule: not while another thread counts, and is alive."""
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
        """Counting begins no more."""
        self.begun = MOST_COUNTED


class StepForwards:
    """The forwards of one thread since its last step ended, and whether they are counted."""

    def __init__(self, shapes: CountedShapes) -> None:
        self.shapes = shapes
        self._made: dict = {}
        """How often each call of this step was made."""
        self._evaluates = False
        """Whether some of these were in evaluation mode."""
        self._aside: set = set()
        """Modules that were called without gradients since the last step ended."""
        self._steps_with: dict = {}
        """In how many steps each of these was called."""
        self._steps = 0
        self._unlike = False
        """Whether a step has gone by that was like no counted one."""
        self._waits = 0
        """Steps that are let go by before one is counted because of that."""
        self._in_vain = 0
        """Steps that were counted because of that, and were like others: what comes every fifth time is met once."""
        self._first = False
        self._whole: bool | None = None
        """Whether this step is counted from its first forward on; None where none of it is."""
        self._added: list = []
        """Calls that are known by this step's count alone."""

    def meet(self, call: tuple, middle: bool) -> bool:
        """A forward begins, in the `middle` of a step where a backward came before; whether it is worth counting."""
        module, shape, training, learns = call
        shapes, called = self.shapes, (module, learns)
        if not learns:
            self._aside.add(called)
            if not self._is_regular(called):  # an evaluation is a step of its own
                self._first = False
                shapes.meet(called)
                return bool(shape) and call not in shapes.known and shapes.affords(called)
        if training and self._evaluates:
            self._leave_evaluations(module)
        self._first = not middle and not self._made
        self._made[call] = self._made.get(call, 0) + 1
        self._evaluates |= not training
        if not self._first:
            return False
        shapes.meet(called)
        due = self._unlike and not self._waits
        self._waits -= self._waits > 0
        return bool(shape) and (due or call not in shapes.known) and shapes.affords(called)

    def _is_regular(self, called: tuple) -> bool:
        often = self._steps_with.get(called, 0) >= REGULAR * self._steps
        return self._steps > 0 and often and not self.shapes.is_trained(called[0])

    def _leave_evaluations(self, module: int) -> None:
        """A module that is called in evaluation mode, and then in training mode, was evaluated before this step."""
        self._made = {call: often for call, often in self._made.items() if call[0] != module or call[2]}
        self._evaluates = any(not call[2] for call in self._made)

    def count(self, call: tuple) -> None:
        """The forward that was met last is counted."""
        if call[1] and call not in self.shapes.known:
            self.shapes.known.add(call)
            self._added.append(call)
        if self._whole is None and call in self._made:
            self._whole = self._first

    def goes_on(self, learns: bool) -> bool:
        """Whether a forward with gradients belongs to the same step as what was counted without: a frozen part."""
        return learns and self._whole is not None

    def break_off(self) -> None:
        """Counting ended before the step did."""
        if self._whole:
            self._whole = False

    def leave(self) -> None:
        """Forwards that no backward followed were no step."""
        self._made.clear()
        self._evaluates = False

    def end(self, counted: bool = True) -> None:
        """The step ended; `counted` is False where counting could not begin in it."""
        forwards = frozenset(self._made.items())
        if self._whole and counted:
            self._in_vain = self._in_vain + 1 if forwards in self.shapes.steps else 0
            self.shapes.steps.add(forwards)
            self._unlike = False
        elif forwards and forwards not in self.shapes.steps:
            self._waits = self._waits if self._unlike else self._in_vain
            self._unlike = True
        if self._whole is False and counted:  # so that one of the next steps is counted as a whole
            self.shapes.known.difference_update(self._added)
        if counted or self._whole is None:
            self._added.clear()
        self._whole = None
        self._made.clear()
        self._evaluates = False
        self._steps += 1
        for called in self._aside:
            self._steps_with[called] = self._steps_with.get(called, 0) + 1
        self._aside.clear()
