"""A mapping by identity that calls nothing of its keys and keeps none of them alive."""

from __future__ import annotations

import weakref
from typing import Any


class IdentityMap:
    """Maps objects to values by identity, whatever their equality. An entry disappears with its object."""

    def __init__(self) -> None:
        self._values: dict = {}
        self._guards: dict = {}
        self.changes = 0
        """Number of times that an entry was added, changed or removed."""

    def get(self, thing: Any, default: Any = None) -> Any:
        return self._values.get(id(thing), default)

    def set(self, thing: Any, value: Any) -> None:
        key = id(thing)
        self._guards[key] = weakref.ref(thing, lambda _: self._forget(key))
        self._values[key] = value
        self.changes += 1

    def values(self) -> list:
        return list(self._values.values())

    def _forget(self, key: int) -> None:
        self._values.pop(key, None)
        self._guards.pop(key, None)
        self.changes += 1
