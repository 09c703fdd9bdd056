"""Data sets for training studies: prepared from the user's images, or drawn. They need NumPy only.

>>> import sonda
>>> data = sonda.data.prepare("fish", "fish-prepared", image=(197, 148))       # doctest: +SKIP
>>> train, validation, test = data.split((0.85, 0.02, 0.13), seed=0)           # doctest: +SKIP
>>> for images, labels in sonda.data.batches(data, train, 128): ...            # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sonda.workloads.data.drawn_fish import make_fish
    from sonda.workloads.data.preparation import prepare
    from sonda.workloads.data.prepared import Prepared, batches, epoch_order, load
    from sonda.workloads.data.splits import split

__all__ = ["Prepared", "batches", "epoch_order", "load", "make_fish", "prepare", "split"]

_MODULES = {
    "Prepared": "prepared", "batches": "prepared", "epoch_order": "prepared", "load": "prepared",
    "make_fish": "drawn_fish", "prepare": "preparation", "split": "splits",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    # NumPy is imported when something is used.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
