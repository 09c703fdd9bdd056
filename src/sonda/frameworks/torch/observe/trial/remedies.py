"""One remedy, applied from outside to a program that knows nothing of it.

Each does what its patch would do, so that what is measured is what the patch brings.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

MANY = 4
"""A loader's data must fill so many of the larger batches."""


def apply_at_import(torch: Any, remedy: str, value: Any) -> None:
    """What takes effect for the whole process, before the program's own code runs."""
    if remedy == "threads":
        torch.set_num_threads(int(value))
        torch.set_num_threads = _swallow(torch.set_num_threads)
    elif remedy == "tf32":
        torch.set_float32_matmul_precision("high")
        torch.set_float32_matmul_precision = _swallow(torch.set_float32_matmul_precision)


def _swallow(original: Any) -> Callable[..., None]:
    def ignore(*_args: Any, **_kwargs: Any) -> None:
        """The program's own choice stands back for a try."""

    ignore.__name__ = original.__name__
    return ignore


def loader_settings(signature: inspect.Signature, remedy: str, value: Any, args: tuple, kwargs: dict) -> dict:
    """What a DataLoader is made with in place of what the program gave: keywords by name; {} for no change."""
    given = signature.bind_partial(None, *args, **kwargs).arguments
    if remedy == "workers" and (given.get("num_workers") or 0) < int(value):
        return {"num_workers": int(value), "persistent_workers": True}
    if remedy == "pin" and not given.get("pin_memory"):
        return {"pin_memory": True}
    if remedy == "batch":
        size = given.get("batch_size", 1)
        dataset: Any = given.get("dataset")
        length = len(dataset) if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__") else 0
        if size and given.get("batch_sampler") is None and length >= MANY * int(value) * size:
            return {"batch_size": int(value) * size}
    return {}


def optimizer_settings(known: Any, remedy: str, given: dict) -> dict:
    """Keywords that an optimizer is made with beside the program's own; `known` are those that its class has."""
    if remedy not in ("fused", "foreach") or remedy not in known or given.get(remedy):
        return {}
    return {"fused": True, "foreach": None} if remedy == "fused" else {"foreach": True}


def prepare_model(torch: Any, remedy: str, module: Any) -> None:
    """Change an outermost module before its first call."""
    if remedy == "channels_last":
        module.to(memory_format=torch.channels_last)
    elif remedy == "compile":
        module.compile()


def around_call(torch: Any, remedy: str, module: Any) -> Any:
    """A context for every call of an outermost module."""
    if remedy != "autocast":
        return contextlib.nullcontext()
    device = next((weight.device.type for weight in module.parameters()), "cpu")
    return torch.autocast(device, torch.bfloat16)


def finish_result(torch: Any, remedy: str, result: Any) -> Any:
    """What the program gets: the loss is computed in float32."""
    short = remedy == "autocast" and isinstance(result, torch.Tensor) and result.is_floating_point()
    return result.float() if short else result
