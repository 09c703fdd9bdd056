"""What modules are given and return, looked at without anybody noticing."""

from __future__ import annotations

from typing import Any


def tensors_in(torch: Any, value: Any) -> list:
    """The tensors in a value, through lists, tuples, dictionaries and dataclasses."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        items = value
    elif isinstance(value, dict):
        items = list(dict.values(value))
    elif hasattr(type(value), "__dataclass_fields__"):
        items = list(vars(value).values()) if hasattr(value, "__dict__") else []
    else:
        return []
    return [tensor for item in items for tensor in tensors_in(torch, item)]


def shapes_of(torch: Any, args: tuple, kwargs: dict) -> tuple:
    """The shapes of the tensors handed to a module, however nested: what decides how much it computes."""
    if len(args) == 1 and not kwargs and type(args[0]) is torch.Tensor:
        return (tuple(args[0].shape),)
    with torch._C.DisableTorchFunctionSubclass():  # a subclass must not see us look
        return tuple(tuple(tensor.shape) for tensor in tensors_in(torch, (args, kwargs)))


def has_graph(torch: Any, result: Any) -> bool:
    """Whether a backward can follow from a module's result; also where that cannot be seen."""
    if type(result) is torch.Tensor:
        return bool(result.requires_grad)
    tensors = tensors_in(torch, result)
    with torch._C.DisableTorchFunctionSubclass():
        return not tensors or any(tensor.requires_grad for tensor in tensors)


def is_loss(torch: Any, module: Any) -> bool:
    """Whether a module computes a loss: one of PyTorch's own, or one that is named so."""
    return isinstance(module, torch.nn.modules.loss._Loss) or type(module).__name__.endswith("Loss")
