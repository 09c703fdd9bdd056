"""Summaries hold findings and, where analysis still writes sentences, text."""

from __future__ import annotations

from sonda.analysis.findings import Finding
from sonda.report.words.describe import describe


def in_words(found: Finding | str) -> str:
    """A finding in words; a text as it is."""
    return found if isinstance(found, str) else describe(found)
