"""Words: the only place where findings become sentences."""

from sonda.report.words import comparison, corun, counters, device, energy, ranks, serving, simulated, traces
from sonda.report.words.describe import describe, in_plain_words
from sonda.report.words.transition import in_words

__all__ = [
    "comparison",
    "corun",
    "counters",
    "describe",
    "device",
    "energy",
    "in_plain_words",
    "in_words",
    "ranks",
    "serving",
    "simulated",
    "traces",
]
