"""What recording costs, measured in the process that was observed, when it ends."""

from __future__ import annotations

from time import perf_counter_ns as now
from typing import Any

from .call_cost import CALLS, TRIES
from .recorder import Recorder
from .schedule import Schedule
from .torch_layers import Layers
from .torch_observer import TorchObserver


def layer_cost(torch: Any, counting: Any = None) -> float:
    """What recording one layer's forward costs, ns: a call with and without, on this machine, now.

    `counting` are the counters that were read for every layer.
    """
    recorder = Recorder("")
    layers = Layers(recorder, torch)
    layers.counting = counting
    module = torch.nn.Identity()
    stream = recorder.stream()
    stream.layers.append(layers.define_root(module))

    def bare(_module: Any, *args: Any, **_kwargs: Any) -> Any:
        return args[0]

    recorded = layers.wrap(bare, bare)
    return _added(bare, recorded, module, stream)


def phase_cost(torch: Any) -> float:
    """What recording one phase costs, ns: the call of an outermost module with and without, less its layer's span."""
    module = torch.nn.Identity()

    def bare(_module: Any, *args: Any, **_kwargs: Any) -> Any:
        return args[0]

    observer = TorchObserver(Recorder(""), torch, Schedule(count=False))
    observer._module_call = bare
    observer.on = True
    stream = observer.recorder.stream()

    def recorded(module: Any, value: Any) -> Any:
        return observer._outermost(module, (value,), {})

    return max(0.0, _added(bare, recorded, module, stream) - layer_cost(torch))


def _added(bare: Any, recorded: Any, module: Any, stream: Any) -> float:
    """ns that a recorded call takes more than a bare one, of the fastest tries of both."""
    best = [1 << 62, 1 << 62]
    for _ in range(TRIES):
        for which, function in enumerate((bare, recorded)):
            begin = now()
            for _ in range(CALLS):
                function(module, None)
            best[which] = min(best[which], now() - begin)
            stream.events.clear()
            stream.counts.clear()
    return (best[1] - best[0]) / CALLS
