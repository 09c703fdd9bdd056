"""The cost of recording, measured in the observed process when it ends.

Nothing of the program is called: none of its hooks or modules, and no random number generator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...collector.overhead import time_repeated
from ...collector.recorder import Recorder, Stream
from ...collector.sampling.schedule import Schedule
from .layers import LayerRecorder
from .observer import TorchObserver

LAYERS = 8
"""Number of layers in a row whose backward is timed."""
BACKWARDS = 10
"""Number of backwards in one try."""


def recording_costs(torch: Any, counting: Any = None, learns: bool = True) -> dict:
    """Processor time of recording, ns, on this machine, now.

    `span_ns` for a layer's forward, `mark_ns` for its backward where the program `learns`, `phase_ns` for a phase,
    `forward_ns` for the phase of a forward without its layer. `counting` are the counters read for every layer.
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
    """Processor time of recording one layer's forward, ns: the difference of a call with and without it."""
    recorded, module, stream, _ = _make_recorded_call(torch, counting, _bare)
    plain = time_repeated(lambda: _bare(module, None), stream)
    return max(time_repeated(lambda: recorded(module, None), stream) - plain, 0.0)


def mark_cost(torch: Any, counting: Any = None) -> float:
    """Processor time of marking a layer's output and of the mark in backward, ns, measured likewise."""

    def negative(_module: Any, *args: Any, **_kwargs: Any) -> Any:
        return args[0].neg()

    recorded, module, stream, layers = _make_recorded_call(torch, counting, negative)
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


def _make_recorded_call(torch: Any, counting: Any, original: Callable) -> tuple[Callable, Any, Stream, LayerRecorder]:
    """A call that is recorded inside of another layer, with the module, the stream and the recorder of layers."""
    recorder = Recorder("")
    layers = LayerRecorder(recorder, torch)
    layers.counting = counting
    module = torch.nn.Identity()
    stream = recorder.stream()
    stream.layers.append(layers.define_root(module))
    return layers.wrap(original, original), module, stream, layers


def _bare(_module: Any, *args: Any, **_kwargs: Any) -> Any:
    return args[0]
