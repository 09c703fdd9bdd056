"""Replaces functions of a framework by observed ones, and puts the originals back."""

from __future__ import annotations

from typing import Any


class PatchingObserver:
    """An observer that replaces functions of a framework. It observes while it is `on`."""

    def __init__(self) -> None:
        self.on = False
        self._undo: list = []

    def remove(self) -> None:
        """Put the originals back, the last one replaced first."""
        self.on = False
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def replace(self, owner: Any, name: str, make: Any) -> None:
        """Replace an attribute by `make(original)`, with the name, docstring and module of the original."""
        inherited = name not in vars(owner)
        original = getattr(owner, name)
        wrapper = make(original)
        for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
            setattr(wrapper, attribute, getattr(original, attribute, None))
        wrapper.__wrapped__ = original
        wrapper.autograph_info__ = {}  # TensorFlow leaves such a function as it is
        setattr(owner, name, wrapper)
        self._undo.append(lambda: delattr(owner, name) if inherited else setattr(owner, name, original))
