"""Sonda: where the time, the energy and the cycles of a neural network go, and why."""

from sonda.version import VERSION as __version__

__all__ = ["__version__"]
