"""Layers of a PyTorch program: when each module's forward and backward ran.

Forward: a wrapped `Module.__call__`. Backward: a pre-hook on the autograd node that made a module's output tells when
backward reaches the module. The engine runs the nodes of one device in one sequence, so a layer's backward lasts until
the next mark. A mark on a module's *input* node gives what lies between two modules to the module around them. The
hooks return nothing and look at nothing, so gradients are what they would have been.
"""

from __future__ import annotations

import weakref
from _thread import get_ident
from time import perf_counter_ns as now

from .recorder import Recorder, Stream

MOST_MARKS = 200_000
"""Node numbers kept to avoid marking a node twice; forgotten beyond this, as in a long evaluation with gradients on."""


class Layers:
    """Defines modules as layers, and records their forward and backward."""

    def __init__(self, recorder: Recorder, torch) -> None:
        self.recorder = recorder
        self.torch = torch
        self.codes: dict = {}
        """Code of a module's forward, by the module's identity."""
        self.backward_codes: dict = {}
        self._guards: dict = {}
        self._marks: dict = {}
        self._roots = 0

    # ---- defining ---------------------------------------------------------------------------------------------

    def define_root(self, module) -> int:
        """Define an outermost module and all that it lists."""
        self._roots += 1
        name = type(module).__name__
        for path, child in module.named_modules(remove_duplicate=False):
            self._define(child, path=path, root=self._roots, root_name=name)
        return self.codes[id(module)]

    def define_unlisted(self, module, inside: int) -> int:
        """Define a module that its caller does not list: made on the way, or kept in a plain list."""
        return self._define(module, path=type(module).__name__, inside=inside // 2)

    def _define(self, module, **place) -> int:
        key = id(module)
        code = self.codes.get(key)
        if code is None:
            layer = {"kind": "layer", "name": type(module).__name__, **place}
            code = self.recorder.define(**layer, direction="forward")
            self.backward_codes[code] = self.recorder.define(**layer, direction="backward")
            # An identity may be used again once its module is gone; the weak reference also keeps it from staying.
            self._guards[key] = weakref.ref(module, lambda _: self._forget(key))
            self.codes[key] = code
        return code

    def _forget(self, key: int) -> None:
        self.codes.pop(key, None)
        self._guards.pop(key, None)

    def clear(self) -> None:
        self.codes.clear()
        self._guards.clear()

    # ---- forward ----------------------------------------------------------------------------------------------

    def wrap(self, original, outermost):
        """`Module.__call__` that records; `outermost(module, args, kwargs)` handles a module no other module called."""
        codes = self.codes
        streams = self.recorder.streams
        grad_enabled = self.torch.is_grad_enabled
        tensor_type = self.torch.Tensor
        layers = self

        def __call__(self, *args, **kwargs):  # noqa: N807
            stream = streams.get(get_ident())
            if stream is None or not stream.layers:
                return outermost(self, args, kwargs)
            if not stream.detail:
                return original(self, *args, **kwargs)
            code = codes.get(id(self))
            if code is None:
                code = layers.define_unlisted(self, stream.layers[-1])
            learns = grad_enabled()
            if learns and args and type(args[0]) is tensor_type and args[0].grad_fn is not None:
                layers.mark(args[0], stream, stream.layers[-1])
            stack = stream.layers
            stack.append(code)
            stream.push((code, now()))
            try:
                result = original(self, *args, **kwargs)
            finally:
                stream.push((code + 1, now()))
                stack.pop()
            if learns:
                if type(result) is tensor_type:
                    if result.grad_fn is not None:
                        layers.mark(result, stream, code)
                else:
                    layers.mark_all(result, stream, code)
            return result

        return __call__

    # ---- backward ---------------------------------------------------------------------------------------------

    def mark(self, tensor, stream: Stream, code: int) -> None:
        """Have backward announce layer `code` when it reaches the node that made this tensor."""
        node = tensor.grad_fn
        number = node._sequence_nr()
        if number in stream.hooked:
            return
        if len(stream.hooked) > MOST_MARKS:
            stream.hooked.clear()
        stream.hooked.add(number)
        mark = self._marks.get(code)
        if mark is None:
            mark = self._marks[code] = self._make_mark(self.backward_codes[code])
        node.register_prehook(mark)

    def mark_all(self, result, stream: Stream, code: int) -> None:
        """Mark every tensor in a module's result."""
        if isinstance(result, self.torch.Tensor):
            if result.grad_fn is not None:
                self.mark(result, stream, code)
        elif isinstance(result, (tuple, list)):
            for item in result:
                self.mark_all(item, stream, code)
        elif isinstance(result, dict):
            for item in result.values():
                self.mark_all(item, stream, code)

    def _make_mark(self, code: int):
        recorder = self.recorder
        streams = recorder.streams

        def mark(_gradients) -> None:
            stream = streams.get(get_ident())
            if stream is None:
                stream = recorder.stream(engine=True)
            if not stream.detail or not (stream.phases or stream.engine):
                return
            time = now()
            if stream.backward:
                stream.push((stream.backward + 1, time, code, time))
            else:
                stream.push((code, time))
            stream.backward = code

        return mark

    def begin_backward(self, stream: Stream) -> int:
        """Returns what `end_backward` needs to go on with an outer backward."""
        outer, stream.backward = stream.backward, 0
        return outer

    def end_backward(self, stream: Stream, outer: int) -> None:
        time = now()
        for other in list(self.recorder.streams.values()):
            if (other is stream or other.engine) and other.backward:
                other.push((other.backward + 1, time))
                other.backward = 0
        stream.backward = outer
        if not outer:
            stream.hooked.clear()
