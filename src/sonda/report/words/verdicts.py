"""Words for verdicts in their order, and for lists of findings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sonda.analysis.findings import Finding
from sonda.analysis.summary import Summary
from sonda.record.target import ImportedTarget
from sonda.report.words.describe import describe


def verdict_sentences(summary: Summary) -> list[str]:
    """A sentence for each verdict, in order. Of a step's verdicts those after the first begin with "Then"; what is said
    of a step after what is said of the whole program begins with "In a step". Those of an imported trace speak each of
    something else: a device, ranks, a profile."""
    # Whoever has a summary has loaded all rules.
    from sonda.analysis.rules.code_findings import CodeCause, CodeTakes
    from sonda.analysis.rules.limit_findings import OfProgram

    sentences: list[str] = []
    of_program = bool(summary.verdicts) and isinstance(summary.verdicts[0].finding, OfProgram)
    for position, verdict in enumerate(summary.verdicts):
        sentence = describe(verdict.finding)
        if position and not isinstance(summary.target, ImportedTarget):
            lead = "In a step: " if of_program and position == 1 else "Then "
            begins_with_file = isinstance(verdict.finding, CodeTakes | CodeCause)
            begin = sentence[:1] if begins_with_file else sentence[:1].lower()
            sentence = f"{lead}{begin}{sentence[1:]}"
        sentences.append(sentence)
    return sentences


def brief_doubts(doubts: Iterable[Finding], part: str = "") -> list[str]:
    """Each doubt in a few words, those of `part`, the run's first, before those of others."""
    # Whoever has doubts has loaded their kinds.
    from sonda.report.words.brief import brief_doubts

    return brief_doubts(doubts, part)


def word_findings(document: Any) -> Any:
    """A document of plain values in which every finding is replaced by its sentence."""
    if isinstance(document, Finding):
        return describe(document)
    if isinstance(document, dict):
        return {key: word_findings(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [word_findings(value) for value in document]
    return document


def in_words(findings: Iterable[Finding]) -> list[str]:
    """Findings as sentences, each sentence once."""
    return list(dict.fromkeys(map(describe, findings)))
