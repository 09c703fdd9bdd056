"""A comparison as annotations of a change: lines that GitHub Actions shows at the change, and beside lines of code.

The rules of workflow commands: `%`, carriage returns and line feeds are escaped, in properties colons and commas too
(docs.github.com, "Workflow commands for GitHub Actions").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sonda.analysis.code.summary import OTHER, CodeLine, CodeSummary
from sonda.analysis.comparison.kernels import KernelComparison
from sonda.analysis.comparison.limit import SLOWER, UNCLEAR
from sonda.analysis.comparison.summary import ComparedRow, Comparison, PartComparison
from sonda.analysis.summary import Value
from sonda.record.errors import SondaError, nearest
from sonda.report import quantities
from sonda.report.views.compare.kernels import slowdown_words
from sonda.report.views.compare.tables import changed_layers, limit_words, repetitions_of, verdict_words
from sonda.report.words import describe
from sonda.report.words.names import layer_label

FORMATS = ("github",)
MOST_ROWS = 5
"""Phases, and layers, that are named."""
MARKED = 0.1
"""Of the time that the step takes longer, from which on the line of a phase is marked."""
Level = Literal["error", "warning", "notice"]


@dataclass(frozen=True)
class Annotation:
    """What to say at a change; at a line of it where `file` is known."""

    level: Level
    title: str
    message: str
    file: str = ""
    """Relative to the folder of the change."""
    line: int = 0


def check_format(name: str) -> None:
    """Raise SondaError for a format that is not known; '' is none."""
    if name and name not in FORMATS:
        raise SondaError(f"there are no annotations for {name!r}", nearest(name, FORMATS))


def annotate(
    compared: Comparison | KernelComparison,
    limit: float | None = None,
    code: CodeSummary | None = None,
    root: Path | None = None,
) -> list[Annotation]:
    """What a comparison has to say, most important first.

    An error where B is slower by more than `limit` (0.05 for 5 %); a warning where that cannot be told, and where B is
    slower and no limit was given; else a notice. Of phases that became slower the line of `code` that takes most of
    each in B is marked. `root` is the folder of the change: files elsewhere are not named.
    """
    outcome = "" if limit is None else compared.check(limit).outcome
    level, title = _judge(compared.slowdown, outcome)
    words = [verdict_words(compared) if isinstance(compared, Comparison) else slowdown_words(compared)]
    if limit is not None:
        words.append(_limit_words(compared, limit))
    places: list[Annotation] = []
    if isinstance(compared, Comparison) and compared.parts:
        part = compared.parts[0]
        words += describe_slower(part)
        places = _annotate_lines(part, code, root)
    words += [f"Doubtful: {describe(warning)}" for warning in compared.warnings]
    return [Annotation(level, title, "\n".join(words)), *places]


def _limit_words(compared: Comparison | KernelComparison, limit: float) -> str:
    check = compared.check(limit)
    if isinstance(compared, Comparison):
        return limit_words(check, compared.exact, repetitions_of(compared))
    return limit_words(check, repetitions="steps")


def describe_slower(part: PartComparison) -> list[str]:
    """A sentence for each phase and layer that became slower."""
    return [_row_words(row) for row in (*_slower(part.phases), *_slower(changed_layers(part, MOST_ROWS)))]


def github_lines(annotations: Sequence[Annotation]) -> str:
    """Annotations as workflow commands of GitHub Actions, a line each."""
    return "".join(f"{_github_line(annotation)}\n" for annotation in annotations)


def _judge(slowdown: Value, outcome: str) -> tuple[Level, str]:
    """Level and title. `outcome` is that of the limit, '' where nobody asked for one."""
    if outcome == SLOWER:
        return "error", "Sonda: slower"
    if outcome == UNCLEAR:
        return "warning", "Sonda: cannot tell"
    if not outcome and slowdown.low is not None and slowdown.low > 0:
        return "warning", "Sonda: slower"
    if slowdown.high is not None and slowdown.high < 0:
        return "notice", "Sonda: faster"
    return "notice", "Sonda: within the limit" if outcome else "Sonda: no slowdown shown"


def _slower(rows: Sequence[ComparedRow]) -> list[ComparedRow]:
    """Rows that became slower, those that cost most first."""
    slower = [row for row in rows if row.significant and (row.ratio.value or 0.0) > 1]
    return sorted(slower, key=lambda row: -_growth(row))[:MOST_ROWS]


def _growth(row: ComparedRow) -> float:
    return (row.b.value or 0.0) - (row.a.value or 0.0)


def _row_name(row: ComparedRow) -> str:
    if row.name == OTHER and not row.path:
        return "code between the phases"
    return layer_label(row.path, row.name) if row.path else row.name


def _row_words(row: ComparedRow) -> str:
    """`forward is 1.30x slower: 13.0 ms per step instead of 10.0 ms.`"""
    before, after = (_amount(value) for value in (row.a, row.b))
    return f"{_row_name(row)} is {row.text}: {after} per step instead of {before}."


def _amount(value: Value) -> str:
    if value.unit == "cycle" and value.value is not None:
        return f"{quantities.whole(value.value)} cycles"
    return quantities.amount(value.value, value.unit)


def _annotate_lines(part: PartComparison, code: CodeSummary | None, root: Path | None) -> list[Annotation]:
    """Of each phase that has its part in the slowdown the line that takes most of it in B, where its file belongs to
    the change."""
    of_part = code.part(part.name) if code is not None else None
    least = MARKED * _growth(part.step)
    annotations = []
    for row in _slower(part.phases):
        region = of_part.region(row.name) if of_part is not None else None
        line = region.lines[0] if region is not None and region.lines and _growth(row) >= least else None
        file = _file_of_change(line, root) if line is not None else ""
        if line is not None and file:
            share = f"{quantities.percent(line.share.value or 0.0)} % of the step"
            message = f"{_row_words(row)} This line takes most of it in B: {share}."
            title = f"Sonda: {_row_name(row)} is {row.text}"
            annotations.append(Annotation("warning", title, message, file, line.place.line))
    return annotations


def _file_of_change(line: CodeLine, root: Path | None) -> str:
    """The file of a line, relative to the folder of the change; '' where it is elsewhere."""
    path = Path(line.place.file)
    if path.is_absolute():
        return path.relative_to(root).as_posix() if root is not None and path.is_relative_to(root) else ""
    return "" if ".." in path.parts else path.as_posix()


def _github_line(annotation: Annotation) -> str:
    place = {"file": annotation.file, "line": str(annotation.line)} if annotation.file else {}
    properties = {"title": annotation.title, **place}
    named = ",".join(f"{name}={_escape_property(value)}" for name, value in properties.items())
    return f"::{annotation.level} {named}::{_escape_message(annotation.message)}"


def _escape_message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_message(text).replace(":", "%3A").replace(",", "%2C")
