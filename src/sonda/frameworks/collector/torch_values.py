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


def is_loss_class(torch: Any, module: Any) -> bool:
    """Whether a module computes a loss and no more: one of PyTorch's own, or one named so that holds no network.

    What a loss compares with may be a network, which is not trained then.
    """
    if isinstance(module, torch.nn.modules.loss._Loss):
        return True
    if not type(module).__name__.endswith("Loss"):
        return False
    return not any(weight.requires_grad for part in module.children() for weight in part.parameters())


class Losses:
    """Tells losses from forwards among the calls of outermost modules."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._known: dict = {}
        """By the code of a module whether it is a loss; None where that is to be asked of every call."""

    def is_loss(self, code: int, module: Any, args: tuple, kwargs: dict) -> bool:
        """Whether this call computes a loss: a class that holds a network too does where it is given what one made."""
        torch = self._torch
        loss = self._known.get(code, code)
        if loss is code:
            loss = is_loss_class(torch, module)
            loss = self._known[code] = None if not loss and type(module).__name__.endswith("Loss") else loss
        if loss is None:
            loss = any(tensor.requires_grad for tensor in tensors_in(torch, (args, kwargs)))
        return loss


def sequence_of(torch: Any, args: tuple, kwargs: dict) -> int:
    """The rows and the length of the tokens that a module is given, as one number; 0 where it is given none.

    Tokens are the first matrix of integers. The length is in the lower 31 bits, the rows in the 31 above.
    """
    with torch._C.DisableTorchFunctionSubclass():
        for tensor in tensors_in(torch, (args, kwargs)):
            if tensor.dim() == 2 and tensor.dtype in (torch.int64, torch.int32):
                rows, length = tensor.shape
                return int(rows) << 31 | int(length)
    return 0
