"""Optimizers of a PyTorch program: their phases, and where its steps end.

PyTorch's own hooks announce an optimizer's step. A GradScaler's step, `zero_grad` and the like are wrapped.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from time import perf_counter_ns as now
from types import CodeType
from typing import TYPE_CHECKING, Any

from ...collector.recorder import Stream
from .identity import IdentityMap

if TYPE_CHECKING:
    from .observer import TorchObserver

MOST_WEIGHTS = 64
"""Most weights that are watched: a program may make an optimizer in every step."""
UPDATE_AWAITED = 1
"""A value of `Stream.updating`: a backward has ended, and no optimizer will step. A larger value is the identity of the
`no_grad` block that updates weights."""


class Optimizers:
    """Wraps the optimizers of an observed program, and knows which of them there are."""

    def __init__(self, observer: TorchObserver) -> None:
        self.observer = observer
        self._number = itertools.count()
        self._known = IdentityMap()
        """The number of each optimizer and when it was made, ns; 0 for an optimizer made before observing began."""
        constants = observer.torch.optim.Optimizer.profile_hook_step.__code__.co_consts
        self._frames = {constant for constant in constants if isinstance(constant, CodeType)}
        """Code objects that are on the Python stack while an optimizer steps."""
        define = observer.recorder.define
        self._all_numbers: frozenset = frozenset()
        """The numbers of all optimizers; empty where some may be unknown."""
        self._changes = 0
        """Value of `_known.changes` when these numbers were gathered."""
        self._made = IdentityMap()
        """Weak references to all optimizers that were made."""
        self._weights: dict = {}
        """Weak references to one weight of every parameter group, by identity."""
        self._versions_after_backward: list = []
        """Versions of these weights when the last backward ended."""
        self.stepped = False
        """Whether an optimizer has stepped yet."""
        self.exists = False
        """Whether the program has made an optimizer or used one."""
        self.by_hand = define(kind="phase", name="optimizer", by_hand=True)
        self.step = define(kind="phase", name="optimizer", step=True)
        self._scaled = define(kind="phase", name="optimizer", step=True, scaled=True)
        self._value_optimizer = define(kind="value", quantity="optimizer", source="counted")
        self._value_made = define(kind="value", quantity="made", source="counted")

    def wrap(self, original: Any) -> Any:
        """Wrap a call that is an optimizer's phase but no step: zero_grad, unscale_."""
        observer = self.observer
        code = observer.phases.codes["optimizer"]

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            stream = observer.current_stream()
            if stream is not None and stream.phases:
                self.close_abandoned(stream)
            if stream is None or stream.layers or (stream.phases and is_open(stream, code)):
                return original(*args, **kwargs)
            inspection = observer.counter.inspection
            if inspection is not None and observer.counter.stream is stream and args:
                inspection.gradients_cleared(args[0])
            observer.open(stream, code)
            try:
                return original(*args, **kwargs)
            finally:
                observer.close(stream, code)

        return wrapper

    def wrap_init(self, original: Any) -> Any:
        def wrapper(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            self._known.set(optimizer, (next(self._number), now()))
            self._made.set(optimizer, weakref.ref(optimizer))
            self.exists = True
            original(optimizer, *args, **kwargs)
            try:
                self._watch_weights(optimizer)
            except Exception:  # an optimizer of a library, with parameter groups of another kind
                pass

        return wrapper

    def _watch_weights(self, optimizer: Any) -> None:
        """Watch one trained weight of every parameter group."""
        for group in getattr(optimizer, "param_groups", ()):
            trained = (weight for weight in group.get("params", ()) if weight.requires_grad and weight.is_leaf)
            weight = next(trained, None)
            if weight is not None and not weight.is_inference() and len(self._weights) < MOST_WEIGHTS:
                self._weights.setdefault(id(weight), weakref.ref(weight))

    def weight_versions(self) -> list:
        """How often each watched weight was written to."""
        weights = [reference() for reference in self._weights.values()]
        if None in weights:
            self._weights = {key: reference for key, reference in self._weights.items() if reference() is not None}
        return [weight._version for weight in weights if weight is not None]

    def weights_of_all(self) -> set | None:
        """Identities of the weights of all optimizers; None where some optimizer may be unknown, or none has stepped.

        A weight may be the weight of an optimizer that steps seldom, so all of them are asked.
        """
        optimizers = [reference() for reference in self._made.values()]
        known = self._known.values()
        if not self.stepped or not known or not all(made for _, made in known):
            return None
        groups = [group for optimizer in optimizers if optimizer is not None for group in optimizer.param_groups]
        return {id(weight) for group in groups for weight in group["params"]}

    def in_use(self) -> bool | None:
        """Whether an optimizer will step; None where one exists, has not stepped yet, and no weight has changed."""
        if self.exists and not self.stepped:
            return None if self._versions_after_backward == self.weight_versions() else False
        return self.exists

    def backward_ended(self, stream: Stream) -> None:
        """Note the end of a backward before any optimizer stepped: weights that change now are updated by hand."""
        if self.exists:
            self._versions_after_backward = self.weight_versions()
        elif not stream.phases:
            stream.updating = UPDATE_AWAITED

    # ---- by hand ----------------------------------------------------------------------------------------------

    def wrap_enter(self, original: Any) -> Any:
        """Wrap `no_grad.__enter__`: after a backward, a program without an optimizer updates its weights in it."""
        mine = self.observer.recorder.mine

        def wrapper(context: Any) -> Any:
            result = original(context)
            stream = mine.stream
            if stream is not None and stream.updating == UPDATE_AWAITED:
                self._begin_update(stream, context)
            return result

        return wrapper

    def wrap_exit(self, original: Any) -> Any:
        mine = self.observer.recorder.mine

        def wrapper(context: Any, *failure: Any) -> Any:
            stream = mine.stream
            if stream is not None and stream.updating == id(context):
                self.end_update(stream)
                stream.updating = UPDATE_AWAITED
            return original(context, *failure)

        return wrapper

    def _begin_update(self, stream: Stream, context: Any) -> None:
        if not stream.phases and not stream.layers and self.observer.current_stream() is stream:
            self.observer.open(stream, self.by_hand)
            stream.updating = id(context)

    def end_update(self, stream: Stream) -> None:
        """Close the phase of an update by hand, if it is open: what follows is no update."""
        if stream.updating > UPDATE_AWAITED and is_open(stream, self.by_hand):
            self.observer.close(stream, self.by_hand)
        stream.updating = 0

    # ---- steps ------------------------------------------------------------------------------------------------

    def _begin_step(self, stream: Stream, code: int, optimizer: Any) -> None:
        self.exists = self.stepped = True
        inspection = self.observer.counter.inspection
        if inspection is not None and self.observer.counter.stream is stream:
            inspection.optimizer_steps(optimizer)
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
        # Inside a GradScaler's step the scaler's phase stands for both.
        if not stream.phases or not is_open(stream, self._scaled):
            self._begin_step(stream, self.step, optimizer)

    def step_ends(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        stream = self.observer.recorder.mine.stream
        if stream is not None and is_open(stream, self.step):
            # Also where observing has ended meanwhile: the open phase must be closed.
            self.observer.close(stream, self.step)
            if self.observer.current_stream() is stream:
                self._finish_step(stream, optimizer)

    def close_abandoned(self, stream: Stream, beginning: int = 0) -> None:
        """Close phases of optimizers whose step ended by an exception: PyTorch does not call their post-hook then.

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

    def _finish_step(self, stream: Stream, optimizer: Any) -> None:
        if self._known.changes != self._changes:
            self._changes = self._known.changes
            known = self._known.values()
            # Where an optimizer was made before observing began, there may be more that were not seen yet.
            self._all_numbers = (
                frozenset(number for number, _ in known) if all(made for _, made in known) else frozenset()
            )
        steps = stream.schedule.steps
        if not steps & (steps - 1):
            self.observer.faults.note(steps)
            self.observer.denormals.look_at_states(optimizer, steps)
        counted = self.observer.counter.stream is stream
        if counted and self.observer.counter.inspection is not None:
            self.observer.counter.inspection.optimizer_stepped(optimizer, self.observer.model())
        recorded, stream.recorded = stream.recorded, len(stream.events)
        stream.schedule.end_optimizer_step(
            self._known.get(optimizer)[0], now(), self.observer.recorder.written, self._all_numbers, counted,
            pairs=(stream.recorded - recorded) // 2,
        )  # fmt: skip
        weights = None
        if stream.schedule.bare and stream.schedule.counting:
            weights = [weight for group in getattr(optimizer, "param_groups", ()) for weight in group["params"]]
        self.observer.follow_schedule(stream, weights=weights)

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
            # A scaler that found infinities skips the optimizer; the program's step is over anyway.
            self._finish_step(stream, optimizer)
            return result

        return wrapper


def is_open(stream: Stream, code: int) -> bool:
    """Whether a phase is open."""
    for phase in stream.phases:  # noqa: SIM110 - several times as fast, and called in every step
        if phase[0] == code:
            return True
    return False
