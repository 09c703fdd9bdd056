"""Inspects the inputs and results of modules without any effect on the program."""

from __future__ import annotations

from functools import partial
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

MOST_ITEMS = 100_000
"""Most objects inspected in a module's inputs or result: a larger structure is a data set, not an input."""

MOST_NAMES = 1000
"""Most objects inspected among those that a function uses."""


def tensors_in(torch: Any, value: Any) -> list:
    """The tensors in a value, in order, through lists, tuples, dictionaries and dataclasses; each of these once."""
    if isinstance(value, torch.Tensor):
        return [value]
    tensors: list = []
    waiting, seen, left = [value], set(), MOST_ITEMS
    while waiting and left:
        left -= 1
        thing = waiting.pop()
        if isinstance(thing, torch.Tensor):
            tensors.append(thing)
            continue
        if isinstance(thing, (tuple, list)):
            items = list(thing)
        elif isinstance(thing, dict):
            items = list(dict.values(thing))
        elif hasattr(type(thing), "__dataclass_fields__") and hasattr(thing, "__dict__"):
            items = list(vars(thing).values())
        else:
            continue
        if id(thing) not in seen:
            seen.add(id(thing))
            waiting.extend(reversed(items))
    return tensors


def modules_in(torch: Any, things: tuple) -> list:
    """The modules that functions use: in their closures, global names and arguments, and in the objects found there.

    The nearest are inspected first. No attribute of an object is read: a proxy might create its target, or raise.
    """
    modules: list = []
    waiting = list(things)
    seen: set = set()
    for thing in waiting:  # grows during the loop
        if len(seen) >= MOST_NAMES:
            break
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        kind = type(thing)
        if issubclass(kind, torch.nn.Module):
            modules.append(thing)
        elif not issubclass(kind, (torch.Tensor, ModuleType, type)):
            waiting.extend(_references_of(thing, kind))
    return modules


def _references_of(thing: Any, kind: type) -> list:
    """The objects that a container, a function or another object refers to."""
    if issubclass(kind, (tuple, list)):
        return list(thing[:MOST_NAMES])
    if issubclass(kind, dict):
        return list(dict.values(thing))[:MOST_NAMES]
    if issubclass(kind, partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if issubclass(kind, MethodType):
        return [thing.__func__, thing.__self__]
    if not issubclass(kind, FunctionType):
        return _attributes_of(thing, kind)
    attributes = vars(thing)
    used = [attributes[name] for name in ("_torchdynamo_orig_callable", "__wrapped__") if name in attributes]
    for cell in thing.__closure__ or ():
        try:
            used.append(cell.cell_contents)
        except ValueError:  # still empty
            continue
    if not str(thing.__module__).startswith("torch."):
        names = thing.__code__.co_names
        used.extend(thing.__globals__[name] for name in names if name in thing.__globals__)
    return used


def _attributes_of(thing: Any, kind: type) -> list:
    """The values of an object's own attributes, where it has an ordinary `__dict__`."""
    slot = next((vars(owner)["__dict__"] for owner in kind.__mro__ if "__dict__" in vars(owner)), None)
    if not isinstance(slot, (GetSetDescriptorType, MemberDescriptorType)):  # none, or one defined by the class
        return []
    attributes = slot.__get__(thing)
    return list(attributes.values())[:MOST_NAMES] if type(attributes) is dict else []


def input_shapes(torch: Any, args: tuple, kwargs: dict) -> tuple:
    """The shapes of all tensors in a module's inputs, nested ones too: they decide how much it computes."""
    if len(args) == 1 and not kwargs and type(args[0]) is torch.Tensor and not args[0].is_nested:
        return (tuple(args[0].shape),)
    with torch._C.DisableTorchFunctionSubclass():  # subclasses must not see the access
        return tuple(_shape(tensor) for tensor in tensors_in(torch, (args, kwargs)))


def _shape(tensor: Any) -> tuple:
    """A tensor's sizes; () where it has none, or where they are symbols."""
    try:
        shape = tuple(tensor.shape)
    except Exception:  # nested tensors
        return ()
    return shape if all(type(size) is int for size in shape) else ()


def has_graph(torch: Any, result: Any) -> bool:
    """Whether a backward can follow from a module's result; True where its tensors cannot be found."""
    if type(result) is torch.Tensor:
        return bool(result.requires_grad)
    tensors = tensors_in(torch, result)
    with torch._C.DisableTorchFunctionSubclass():
        return not tensors or any(tensor.requires_grad for tensor in tensors)


def is_loss_class(torch: Any, module: Any) -> bool:
    """Whether a module only computes a loss: a loss of PyTorch, or a class named so that trains no network.

    A loss may contain a network to compare with, which is not trained then.
    """
    if isinstance(module, torch.nn.modules.loss._Loss):
        return True
    if not type(module).__name__.endswith("Loss"):
        return False
    return not any(weight.requires_grad for part in module.children() for weight in part.parameters())


class Losses:
    """Distinguishes losses from forwards among the calls of outermost modules."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._known: dict = {}
        """Whether a module is a loss, by its code; None where every call has to be checked."""

    def is_loss(self, code: int, module: Any, args: tuple, kwargs: dict) -> bool:
        """Whether this call computes a loss. A class that also trains a network computes one where its input requires
        gradients."""
        torch = self._torch
        loss = self._known.get(code, code)
        if loss is code:
            loss = is_loss_class(torch, module)
            loss = self._known[code] = None if not loss and type(module).__name__.endswith("Loss") else loss
        if loss is None:
            with torch._C.DisableTorchFunctionSubclass():
                loss = any(tensor.requires_grad for tensor in tensors_in(torch, (args, kwargs)))
        return loss


def token_sequence(torch: Any, args: tuple, kwargs: dict) -> int:
    """The shape of a module's token input as one number; 0 where it has none.

    Tokens are the first integer matrix among the inputs. The length is in the lower 31 bits, the rows in the 31 above.
    """
    with torch._C.DisableTorchFunctionSubclass():
        for tensor in tensors_in(torch, (args, kwargs)):
            if tensor.dtype in (torch.int64, torch.int32) and len(shape := _shape(tensor)) == 2:
                return shape[0] << 31 | shape[1]
    return 0


def input_address(torch: Any, args: tuple, kwargs: dict) -> int:
    """The memory address of a module's first input tensor; 0 where it has none, or none with memory."""
    first = next((value for value in (*args, *kwargs.values()) if type(value) is torch.Tensor), None)
    try:
        return int(first.data_ptr()) if first is not None else 0
    except RuntimeError:  # a batched tensor, as under `vmap`
        return 0
