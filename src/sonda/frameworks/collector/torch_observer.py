"""Makes PyTorch announce its phases and layers, and changes nothing that it computes.

Phases: data (a DataLoader's next batch), transfer (a copy to another device), forward (a module that no other module
called), loss (such a module that is a loss), backward, optimizer (step, zero_grad, GradScaler).
"""

from __future__ import annotations

import itertools
import weakref
from _thread import get_ident
from contextlib import contextmanager
from time import perf_counter_ns as now

from .counter import Counter
from .phases import Phases
from .recorder import Recorder, Stream
from .schedule import Schedule
from .torch_layers import Layers

COST_CALLS = 2_000


class TorchObserver:
    """Patches PyTorch on `install`; `remove` puts everything back."""

    def __init__(self, recorder: Recorder, torch, schedule: Schedule) -> None:
        self.recorder = recorder
        self.torch = torch
        self.schedule = schedule
        self.phases = Phases(recorder)
        self.layers = Layers(recorder, torch)
        self.counter = Counter(torch, recorder)
        self._on = False
        self._undo: list = []
        self._numbers: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self._step_codes: dict = {}
        self._next_number = itertools.count()
        self._next_iterator = itertools.count()
        self._fetching: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self._shape = recorder.define(kind="value", quantity="shape", source="counted")
        self._training = recorder.define(kind="value", quantity="training", source="counted")

    # ---- installing -------------------------------------------------------------------------------------------

    def install(self) -> None:
        torch = self.torch
        from torch.optim import optimizer
        from torch.utils.data import dataloader

        self.phases.open()
        self.recorder.set_detail(self.schedule.detail)
        self._module_call = torch.nn.Module.__call__
        self._replace(torch.nn.Module, "__call__", lambda original: self.layers.wrap(original, self._outermost))
        self._replace(torch.nn.Module, "zero_grad", self._optimizer_phase)
        self._replace(torch.optim.Optimizer, "zero_grad", self._optimizer_phase)
        self._replace(torch.amp.GradScaler, "unscale_", self._optimizer_phase)
        self._replace(torch.amp.GradScaler, "update", self._optimizer_phase)
        self._replace(torch.amp.GradScaler, "step", self._scaler_step)
        self._replace(torch.autograd, "backward", self._backward)
        self._replace(torch.autograd, "grad", self._backward)
        self._replace(dataloader.DataLoader, "__iter__", self._loader_iter)
        self._replace(dataloader._BaseDataLoaderIter, "__next__", self._loader_next)
        if torch.version.cuda or torch.version.hip:
            for name in ("to", "cuda", "cpu"):
                self._replace(torch.Tensor, name, self._transfer)
        self._undo.append(optimizer.register_optimizer_step_pre_hook(self._step_begins).remove)
        self._undo.append(optimizer.register_optimizer_step_post_hook(self._step_ends).remove)
        self._on = True

    def remove(self) -> None:
        self._on = False
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
        self.layers.clear()
        self.phases.close()

    def _replace(self, owner, name: str, make) -> None:
        inherited = name not in vars(owner)
        original = getattr(owner, name)
        wrapper = make(original)
        for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
            setattr(wrapper, attribute, getattr(original, attribute, None))
        wrapper.__wrapped__ = original
        setattr(owner, name, wrapper)
        self._undo.append(lambda: delattr(owner, name) if inherited else setattr(owner, name, original))

    def _stream(self):
        """This thread's stream, or None when nothing is to be recorded."""
        if not self._on or self.schedule.over or self.torch.compiler.is_compiling():
            return None
        return self.recorder.streams.get(get_ident()) or self.recorder.stream()

    def cost(self) -> float:
        """What recording one layer costs, ns: the same module called with and without, on this machine, now."""
        stream = self._stream()
        if stream is None:
            return 0.0
        kept = len(stream.events)
        identity = self.torch.nn.Identity()
        recorded = self.torch.nn.Module.__call__
        code = self.layers.define_unlisted(identity, 0)
        stream.layers.append(code)
        best = [1 << 62, 1 << 62]
        for _ in range(5):
            for which, function in enumerate((self._module_call, recorded)):
                begin = now()
                for _ in range(COST_CALLS):
                    function(identity, None)
                best[which] = min(best[which], now() - begin)
        stream.layers.pop()
        del stream.events[kept:]
        return (best[1] - best[0]) / COST_CALLS

    # ---- phases -----------------------------------------------------------------------------------------------

    def _open(self, stream: Stream, code: int) -> None:
        """Open a phase, in which operations are seen when this step is counted."""
        self.counter.phase_begins()
        mode = self.counter.mode()
        mode.__enter__()
        self.phases.begin(stream, code, mode)

    def _close(self, stream: Stream, code: int) -> None:
        """Close this phase, and what an exception left open inside it."""
        while True:
            opened, mode, _ = stream.phases[-1]
            mode.__exit__(None, None, None)
            self.counter.phase_ends(stream)
            self.phases.end(stream)
            if opened == code:
                return

    @contextmanager
    def phase(self, stream: Stream, code: int):
        self._open(stream, code)
        try:
            yield
        finally:
            self._close(stream, code)

    def announced(self, name: str):
        """A phase that the program itself announces, such as prefill."""
        return self.phase(self.recorder.stream(), self.recorder.define(kind="phase", name=name))

    @contextmanager
    def span(self, kind: str, name: str):
        """Any other span that the program itself announces: a step, a pass."""
        stream = self.recorder.stream()
        code = self.recorder.define(kind=kind, name=name)
        stream.push((code, now()))
        try:
            yield
        finally:
            stream.push((code + 1, now()))

    @contextmanager
    def counted(self, tensors):
        """Count everything in this block; `tensors` exist already."""
        stream = self.recorder.stream()
        self.counter.start(stream, tensors)
        try:
            yield
        finally:
            self.counter.stop(stream)

    def _optimizer_phase(self, original):
        code = self.phases.codes["optimizer"]

        def wrapper(*args, **kwargs):
            stream = self._stream()
            if stream is None or stream.layers or _inside(stream, code):
                return original(*args, **kwargs)
            with self.phase(stream, code):
                return original(*args, **kwargs)

        return wrapper

    # ---- forward ----------------------------------------------------------------------------------------------

    def _outermost(self, module, args: tuple, kwargs: dict):
        """A module that no other module called: a forward or a loss, or a part of a phase that is open already."""
        stream = self._stream()
        if stream is None:
            return self._module_call(module, *args, **kwargs)
        code = self.layers.codes.get(id(module))
        if code is None:
            code = self.layers.define_root(module)
        if stream.phases and not _inside(stream, self.phases.codes["optimizer"]):
            return self._recorded(stream, code, module, args, kwargs)
        if _is_loss(self.torch, module):
            with self.phase(stream, self.phases.codes["loss"]):
                return self._recorded(stream, code, module, args, kwargs)
        learns = self.torch.is_grad_enabled()
        shape = self.schedule.forward((code, _shape(self.torch, args, kwargs), module.training, learns), learns)
        self._follow_schedule(stream, module)
        self.counter.forward_begins()
        with self.phase(stream, self.phases.codes["forward"]):
            result = self._recorded(stream, code, module, args, kwargs)
            stream.push((self._shape, shape, self._training, int(module.training and learns)))
            self.counter.forward_ends()
        self.schedule.forward_ended(learns, now(), self.recorder.written)
        self._follow_schedule(stream, module)
        return result

    def _recorded(self, stream: Stream, code: int, module, args: tuple, kwargs: dict):
        if not stream.detail:
            stream.layers.append(code)
            try:
                return self._module_call(module, *args, **kwargs)
            finally:
                stream.layers.pop()
        stream.layers.append(code)
        stream.push((code, now()))
        try:
            result = self._module_call(module, *args, **kwargs)
        finally:
            stream.push((code + 1, now()))
            stream.layers.pop()
        if self.torch.is_grad_enabled():
            self.layers.mark_all(result, stream, code)
        return result

    def _follow_schedule(self, stream: Stream, module=None) -> None:
        """Do what the schedule says about counting and detail, at a moment when nothing is open."""
        if self.schedule.count and self.schedule.counting != self.counter.active:
            if self.counter.active:
                self.counter.stop(stream)
            elif module is not None:
                held = [*module.parameters(), *module.buffers()]
                self.counter.start(stream, [*held, *(tensor.grad for tensor in held if tensor.grad is not None)])
        if self.schedule.detail != self.recorder.detail:
            self.recorder.set_detail(self.schedule.detail)

    # ---- backward and optimizer -------------------------------------------------------------------------------

    def _backward(self, original):
        code = self.phases.codes["backward"]

        def wrapper(*args, **kwargs):
            stream = self._stream()
            if stream is None:
                return original(*args, **kwargs)
            self.schedule.backward()
            outer = self.layers.begin_backward(stream)
            # Layers that called for a gradient in their forward are not the ones whose backward runs.
            calling, stream.layers = stream.layers, []
            try:
                if _inside(stream, code):
                    return original(*args, **kwargs)
                with self.phase(stream, code):
                    try:
                        return original(*args, **kwargs)
                    finally:
                        self.layers.end_backward(stream, 0)
            finally:
                self.layers.end_backward(stream, outer)
                stream.layers = calling

        return wrapper

    def _number(self, thing) -> int:
        """Optimizers and loaders by the order in which they were first seen."""
        number = self._numbers.get(thing)
        if number is None:
            number = self._numbers[thing] = next(self._next_number)
        return number

    def _step_code(self, optimizer, scaled: bool = False) -> int:
        key = (self._number(optimizer), scaled)
        code = self._step_codes.get(key)
        if code is None:
            code = self.recorder.define(kind="phase", name="optimizer", optimizer=key[0], scaled=scaled)
            self._step_codes[key] = code
        return code

    def _step_begins(self, optimizer, _args, _kwargs) -> None:
        stream = self._stream()
        # Inside a GradScaler's step the scaler's phase speaks for both.
        if stream is not None and not _inside(stream, self._step_code(optimizer, scaled=True)):
            self._open(stream, self._step_code(optimizer))

    def _step_ends(self, optimizer, _args, _kwargs) -> None:
        stream = self._stream()
        code = self._step_code(optimizer)
        if stream is not None and _inside(stream, code):
            self._close(stream, code)
            self._stepped(stream, optimizer)

    def _stepped(self, stream: Stream, optimizer) -> None:
        self.schedule.stepped(self._number(optimizer), now(), self.recorder.written)
        if not stream.phases:
            self._follow_schedule(stream)

    def _scaler_step(self, original):
        def wrapper(scaler, optimizer, *args, **kwargs):
            stream = self._stream()
            if stream is None:
                return original(scaler, optimizer, *args, **kwargs)
            with self.phase(stream, self._step_code(optimizer, scaled=True)):
                result = original(scaler, optimizer, *args, **kwargs)
            # A scaler that found infinities leaves the optimizer out; the program's step is over all the same.
            self._stepped(stream, optimizer)
            return result

        return wrapper

    # ---- data -------------------------------------------------------------------------------------------------

    def _loader_iter(self, original):
        def wrapper(loader):
            stream = self._stream()
            if stream is None:
                return original(loader)
            code = self.recorder.define(
                kind="phase", name="data", loader=self._number(loader), iterator=next(self._next_iterator)
            )
            with self.phase(stream, code):
                iterator = original(loader)
            self._fetching[iterator] = code
            return iterator

        return wrapper

    def _loader_next(self, original):
        def wrapper(iterator):
            stream = self._stream()
            if stream is None or stream.phases:
                return original(iterator)
            self.schedule.fetched()
            self._follow_schedule(stream)
            code = self._fetching.get(iterator) or self.recorder.define(kind="phase", name="data")
            with self.phase(stream, code):
                return original(iterator)

        return wrapper

    def _transfer(self, original):
        code = self.phases.codes["transfer"]

        def wrapper(tensor, *args, **kwargs):
            stream = self._stream()
            if stream is None or stream.layers or stream.phases:
                return original(tensor, *args, **kwargs)
            begin = now()
            result = original(tensor, *args, **kwargs)
            if result.device != tensor.device:
                stream.push((code, begin, code + 1, now()))
            return result

        return wrapper


def _inside(stream: Stream, code: int) -> bool:
    return any(opened == code for opened, _, _ in stream.phases)


def _is_loss(torch, module) -> bool:
    return isinstance(module, torch.nn.modules.loss._Loss) or type(module).__name__.endswith("Loss")


def _shape(torch, args: tuple, kwargs: dict) -> tuple:
    """The shapes of the tensors handed to a module, however nested: what decides how much it computes."""
    found: list = []

    def walk(value) -> None:
        if isinstance(value, torch.Tensor):
            found.append(tuple(value.shape))
        elif isinstance(value, (list, tuple)):
            for item in value:
                walk(item)
        elif isinstance(value, dict):
            for item in value.values():
                walk(item)

    walk(args)
    walk(kwargs)
    return tuple(found)
