"""The costs of calls that were seen before: a step of many small operations repeats few kinds of calls.

A formula takes some tens of µs. What it gives follows from the operation, its arguments that are no tensors, and of its
tensors the sizes, strides and types and which of them share memory. Calls that agree in these have one `CallKind`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ....collector.sampling.detail import GOLDEN

MOST_KINDS = 20_000
"""Kinds that are kept. A program that passes another number in every call has as many kinds as calls."""
PLAIN = frozenset({int, float, bool, str, type(None)})
"""Types of arguments that equal others only where they mean the same to a formula."""


class CallKind(NamedTuple):
    """What is known of all calls of one kind."""

    code: int
    """Of the operation, to record it."""
    name: str
    flops: int | None
    bytes: int | None
    family: str
    """With `bits`, `strided` and `random` as `describe_group` gives them."""
    bits: int
    strided: int
    random: bool
    mapped: int = 0
    """B of results that are too large for the C library to keep."""
    operations: int = 1
    """How many it stands for: a recurrent layer that is one call does its time steps one after the other."""


class CallCosts:
    """Gives the kind of a call; `describe` makes that of a call which was not seen before."""

    def __init__(self, torch: Any, describe: Callable[[Any, tuple, dict, Any], CallKind]) -> None:
        self._describe = describe
        self._tensors = (torch.Tensor, torch.nn.Parameter)
        self._values = PLAIN | {torch.dtype, torch.device, torch.layout, torch.memory_format}
        self._kinds: dict = {}

    def find(self, func: Any, args: tuple, kwargs: dict, out: Any) -> CallKind:
        """The kind of a call that returned `out`."""
        try:
            key: list = [func]
            storages: dict = {}
            self._add(key, storages, args)
            if kwargs:
                key.append(tuple(kwargs))
                self._add(key, storages, tuple(kwargs.values()))
            self._add(key, storages, (out,))
            identity = tuple(key)
            kind = self._kinds.get(identity)
        except Exception:  # tensors of libraries, sparse and nested ones, and values that have no hash
            return self._describe(func, args, kwargs, out)
        if kind is None:
            kind = self._describe(func, args, kwargs, out)
            if len(self._kinds) < MOST_KINDS:
                self._kinds[identity] = kind
        return kind

    def _add(self, key: list, storages: dict, values: Any) -> None:
        """Add what identifies these values to `key`; raises where nothing does."""
        tensors, plain = self._tensors, self._values
        for value in values:
            kind = type(value)
            if kind in tensors:
                offset = value.storage_offset()
                # Tensors share memory where they have one storage, at places relative to each other.
                first = storages.setdefault(value.untyped_storage()._cdata, (len(key), offset))
                key.append((value.shape, value.stride(), value.dtype, value.device, first[0], offset - first[1]))
            elif kind in plain:
                key.append(kind)
                key.append(value)
            elif kind is list or kind is tuple:
                key.append(len(value))
                self._add(key, storages, value)
            else:
                raise TypeError


class Place:
    """Calls of one kind at one place: in one phase and layer, by one line."""

    __slots__ = ("func", "group", "kind", "number")

    def __init__(self, number: int, func: Any, kind: CallKind, group: list) -> None:
        self.number = number
        self.func = func
        """Held, so that no other operation gets its identity."""
        self.kind = kind
        self.group = group
        """The sums of `OperationGroups` for this place."""


class CallSequence:
    """Foretells the places of calls in a step of very many: a loop calls one operation after the other as before.

    From `EXAMINED` calls on, a call is taken for the one that followed the same call before, and not looked at. One in
    `CHECKED_ONE_IN` is looked at all the same; where more than `MOST_WRONG` of these differ, all are looked at again.
    """

    EXAMINED = 2_000
    CHECKED_ONE_IN = 16
    MOST_WRONG = 0.01

    def __init__(self) -> None:
        self.calls = self.foretold = self.checked = self.wrong = 0
        self._places: dict = {}
        self._following: dict = {}
        self._last = -1
        self._key: tuple = ()
        self._guess: Place | None = None
        self._turn = 0.0
        self._checking = False

    def foretell(self, func: Any, phase: int, layer: int) -> Place | None:
        """Where the call that follows the last one is; None where it has to be looked at: `note` follows then."""
        self.calls += 1
        self._key = self._last, id(func), phase, layer
        self._guess = self._following.get(self._key)
        if self._guess is None or self.calls <= self.EXAMINED or self.wrong > 1 + self.MOST_WRONG * self.checked:
            return None
        self._turn = (self._turn + GOLDEN) % 1
        if self._turn * self.CHECKED_ONE_IN < 1:
            self.checked += 1
            self._checking = True
            return None
        self.foretold += 1
        self._last = self._guess.number
        return self._guess

    def note(self, func: Any, kind: CallKind, group: list) -> None:
        """The call that was not foretold is of this kind and in this group."""
        identity = kind.code, id(group)  # groups live as long as the step's inspection, and so as long as this
        place = self._places.get(identity)
        if place is None:
            place = self._places[identity] = Place(len(self._places), func, kind, group)
        if self._checking:
            self._checking = False
            self.wrong += self._guess is not place
        self._following[self._key] = place
        self._last = place.number
