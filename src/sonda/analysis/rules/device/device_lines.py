"""Lines of a program that speak with its GPU: what they are known from, and the time that they take."""

from __future__ import annotations

from collections.abc import Container
from pathlib import PurePath

from sonda.analysis.code.summary import BESIDE, OUTSIDE, WORKERS, CodeLine
from sonda.analysis.rules.code.own_code import code_of
from sonda.analysis.rules.operations.evidence import evidence_of
from sonda.analysis.summary import CausePlace, Summary

ASK, TO_DEVICE, TO_HOST = "ask", "to_device", "to_host"
"""Families of operations in the evidence of a step."""
NOT_STEPPING = (BESIDE, WORKERS, OUTSIDE)


def count_at_lines(summary: Summary, *families: str) -> dict[str, int]:
    """How many operations of these families a step calls, by line (`train.py:41`)."""
    evidence = evidence_of(summary)
    counts: dict[str, int] = {}
    for timed in evidence.groups if evidence is not None else ():
        group = timed.group
        if group.family in families and group.line:
            counts[group.line] = counts.get(group.line, 0) + group.operations
    return counts


def find_lines(summary: Summary, lines: Container[str], *names: str) -> list[CodeLine]:
    """The sampled expressions in these lines, and those that call something by one of these names; most time first."""
    code = code_of(summary)
    known = [
        line
        for region in (code.regions if code is not None else ())
        if region.name not in NOT_STEPPING
        for line in region.lines
        if name_line(line) in lines or line.text.partition("(")[0].rpartition(".")[2] in names
    ]
    return sorted(known, key=lambda line: -line.time.total)


def name_line(line: CodeLine) -> str:
    """As the evidence names it, where the file lies in the program's folder."""
    return f"{PurePath(line.place.file).name}:{line.place.line}"


def add_shares(lines: list[CodeLine]) -> float:
    """Part of the step that these take together, 0 to 1."""
    return min(sum(line.share.value or 0.0 for line in lines), 1.0)


def place_of(lines: list[CodeLine], counts: dict[str, int]) -> CausePlace:
    """The line that takes most; where nothing was sampled, the one that is called most often."""
    if lines:
        spent: dict[str, float] = {}
        for line in lines:
            spent[name_line(line)] = spent.get(name_line(line), 0.0) + line.time.total
        longest = max(spent, key=lambda name: spent[name])
        first = next(line for line in lines if name_line(line) == longest)
        return CausePlace(first.place.file, first.place.line, first.place.function, first.text)
    if counts:
        file, _, number = max(counts, key=lambda name: counts[name]).rpartition(":")
        return CausePlace(file, int(number) if number.isdigit() else 0)
    return CausePlace()
