"""Runs operations inside of a dispatch mode with the same kernel and the same state as without a mode.

A composite operation has a kernel that calls other operations ("CompositeImplicitAutograd"). Usually autograd
decomposes it before a mode sees it. Under inference_mode, and where no argument is known to autograd, it reaches the
mode whole. Here it is decomposed by the very kernel that the dispatcher would run. An operation with a kernel for the
backend of its arguments stays whole, even where it has a composite kernel for other backends.

PyTorch calls a mode with everything switched off that comes before it: autograd, autocast, lazy conjugation. The kernel
of an operation may call others. Without a mode only autograd is off for those, so the rest is switched on again.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from ..values import tensors_in

EXPLICIT = ("CompositeExplicitAutogradNonFunctional", "CompositeExplicitAutograd")
"""Aliases of kernels for every backend without its own kernel. The dispatcher prefers them to implicit composites."""
IMPLICIT = ("CompositeImplicitAutogradNestedTensor", "CompositeImplicitAutograd")
AUTOCAST = tuple(f"Autocast{device}" for device in ("CPU", "CUDA", "XPU", "MPS", "HPU", "IPU", "XLA", "MTIA", "MAIA",
                                                   "PrivateUse1"))  # fmt: skip
NUMBERS = frozenset({int, float, bool, type(None)})
LAZY = ("Conjugate", "Negative", "ZeroTensor")


class OperatorKernels:
    """Finds out which kernels the dispatcher would run, and runs them. Answers are cached for this object's life."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._native = torch._C
        self._tensors = (torch.Tensor, torch.nn.Parameter)
        self._composites: dict[Any, bool] = {}
        self._aliases: dict[tuple, Any] = {}
        self._restored: dict[Any, Any] = {}

    def find_composite(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """The alias of the composite kernel that the dispatcher would run for this call; None for any other kernel.

        To be called inside of a mode's `__torch_dispatch__`.
        """
        try:
            composite = self._composites.get(func)
            if composite is None:
                composite = self._composites[func] = self._may_be_composite(func)
            if not composite:
                return None
            keys = self._keys(args, kwargs)
            key = (func, keys.raw_repr())
            if key not in self._aliases:
                self._aliases[key] = self._find_alias(func.name(), keys)
            return self._aliases[key]
        except Exception:  # PyTorch's names for this have changed before
            return None

    def run_whole(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """Run the operation as a whole, and return its result."""
        if self._is_plain(args) and self._is_plain(kwargs.values()) and not self._is_cast():
            return func(*args, **kwargs)
        with ExitStack() as around:
            try:
                exclude = self._excluded_keys(func)
                around.enter_context(
                    self._native._ForceDispatchKeyGuard(self._native._dispatch_tls_local_include_set(), exclude)
                )
            except Exception:  # not an operation of the dispatcher, or another PyTorch: run it as modes usually do
                pass
            return func(*args, **kwargs)

    def _is_cast(self) -> bool:
        """Whether the program called the operation under autocast, which is off inside of a mode."""
        try:
            with self._native._RestorePythonTLSSnapshot():
                return bool(self._native._is_any_autocast_enabled())
        except Exception:  # another PyTorch
            return True

    def _is_plain(self, values: Iterable[Any]) -> bool:
        """Whether these are tensors and numbers for which nothing that comes before the mode has anything to do, apart
        from autograd and autocast: no complex numbers, whose signs are changed late, and no zeros without memory."""
        for value in values:
            kind = type(value)
            if kind in self._tensors:
                if value.is_complex() or value.is_neg() or value._is_zerotensor():
                    return False
            elif kind not in NUMBERS:
                return False
        return True

    def run_composite(self, mode: Any, composite: Any, func: Any, args: tuple, kwargs: dict) -> Any:
        """Run the operation by its composite kernel, and return its result. `mode` sees the operations it calls."""
        native = self._native
        with ExitStack() as around:
            try:
                exclude = self._excluded_keys(func) - native.DispatchKeySet(
                    native._dispatch_key_parse("PythonTLSSnapshot")
                )
            except Exception:  # as above
                exclude = None
            around.enter_context(mode)
            if exclude is not None:
                include = native._dispatch_tls_local_include_set()
                # So that each inner operation is seen in the state in which it was called, not in that of this one.
                around.enter_context(native._RestorePythonTLSSnapshot())
                around.enter_context(native._ForceDispatchKeyGuard(include, exclude))
            return func._op_dk(composite, *args, **kwargs)

    def _may_be_composite(self, func: Any) -> bool:
        is_registered = self._native._dispatch_has_kernel_for_dispatch_key
        return isinstance(func, self._torch._ops.OpOverload) and any(
            is_registered(func.name(), alias) for alias in IMPLICIT
        )

    def _keys(self, args: tuple, kwargs: dict) -> Any:
        """The dispatch key set of these arguments, below the mode."""
        native = self._native
        keys = native._dispatch_tls_local_include_set()
        for tensor in tensors_in(self._torch, (args, kwargs)):
            keys = keys | native._dispatch_keys(tensor)
        return keys - native._dispatch_tls_local_exclude_set()

    def _find_alias(self, name: str, keys: Any) -> Any:
        select = self._native._dispatch_key_parse("BackendSelect")
        if not self._native._dispatch_has_kernel_for_dispatch_key(name, select):
            keys = keys.remove(select)
        return composite_kernel(self._native, name, keys.highestPriorityTypeId())

    def _excluded_keys(self, func: Any) -> Any:
        """The dispatch keys to exclude while this operation's kernel runs."""
        native = self._native
        restored = self._restored.get(func)
        if restored is None:
            restored = self._restored[func] = self._keys_to_restore(func.name())
        with native._RestorePythonTLSSnapshot():
            before = native._dispatch_tls_local_exclude_set()
        return native._dispatch_tls_local_exclude_set() - (restored - before)

    def _keys_to_restore(self, name: str) -> Any:
        """The keys to switch on again, if they were on when the operation was called.

        Autocast is not among them where it casts the arguments of this operation: then it is off inside of it.
        """
        native = self._native
        keys = native.DispatchKeySet(native._dispatch_key_parse(LAZY[0]))
        for word in (*LAZY, *AUTOCAST):
            try:
                key = native._dispatch_key_parse(word)
            except Exception:  # a device that this PyTorch does not know
                continue
            if word in LAZY or not native._dispatch_has_kernel_for_dispatch_key(name, key):
                keys = keys.add(key)
        return keys


def composite_kernel(native: Any, name: str, key: Any) -> Any:
    """The alias of the composite kernel that the dispatcher runs for `name` at a backend's key; None for any other.

    The order is that of `OperatorEntry::computeDispatchTableEntryWithDebug` in PyTorch's sources.
    """
    is_registered, covers = native._dispatch_has_kernel_for_dispatch_key, native._dispatch_is_included_in_alias
    parse = native._dispatch_key_parse
    nothing = key == parse("Undefined")
    if is_registered(name, key):
        return None
    for word in EXPLICIT:
        if (nothing or covers(key, parse(word))) and is_registered(name, word):
            return None
    for word in IMPLICIT:
        alias = parse(word)
        if (covers(key, alias) or (nothing and word == IMPLICIT[-1])) and is_registered(name, word):
            return alias
    return None
