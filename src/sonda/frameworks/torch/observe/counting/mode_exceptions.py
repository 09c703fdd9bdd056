"""Hides the counting mode from the code of PyTorch that computes differently when a mode is on.

Some functions check for a mode (`isTensorSubclassLike` in PyTorch's sources) and then skip a short cut. That does no
harm where both ways give the same bits. Where they do not, the function runs without the mode and is counted from
outside, as one operation: the nodes of autograd in NODES, and the operations in OPERATIONS. Forward-mode automatic
differentiation checks in many of its formulas (norms and products), so all of it runs without the mode.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns as now
from typing import TYPE_CHECKING, Any

from ..formulas.call import OperationCall
from ..formulas.cost import AUTOGRAD
from ..values import tensors_in

if TYPE_CHECKING:
    from ..observer import TorchObserver

FORWARD_MODE = f"{AUTOGRAD}.forward_mode"
"""The name that stands for all operations of a level of forward mode."""
Condition = Callable[[Any, Any, tuple, dict], bool]
"""Takes PyTorch, an operation and its arguments."""

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
"""Nodes of autograd, by name, with what they do differently under a mode. `test_bits_operations.py` finds them."""


def _always(torch: Any, func: Any, args: tuple, kwargs: dict) -> bool:
    return True


def _is_cast(torch: Any, func: Any, args: tuple, kwargs: dict) -> bool:
    """Whether autocast casts the operation's arguments, and so is off in everything that the operation calls.

    A mode sees only the inner calls, with the state in which the outer operation was called, where autocast is on.
    """
    return any(
        torch.is_autocast_enabled(device)
        and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), f"Autocast{device.upper()}")
        for device in {tensor.device.type for tensor in tensors_in(torch, (args, kwargs))}
    )


def _weighs_smoothed_labels(torch: Any, func: Any, args: tuple, kwargs: dict) -> bool:
    """Whether a cross entropy has smoothed labels and a weighted mean: PyTorch sums its weights differently then."""
    call = OperationCall("cross_entropy_loss", args, kwargs, None)
    mean = call.arg(3, "reduction", 1) == 1
    return mean and call.arg(2, "weight") is not None and call.arg(5, "label_smoothing", 0.0) > 0


OPERATIONS: dict[str, Condition] = {
    # Under a mode they compute the vectors too, by another algorithm.
    "linalg_eigvals": _always,
    "linalg_eigvalsh": _always,
    "linalg_svdvals": _always,
    # Their kernels call operations that autocast would cast.
    "pinverse": _is_cast,
    "bilinear": _is_cast,
    # Under a mode it sums weights and zeros in place of the weights alone.
    "cross_entropy_loss": _weighs_smoothed_labels,
}
"""Composite operations, with the condition under which they run without the mode."""


class ModeHider:
    """Hooks nodes for the time of one backward, and replaces kernels while the mode is on."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._native = torch._C
        self._library: Any = None
        self._kernels: dict[str, Any] = {}
        self._hidden: tuple = ()
        """The mode hidden during forward mode, and since when, ns."""

    def begin(self) -> None:
        """Let the operations above run without the mode from now on, where it is the only mode."""
        self.end()
        try:
            # Not `torch.library.Library`, which takes ten times as long; this runs for every phase.
            self._library = self._native._dispatch_library("IMPL", "aten", "", __file__, 0)
            for name, condition in OPERATIONS.items():
                if name not in self._kernels:
                    self._kernels[name] = self._make_kernel(getattr(self._torch.ops.aten, name).default, condition)
                # The key that modes switch on, and the first that the dispatcher looks at.
                self._library.impl(name, "PythonTLSSnapshot", self._kernels[name], True)
        except Exception:  # an operation that this PyTorch does not have
            pass

    def end(self) -> None:
        library, self._library = self._library, None
        if library is not None:
            library.reset()

    def begin_forward_mode(self) -> None:
        """Hide the mode: a level of forward mode has begun. It is recorded as one operation."""
        mode = None if self._hidden else self.pop_mode()
        if mode is not None:
            self._hidden = mode, now()

    def end_forward_mode(self) -> None:
        """Show the mode again, and record the level; also called where the mode is about to end."""
        if self._hidden:
            (mode, begin), self._hidden = self._hidden, ()
            self._native._push_on_torch_dispatch_stack(mode)
            mode.counter.record_operation(FORWARD_MODE, (), {}, (), begin, now())

    def hook_nodes(self, roots: Any) -> list:
        """Hook the nodes of `NODES` in the graph of `roots`, to hide the mode from them. Returns the handles to remove.

        Roots are one tensor or edge of the graph, or several.
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
        return [handle for node in hidden for handle in self._hook_node(node)]

    def _hook_node(self, node: Any) -> list:
        hidden: list = []

        def before(gradients: Any) -> None:
            mode = self.pop_mode()
            if mode is not None:
                hidden.append((mode, now()))

        def after(results: Any, gradients: Any) -> None:
            if hidden:
                mode, begin = hidden.pop()
                self._native._push_on_torch_dispatch_stack(mode)
                mode.counter.record_operation(f"{AUTOGRAD}.{node.name()}", gradients, {}, results, begin, now())

        return [node.register_prehook(before), node.register_hook(after)]

    def pop_mode(self) -> Any:
        """Pop the counting mode from this thread's stack of modes; None where it is not the only one."""
        native = self._native
        if native._len_torch_dispatch_stack() != 1:
            return None
        mode = native._get_dispatch_stack_at(0)
        if getattr(mode, "mode_hider", None) is not self:
            return None
        return native._pop_torch_dispatch_stack(None)

    def _make_kernel(self, func: Any, condition: Condition) -> Any:
        native = self._native
        snapshot, python = (native._dispatch_key_parse(word) for word in ("PythonTLSSnapshot", "Python"))

        def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
            begin = now()
            mode = self.pop_mode() if condition(self._torch, func, args, kwargs) else None
            if mode is None:
                below = keys.remove(snapshot)
                if below.highestPriorityTypeId() == python:
                    # Modes would decompose it.
                    return func._op_dk(native.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
                return func.redispatch(below, *args, **kwargs)
            try:
                out = func(*args, **kwargs)
            finally:
                native._push_on_torch_dispatch_stack(mode)
            mode.counter.record_operation(func, args, kwargs, out, begin, now())
            return out

        return kernel


def step_aside_for_inference_mode(observer: TorchObserver) -> None:
    """Wrap `torch.inference_mode` so that the mode is off when it is entered and when it is left.

    Leaving it restores which keys the dispatcher looked at when it was entered: a mode that was on then and has ended
    since would be asked for, and every operation would fail.
    """
    hider = observer.counter.mode_hider

    def wrap(original: Any) -> Any:
        def wrapper(context: Any, *failure: Any) -> Any:
            mode = hider.pop_mode()
            try:
                return original(context, *failure)
            finally:
                if mode is not None:
                    observer.torch._C._push_on_torch_dispatch_stack(mode)

        return wrapper

    for name in ("__enter__", "__exit__"):
        observer.replace(observer.torch.inference_mode, name, wrap)


def hide_in_forward_mode(observer: TorchObserver) -> None:
    """Wrap forward mode's levels so that the mode is hidden in them, `torch.func.jvp` included."""

    def wrap_enter(original: Any) -> Any:
        def wrapper(level: Any) -> Any:
            result = original(level)
            observer.counter.mode_hider.begin_forward_mode()
            return result

        return wrapper

    def wrap_exit(original: Any) -> Any:
        def wrapper(level: Any, *failure: Any) -> Any:
            result = original(level, *failure)
            if not in_forward_mode(observer.torch):
                observer.counter.mode_hider.end_forward_mode()
            return result

        return wrapper

    level = observer.torch.autograd.forward_ad.dual_level
    observer.replace(level, "__enter__", wrap_enter)
    observer.replace(level, "__exit__", wrap_exit)


def in_forward_mode(torch: Any) -> bool:
    return bool(getattr(torch.autograd.forward_ad, "_current_level", -1) >= 0)
