"""What recording costs, measured in the process that was observed, when it ends.

Nothing of the program is called: no hook of its own, no module of its own, no generator of random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...collector.overhead import time_repeated
from ...collector.recorder import Recorder, Stream
from ...collector.sampling.schedule import Schedule
from .layers import Layers
from .observer import TorchObserver

LAYERS = 8
"""Layers in a row whose backward is timed."""
BACKWARDS = 10
"""How often, in one try."""


def recording_costs(torch: Any, counting: Any = None, learns: bool = True) -> dict:
    """ns of the processor's time, on this machine, now: `span_ns` of a layer's forward, `mark_ns` of its backward where
    the program `learns`, `phase_ns` of a phase, `forward_ns` of the phase that is a forward, without its layer.

    `counting` are the counters that were read for every layer.
    """
    module = torch.nn.Identity()
    observer = TorchObserver(Recorder(""), torch, Schedule(count=False))
    observer.on = True
    stream = observer.recorder.stream()
    code = observer.phases.codes["backward"]

    def phase() -> None:
        observer.open(stream, code)
        observer.close(stream, code)

    def forward() -> None:
        observer.call_outermost(_bare, module, (None,), {})

    plain = time_repeated(lambda: _bare(module, None), stream)
    span = layer_cost(torch, counting)
    whole = time_repeated(forward, stream) - plain
    return {
        "span_ns": span,
        **({"mark_ns": mark_cost(torch, counting)} if learns else {}),
        "phase_ns": time_repeated(phase, stream),
        "forward_ns": max(whole - (span if counting is None else layer_cost(torch)), 0.0),
    }


def layer_cost(torch: Any, counting: Any = None) -> float:
    """ns of the processor's time that recording one layer's forward costs: a call with and without."""
    recorded, module, stream, _ = _layer(torch, counting, _bare)
    plain = time_repeated(lambda: _bare(module, None), stream)
    return max(time_repeated(lambda: recorded(module, None), stream) - plain, 0.0)


def mark_cost(torch: Any, counting: Any = None) -> float:
    """The same of marking what a layer made, and of the mark in the backward: both with and without."""

    def negative(_module: Any, *args: Any, **_kwargs: Any) -> Any:
        return args[0].neg()

    recorded, module, stream, layers = _layer(torch, counting, negative)
    stream.phases.append((0, None))
    with torch.inference_mode(False), torch.enable_grad():
        leaf = torch.zeros(1, dtype=torch.float32, device="cpu", requires_grad=True)
        ones = (torch.ones(1, dtype=torch.float32, device="cpu"),)
        backward = torch.autograd.Variable._execution_engine.run_backward

        def learn(call: Callable) -> None:
            value = leaf
            for _ in range(LAYERS):
                value = call(module, value)
            outer, stream.backward = stream.backward, 0
            backward((value,), ones, False, False, (), True, True)
            layers.end_backward(stream, outer)

        plain, marked = (
            time_repeated(lambda call=call: learn(call), stream, BACKWARDS)  # type: ignore[misc]
            for call in (negative, recorded)
        )
    return max((marked - plain) / LAYERS - layer_cost(torch, counting), 0.0)


def _layer(torch: Any, counting: Any, original: Callable) -> tuple[Callable, Any, Stream, Layers]:
    """A call that is recorded inside another layer, and what it is called with."""
    recorder = Recorder("")
    layers = Layers(recorder, torch)
    layers.counting = counting
    module = torch.nn.Identity()
    stream = recorder.stream()
    stream.layers.append(layers.define_root(module))
    return layers.wrap(original, original), module, stream, layers


def _bare(_module: Any, *args: Any, **_kwargs: Any) -> Any:
    return args[0]
