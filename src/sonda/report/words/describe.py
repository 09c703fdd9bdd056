"""Words for findings: one function for each kind, found by the class of the finding."""

from __future__ import annotations

from functools import singledispatch

from sonda.analysis.findings import Finding, Remark


@singledispatch
def describe(finding: Finding) -> str:
    """The finding in a sentence or several. Each kind registers its own function: `@describe.register`."""
    raise TypeError(f"no words for findings of the kind {type(finding).__name__}")


@describe.register
def _(finding: Remark) -> str:
    return finding.text
