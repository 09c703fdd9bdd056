"""Mistakes in a study file, all of them at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sonda.record.errors import SondaError


@dataclass(frozen=True, order=True)
class Mistake:
    """What is wrong at one place of a study file."""

    line: int
    key: str
    text: str


class StudyMistakes(SondaError):  # noqa: N818 (it is the mistakes that are raised)
    """A study file that cannot be used; `str()` has one line for each mistake: `file:line: key: what is wrong`."""

    def __init__(self, file: str, mistakes: Iterable[Mistake]) -> None:
        self.file = file
        self.mistakes = tuple(sorted(set(mistakes)))
        count = len(self.mistakes)
        super().__init__(f"{file} has {count} mistake{'s' if count != 1 else ''}", "correct them; nothing has run")

    def __str__(self) -> str:
        lines = [f"{self.file}:{mistake.line}: {mistake.key}: {mistake.text}" for mistake in self.mistakes]
        return "\n".join(" ".join(line.split()) for line in lines)
