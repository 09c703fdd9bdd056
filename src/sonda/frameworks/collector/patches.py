"""Replacing functions of a framework by ones that are watched, and putting them back."""

from __future__ import annotations

from typing import Any


class PatchingObserver:
    """An observer that stands before functions of others while it is `on`."""

    def __init__(self) -> None:
        self.on = False
        self._undo: list = []

    def remove(self) -> None:
        """Put back what was replaced, the last first."""
        self.on = False
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def replace(self, owner: Any, name: str, make: Any) -> None:
        """Put `make(original)` in the place of an attribute, which from outside looks the same."""
        inherited = name not in vars(owner)
        original = getattr(owner, name)
        wrapper = make(original)
        for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
            setattr(wrapper, attribute, getattr(original, attribute, None))
        wrapper.__wrapped__ = original
        wrapper.autograph_info__ = {}  # TensorFlow leaves such a function as it is
        setattr(owner, name, wrapper)
        self._undo.append(lambda: delattr(owner, name) if inherited else setattr(owner, name, original))
