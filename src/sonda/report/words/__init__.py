"""Words: the only place where findings become sentences."""

from sonda.report.words.describe import describe

__all__ = ["describe"]
