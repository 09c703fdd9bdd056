"""Hides the counting mode from the code of PyTorch that computes in another way when a mode is on.

Some functions ask whether a mode is on (`isTensorSubclassLike` in PyTorch's sources), and then leave out a short cut.
Where that gives the same bits it does no harm. Where it does not, the function runs without the mode and is counted
from outside, as one operation: the nodes of autograd in NODES, and the operations in OPERATIONS. Forward-mode automatic
differentiation asks in many of its formulas (of norms and products): it runs without the mode as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns as now
from typing import TYPE_CHECKING, Any

from .formulas.call import Call
from .formulas.cost import AUTOGRAD
from .values import tensors_in

if TYPE_CHECKING:
    from .observer import TorchObserver

FORWARD_MODE = f"{AUTOGRAD}.forward_mode"
"""What stands for all operations of a level of forward mode."""
Condition = Callable[[Any, Any, tuple, dict], bool]
"""Of PyTorch, an operation, and what it is called with."""

NODES = {
    "MaskedFillBackward1": "sums where(mask, gradient, 0) in place of masked_select(gradient, mask)",
    "ProdBackward0": "multiplies all other elements in place of dividing the product by each",
    "ProdBackward1": "as above",
    "CumprodBackward0": "adds products where a short cut divides; the bits differ on GPUs",
    "OrmqrBackward0": "gradients lie in memory in another order",
    "LinalgEigBackward0": "does not refuse a loss that depends on the phase of the eigenvectors",
    "LinalgEighBackward0": "as above",
    "LinalgSvdBackward0": "as above",
}
"""Nodes of autograd, by name, with what they do otherwise under a mode. `test_bits_operations.py` finds them."""


def _always(torch: Any, func: Any, args: tuple, kwargs: dict) -> bool:
    return True


def _is_cast(torch: Any, func: Any, args: tuple, kwargs: dict) -> bool:
    """Whether autocast casts what the operation is given, and so is off in all that the operation calls.

    A mode meets only what it calls, and is told the state in which the whole was called, in which autocast is on.
    """
    return any(
        torch.is_autocast_enabled(device)
        and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), f"Autocast{device.upper()}")
        for device in {tensor.device.type for tensor in tensors_in(torch, (args, kwargs))}
    )


def _weighs_smoothed_labels(torch: Any, func: Any, args: tuple, kwargs: dict) -> bool:
    """The mean of a cross entropy with smoothed labels is divided by the weights of the labels that are not ignored."""
    call = Call("cross_entropy_loss", args, kwargs, None)
    mean = call.arg(3, "reduction", 1) == 1
    return mean and call.arg(2, "weight") is not None and call.arg(5, "label_smoothing", 0.0) > 0


OPERATIONS: dict[str, Condition] = {
    # Compute the vectors too, by another algorithm.
    "linalg_eigvals": _always,
    "linalg_eigvalsh": _always,
    "linalg_svdvals": _always,
    # Call kernels that call operations which autocast would cast.
    "pinverse": _is_cast,
    "bilinear": _is_cast,
    # Sums weights and zeros in place of the weights alone.
    "cross_entropy_loss": _weighs_smoothed_labels,
}
"""Composite operations, with when they are to run without the mode."""


class Hiding:
    """Hooks on nodes for the time of one backward, and kernels for the time that the mode is on."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._native = torch._C
        self._library: Any = None
        self._kernels: dict[str, Any] = {}
        self._hidden: tuple = ()
        """The mode that a level of forward mode hides, and since when, ns."""

    def begin(self) -> None:
        """From now on the operations above run without the mode, while it is the only one."""
        self.end()
        try:
            # Not `torch.library.Library`, which takes ten times as long, and this is done for every phase.
            self._library = self._native._dispatch_library("IMPL", "aten", "", __file__, 0)
            for name, condition in OPERATIONS.items():
                if name not in self._kernels:
                    self._kernels[name] = self._kernel(getattr(self._torch.ops.aten, name).default, condition)
                # The key that modes switch on, and the first that the dispatcher looks at.
                self._library.impl(name, "PythonTLSSnapshot", self._kernels[name], True)
        except Exception:  # an operation that this PyTorch does not have
            pass

    def end(self) -> None:
        library, self._library = self._library, None
        if library is not None:
            library.reset()

    def level_begins(self) -> None:
        """A level of forward mode has begun: what is computed in it is not seen, but for that it is."""
        mode = None if self._hidden else self._take_mode()
        if mode is not None:
            self._hidden = mode, now()

    def level_ends(self) -> None:
        """Also where the mode is about to end."""
        if self._hidden:
            (mode, begin), self._hidden = self._hidden, ()
            self._native._push_on_torch_dispatch_stack(mode)
            mode.counter.seen(FORWARD_MODE, (), {}, (), begin, now())

    def hook(self, roots: Any) -> list:
        """Hide the mode from the nodes above, among those that lead to `roots`; returns the handles that undo it.

        Roots are one tensor or one edge of the graph, or several.
        """
        several = isinstance(roots, (list, tuple)) and not hasattr(roots, "node")
        with self._native.DisableTorchFunctionSubclass():
            nodes = [getattr(root, "node", None) or root.grad_fn for root in (roots if several else [roots])]
        known = {node for node in nodes if node is not None}
        waiting = list(known)
        hidden = []
        while waiting:
            node = waiting.pop()
            if node.name() in NODES:
                hidden.append(node)
            for following, _ in node.next_functions:
                if following is not None and following not in known:
                    known.add(following)
                    waiting.append(following)
        return [handle for node in hidden for handle in self._hooks_on(node)]

    def _hooks_on(self, node: Any) -> list:
        hidden: list = []

        def before(gradients: Any) -> None:
            mode = self._take_mode()
            if mode is not None:
                hidden.append((mode, now()))

        def after(results: Any, gradients: Any) -> None:
            if hidden:
                mode, begin = hidden.pop()
                self._native._push_on_torch_dispatch_stack(mode)
                mode.counter.seen(f"{AUTOGRAD}.{node.name()}", gradients, {}, results, begin, now())

        return [node.register_prehook(before), node.register_hook(after)]

    def _take_mode(self) -> Any:
        """The counting mode, taken off this thread's modes; None where it is not the only one."""
        native = self._native
        if native._len_torch_dispatch_stack() != 1:
            return None
        mode = native._get_dispatch_stack_at(0)
        if getattr(mode, "hiding", None) is not self:
            return None
        return native._pop_torch_dispatch_stack(None)

    def _kernel(self, func: Any, condition: Condition) -> Any:
        native = self._native
        snapshot, python = (native._dispatch_key_parse(word) for word in ("PythonTLSSnapshot", "Python"))

        def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
            begin = now()
            mode = self._take_mode() if condition(self._torch, func, args, kwargs) else None
            if mode is None:
                below = keys.remove(snapshot)
                if below.highestPriorityTypeId() == python:
                    # Modes would take it apart.
                    return func._op_dk(native.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
                return func.redispatch(below, *args, **kwargs)
            try:
                out = func(*args, **kwargs)
            finally:
                native._push_on_torch_dispatch_stack(mode)
            mode.counter.seen(func, args, kwargs, out, begin, now())
            return out

        return kernel


def hide_in_forward_mode(observer: TorchObserver) -> None:
    """Have the mode hidden in every level of forward mode, `torch.func.jvp` included."""

    def wrap_enter(original: Any) -> Any:
        def wrapper(level: Any) -> Any:
            result = original(level)
            observer.counter.hiding.level_begins()
            return result

        return wrapper

    def wrap_exit(original: Any) -> Any:
        def wrapper(level: Any, *failure: Any) -> Any:
            result = original(level, *failure)
            if not in_forward_mode(observer.torch):
                observer.counter.hiding.level_ends()
            return result

        return wrapper

    level = observer.torch.autograd.forward_ad.dual_level
    observer.replace(level, "__enter__", wrap_enter)
    observer.replace(level, "__exit__", wrap_exit)


def in_forward_mode(torch: Any) -> bool:
    return bool(getattr(torch.autograd.forward_ad, "_current_level", -1) >= 0)
