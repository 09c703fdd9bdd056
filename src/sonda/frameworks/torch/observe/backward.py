"""The backward of a PyTorch program, as a phase: `loss.backward()` and `torch.autograd.grad` both end here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .optimizers import is_open

if TYPE_CHECKING:
    from .observer import TorchObserver


def wrap_backward(observer: TorchObserver, original: Any) -> Any:
    """A recorded `torch.autograd.backward` or `grad`. Inside of another backward it is a part of that one."""
    code = observer.phases.codes["backward"]
    layers, optimizers, counter = observer.layers, observer.optimizers, observer.counter

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        stream = observer.current_stream(engine=True)
        if stream is None:
            return original(*args, **kwargs)
        if stream.phases:
            optimizers.close_abandoned(stream)
        if stream.updating:
            optimizers.end_update(stream)
        if not stream.engine:
            stream.schedule.begin_backward()
        outer, stream.backward = stream.backward, 0
        # A layer that computes a gradient in its forward is not the layer whose backward runs.
        calling, stream.layers = stream.layers, []
        hooks = counter.backward_begins(args, kwargs) if counter.active else ()
        inspection = counter.inspection if counter.stream is stream else None
        if inspection is not None:
            inspection.backward_begins()
        opens = not stream.engine and not (stream.phases and is_open(stream, code))
        if opens:
            observer.open(stream, code)
        try:
            return original(*args, **kwargs)
        finally:
            layers.end_backward(stream, outer)
            if inspection is not None:
                inspection.backward_ended()
            if opens:
                observer.close(stream, code)
                if not optimizers.stepped:
                    optimizers.backward_ended(stream)
            for hook in hooks:
                hook.remove()
            stream.layers = calling

    return wrapper
