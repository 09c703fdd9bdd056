"""Findings: what analysis has to tell, as data.

A kind of finding is a frozen dataclass: its fields are its numbers (`Value`, `BoundedRatio`), the names it speaks of
and the place it is about. It holds no sentence. `sonda.report.words` puts each kind into words; no code reads words
back: whoever needs to know what was found asks for the class of a finding, or for its `kind`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Finding:
    """Something that analysis found. `kind` names it in documents and stays the same when its words change."""

    kind: ClassVar[str] = ""


@dataclass(frozen=True)
class Remark(Finding):
    """A sentence that came from elsewhere: a note that a run was stored with, or a rule of another package."""

    kind: ClassVar[str] = "remark"

    text: str
