"""Sonda: where the time, the energy and the cycles of a neural network go, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonda.version import VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from sonda.api import (
        Explored,
        Profile,
        compare,
        corun,
        data,
        explore,
        import_trace,
        load,
        profile,
        region,
        run,
        try_program,
    )
    from sonda.record.errors import SondaError
    from sonda.record.store import Store

__all__ = [
    "Explored", "Profile", "SondaError", "Store", "__version__", "compare", "corun", "data", "explore",
    "import_trace", "load", "profile", "region", "run", "try_program",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # Importing sonda costs nothing until something of it is used.
    if name == "SondaError":
        from sonda.record.errors import SondaError

        return SondaError
    if name in __all__:
        import sonda.api

        return getattr(sonda.api, name)
    raise AttributeError(f"module 'sonda' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
