"""Runs operations inside of a dispatch mode with the kernel, and in the state, in which they run without one.

A composite operation has a kernel that calls other operations ("CompositeImplicitAutograd"). It reaches a mode whole
where autograd does not take it apart first: under inference_mode, and where no argument is known to autograd. It is
taken apart here by the very kernel that the dispatcher would run. An operation that has a kernel of its own for the
backend of its arguments stays whole, though it may have a composite kernel for other backends too.

PyTorch calls a mode with everything switched off that comes before it: autograd, autocast, lazy conjugation. The
kernel of an operation may call others, for which only autograd is off where no mode is on; the rest is switched on
again.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from .values import tensors_in

WHOLE = ("CompositeExplicitAutogradNonFunctional", "CompositeExplicitAutograd")
"""Kernels for every backend that has none of its own, which the dispatcher prefers to composite ones."""
COMPOSITE = ("CompositeImplicitAutogradNestedTensor", "CompositeImplicitAutograd")
CASTING = tuple(f"Autocast{device}" for device in ("CPU", "CUDA", "XPU", "MPS", "HPU", "IPU", "XLA", "MTIA", "MAIA",
                                                   "PrivateUse1"))  # fmt: skip
LAZY = ("Conjugate", "Negative", "ZeroTensor")


class Kernels:
    """Asks the dispatcher, and remembers what it said for as long as this object lives."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._native = torch._C
        self._composites: dict[Any, bool] = {}
        self._aliases: dict[tuple, Any] = {}
        self._switched: dict[Any, Any] = {}

    def composite_of(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """The composite kernel that the dispatcher runs for this call; None where it runs another, or cannot be asked.

        To be asked inside of a mode's `__torch_dispatch__`.
        """
        try:
            composite = self._composites.get(func)
            if composite is None:
                composite = self._composites[func] = self._may_be_composite(func)
            if not composite:
                return None
            keys = self._keys(args, kwargs)
            place = (func, keys.raw_repr())
            if place not in self._aliases:
                self._aliases[place] = self._alias(func.name(), keys)
            return self._aliases[place]
        except Exception:  # PyTorch's names for this have changed before
            return None

    def run_whole(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """What the operation returns, run as one."""
        with ExitStack() as around:
            try:
                exclude = self._excluded(func)
                around.enter_context(
                    self._native._ForceDispatchKeyGuard(self._native._dispatch_tls_local_include_set(), exclude)
                )
            except Exception:  # no operation of the dispatcher's, or another PyTorch: as modes usually do
                pass
            return func(*args, **kwargs)

    def take_apart(self, mode: Any, composite: Any, func: Any, args: tuple, kwargs: dict) -> Any:
        """What the operation returns, run by its composite kernel; `mode` sees the operations that the kernel calls."""
        native = self._native
        with ExitStack() as around:
            try:
                exclude = self._excluded(func) - native.DispatchKeySet(native._dispatch_key_parse("PythonTLSSnapshot"))
            except Exception:  # as above
                exclude = None
            around.enter_context(mode)
            if exclude is not None:
                include = native._dispatch_tls_local_include_set()
                # So that each operation within is met in the state in which it was called, not in that of this one.
                around.enter_context(native._RestorePythonTLSSnapshot())
                around.enter_context(native._ForceDispatchKeyGuard(include, exclude))
            return func._op_dk(composite, *args, **kwargs)

    def _may_be_composite(self, func: Any) -> bool:
        is_registered = self._native._dispatch_has_kernel_for_dispatch_key
        return isinstance(func, self._torch._ops.OpOverload) and any(
            is_registered(func.name(), alias) for alias in COMPOSITE
        )

    def _keys(self, args: tuple, kwargs: dict) -> Any:
        """The set of dispatch keys that the dispatcher makes of these arguments, below the mode."""
        native = self._native
        keys = native._dispatch_tls_local_include_set()
        for tensor in tensors_in(self._torch, (args, kwargs)):
            keys = keys | native._dispatch_keys(tensor)
        return keys - native._dispatch_tls_local_exclude_set()

    def _alias(self, name: str, keys: Any) -> Any:
        select = self._native._dispatch_key_parse("BackendSelect")
        if not self._native._dispatch_has_kernel_for_dispatch_key(name, select):
            keys = keys.remove(select)
        return composite_kernel(self._native, name, keys.highestPriorityTypeId())

    def _excluded(self, func: Any) -> Any:
        """The keys that are off for what this operation's kernel calls."""
        native = self._native
        switched = self._switched.get(func)
        if switched is None:
            switched = self._switched[func] = self._switched_on(func.name())
        with native._RestorePythonTLSSnapshot():
            before = native._dispatch_tls_local_exclude_set()
        return native._dispatch_tls_local_exclude_set() - (switched - before)

    def _switched_on(self, name: str) -> Any:
        """The keys that are to be on again, if they were on when the operation was called.

        Where autocast casts the arguments of this operation it did so before, and is off within.
        """
        native = self._native
        keys = native.DispatchKeySet(native._dispatch_key_parse(LAZY[0]))
        for word in (*LAZY, *CASTING):
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
    for word in WHOLE:
        if (nothing or covers(key, parse(word))) and is_registered(name, word):
            return None
    for word in COMPOSITE:
        alias = parse(word)
        if (covers(key, alias) or (nothing and word == COMPOSITE[-1])) and is_registered(name, word):
            return alias
    return None
