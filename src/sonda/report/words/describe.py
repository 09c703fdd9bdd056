"""Words for findings: one function for each kind, found by the class of the finding."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, singledispatch
from importlib import import_module
from typing import TypeVar

from sonda.analysis.findings import Finding, Remark

SUBJECTS = (
    "causes", "comparison", "corun", "counters", "device", "doubts", "energy", "limits", "operations", "own_code",
    "ranks", "remedies", "serving", "simulated", "studies", "traces",
)  # fmt: skip
"""Modules of this folder with the words of their findings. They are loaded when the first finding is described: a
screen without findings does without what they need."""
Words = TypeVar("Words", bound=Callable[..., str])


@singledispatch
def _describe(finding: Finding) -> str:
    raise TypeError(f"no words for findings of the kind {type(finding).__name__}")


@cache
def _load_subjects() -> None:
    for subject in SUBJECTS:
        import_module(f"sonda.report.words.{subject}")


class _Describe:
    """The finding in a sentence or several. Each kind registers its own function: `@describe.register`."""

    def __call__(self, finding: Finding) -> str:
        _load_subjects()
        return _describe(finding)

    def has_words(self, kind: type[Finding]) -> bool:
        """Whether findings of this kind can be described."""
        _load_subjects()
        return _describe.dispatch(kind) is not _describe.dispatch(object)

    def register(self, words: Words) -> Words:
        _describe.register(words)
        return words


describe = _Describe()


@describe.register
def _(finding: Remark) -> str:
    return finding.text
