"""Optimizers of a PyTorch program: their phases, and where its steps end.

An optimizer's step is announced by PyTorch's own hooks; a GradScaler's, `zero_grad` and the like are wrapped.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from time import perf_counter_ns as now
from types import CodeType
from typing import TYPE_CHECKING, Any

from ...collector.recorder import Stream
from .identity import ByIdentity

if TYPE_CHECKING:
    from .observer import TorchObserver

MOST_WEIGHTS = 64
"""Weights that are kept in sight: a program may make an optimizer in every step."""
AWAITED = 1
"""Of `Stream.updating`: a backward has ended, and no optimizer will step. Above it: the block that updates weights."""


class Optimizers:
    """What an observer knows of the optimizers of the program that it observes."""

    def __init__(self, observer: TorchObserver) -> None:
        self.observer = observer
        self._number = itertools.count()
        self._known = ByIdentity()
        """The number of each optimizer and when it was made, ns; 0 for one made before observing began."""
        constants = observer.torch.optim.Optimizer.profile_hook_step.__code__.co_consts
        self._frames = {constant for constant in constants if isinstance(constant, CodeType)}
        """What is on the Python stack while an optimizer steps."""
        define = observer.recorder.define
        self._others: frozenset = frozenset()
        """The numbers of all optimizers, where they are known."""
        self._changes = 0
        """Of `_known`, when these were gathered."""
        self._weights: dict = {}
        """Weak references to weights, one of every group, by their identity."""
        self._noted: list = []
        """How often each had been written to when the last backward ended."""
        self.stepped = False
        """Whether an optimizer has ever stepped."""
        self.any = False
        """Whether the program has made an optimizer or used one."""
        self.by_hand = define(kind="phase", name="optimizer", by_hand=True)
        self.step = define(kind="phase", name="optimizer", step=True)
        self._scaled = define(kind="phase", name="optimizer", step=True, scaled=True)
        self._value_optimizer = define(kind="value", quantity="optimizer", source="counted")
        self._value_made = define(kind="value", quantity="made", source="counted")

    def wrap(self, original: Any) -> Any:
        """A call that is an optimizer's phase and no step: zero_grad, unscale_."""
        observer = self.observer
        code = observer.phases.codes["optimizer"]

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            stream = observer.current_stream()
            if stream is not None and stream.phases:
                self.close_abandoned(stream)
            if stream is None or stream.layers or (stream.phases and inside(stream, code)):
                return original(*args, **kwargs)
            observer.open(stream, code)
            try:
                return original(*args, **kwargs)
            finally:
                observer.close(stream, code)

        return wrapper

    def wrap_init(self, original: Any) -> Any:
        def wrapper(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            self._known.set(optimizer, (next(self._number), now()))
            self.any = True
            original(optimizer, *args, **kwargs)
            try:
                self._watch_weights(optimizer)
            except Exception:  # an optimizer of somebody else's making, with groups of another kind
                pass

        return wrapper

    def _watch_weights(self, optimizer: Any) -> None:
        """Keep one weight of every group in sight that is trained."""
        for group in getattr(optimizer, "param_groups", ()):
            trained = (weight for weight in group.get("params", ()) if weight.requires_grad and weight.is_leaf)
            weight = next(trained, None)
            if weight is not None and not weight.is_inference() and len(self._weights) < MOST_WEIGHTS:
                self._weights.setdefault(id(weight), weakref.ref(weight))

    def weight_versions(self) -> list:
        """How often one weight of every optimizer's groups was written to."""
        weights = [reference() for reference in self._weights.values()]
        if None in weights:
            self._weights = {key: reference for key, reference in self._weights.items() if reference() is not None}
        return [weight._version for weight in weights if weight is not None]

    def in_use(self) -> bool | None:
        """Whether an optimizer will step; None where there is one that never has, and weights have not changed."""
        if self.any and not self.stepped:
            return None if self._noted == self.weight_versions() else False
        return self.any

    def backward_ended(self, stream: Stream) -> None:
        """A backward has ended, and no optimizer has ever stepped: weights that change now are updated by hand."""
        if self.any:
            self._noted = self.weight_versions()
        elif not stream.phases:
            stream.updating = AWAITED

    # ---- by hand ----------------------------------------------------------------------------------------------

    def wrap_enter(self, original: Any) -> Any:
        """`no_grad.__enter__`: behind the backward of a program without an optimizer, weights are updated in it."""
        mine = self.observer.recorder.mine

        def wrapper(context: Any) -> Any:
            result = original(context)
            stream = mine.stream
            if stream is not None and stream.updating == AWAITED:
                self._begin_update(stream, context)
            return result

        return wrapper

    def wrap_exit(self, original: Any) -> Any:
        mine = self.observer.recorder.mine

        def wrapper(context: Any, *failure: Any) -> Any:
            stream = mine.stream
            if stream is not None and stream.updating == id(context):
                self.end_update(stream)
                stream.updating = AWAITED
            return original(context, *failure)

        return wrapper

    def _begin_update(self, stream: Stream, context: Any) -> None:
        if not stream.phases and not stream.layers and self.observer.current_stream() is stream:
            self.observer.open(stream, self.by_hand)
            stream.updating = id(context)

    def end_update(self, stream: Stream) -> None:
        """What follows is no update by hand: the phase of one ends, if it is open."""
        if stream.updating > AWAITED and inside(stream, self.by_hand):
            self.observer.close(stream, self.by_hand)
        stream.updating = 0

    # ---- steps ------------------------------------------------------------------------------------------------

    def _begin_step(self, stream: Stream, code: int, optimizer: Any) -> None:
        self.any = self.stepped = True
        known = self._known.get(optimizer)
        if known is None:
            known = next(self._number), 0
            self._known.set(optimizer, known)
        self.observer.open(stream, code)
        stream.push((self._value_optimizer, known[0], self._value_made, known[1]))

    def step_begins(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        stream = self.observer.current_stream()
        if stream is None:
            return
        if stream.phases:
            self.close_abandoned(stream, beginning=1)
        if stream.schedule.counting:  # an optimizer that calls forward itself is counted from its own beginning
            self.observer.follow_schedule(stream, self.observer.model())
        # Inside a GradScaler's step the scaler's phase speaks for both.
        if not stream.phases or not inside(stream, self._scaled):
            self._begin_step(stream, self.step, optimizer)

    def step_ends(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        stream = self.observer.recorder.mine.stream
        if stream is not None and inside(stream, self.step):
            # Also where observing has ended meanwhile: what is open is to be closed.
            self.observer.close(stream, self.step)
            if self.observer.current_stream() is stream:
                self._stepped(stream, optimizer)

    def close_abandoned(self, stream: Stream, beginning: int = 0) -> None:
        """Close phases of optimizers whose step an exception ended: PyTorch does not call their second hook then.

        `beginning` is 1 when called for a step that has no phase yet.
        """
        if not stream.phases:
            return
        opened = sum(phase[0] == self.step for phase in stream.phases)
        if not opened:
            return
        running = -beginning
        frame: Any = sys._getframe()
        while frame is not None:
            running += frame.f_code in self._frames
            frame = frame.f_back
        for _ in range(opened - running):
            self.observer.close(stream, self.step)

    def _stepped(self, stream: Stream, optimizer: Any) -> None:
        if self._known.changes != self._changes:
            self._changes = self._known.changes
            known = self._known.values()
            # Where one was made before observing began there may be others, never seen yet.
            self._others = frozenset(number for number, _ in known) if all(made for _, made in known) else frozenset()
        counted = self.observer.counter.stream is stream
        recorded, stream.recorded = stream.recorded, len(stream.events)
        stream.schedule.end_optimizer_step(
            self._known.get(optimizer)[0], now(), self.observer.recorder.written, self._others, counted,
            pairs=(stream.recorded - recorded) // 2,
        )  # fmt: skip
        self.observer.follow_schedule(stream)

    def wrap_scaler_step(self, original: Any) -> Any:
        def wrapper(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            stream = self.observer.current_stream()
            if stream is None:
                return original(scaler, optimizer, *args, **kwargs)
            self._begin_step(stream, self._scaled, optimizer)
            try:
                result = original(scaler, optimizer, *args, **kwargs)
            finally:
                self.observer.close(stream, self._scaled)
            # A scaler that found infinities leaves the optimizer out; the program's step is over all the same.
            self._stepped(stream, optimizer)
            return result

        return wrapper


def inside(stream: Stream, code: int) -> bool:
    """Whether a phase is open."""
    for phase in stream.phases:  # noqa: SIM110 - some times as fast, in every step of a small network
        if phase[0] == code:
            return True
    return False
