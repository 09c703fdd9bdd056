"""Words for findings: one function for each kind, found by the class of the finding."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from sonda.analysis.findings import Finding, Remark


@singledispatch
def describe(finding: Finding) -> str:
    """The finding in a sentence or several. Each kind registers its own function: `@describe.register`."""
    raise TypeError(f"no words for findings of the kind {type(finding).__name__}")


def in_plain_words(document: Any) -> Any:
    """Plain values in which findings may stand, with words in their places."""
    if isinstance(document, Finding):
        return describe(document)
    if isinstance(document, dict):
        return {key: in_plain_words(value) for key, value in document.items()}
    return [in_plain_words(value) for value in document] if isinstance(document, list) else document


@describe.register
def _(finding: Remark) -> str:
    return finding.text
