"""Observes planted programs as a user would and scores the first verdict of each.

`python -m benchmarks verdicts` runs all that this machine can run; `python -m benchmarks.verdicts.score --help` runs
some of them, and judges stored runs again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.bar import Bar
from benchmarks.verdicts.cores import map_side_by_side
from benchmarks.verdicts.measure import LONGEST, compete
from benchmarks.verdicts.truth import GOOD, PROGRAMS, Truth, read_truths

STORE = "SONDA_HOME"
"""Environment variable that names the folder of runs."""
SLOWER = 3
"""An observed program may take so many times as long as a bare one before it is given up."""
GOOD_KINDS = frozenset({"good", "compute", "memory"})
"""Verdicts that leave a program in peace: its time goes into its work."""
BARS = {"cause": 0.85, "place": 0.90, "remedy": 0.85, "peace": 1.0}


@dataclass(frozen=True)
class Answer:
    """What Sonda says of one program."""

    truth: Truth
    kind: str
    """Of the first verdict; '' where there is none."""
    sentence: str
    share: float
    place: dict[str, Any] = field(default_factory=dict)
    remedy: str = ""
    """Kind of the first remedy."""
    also: tuple[str, ...] = ()
    """Kinds of the verdicts after the first."""

    @property
    def named(self) -> bool:
        """Whether the first verdict is the planted cause."""
        if self.truth.cause == GOOD:
            return self.kind in GOOD_KINDS
        return self.kind in self.truth.accepted

    @property
    def placed(self) -> bool | None:
        """Whether the first verdict names the right place; None where no place is to be named."""
        if self.truth.place is None:
            return None
        place = self.place
        return self.truth.place.holds(
            place.get("file", ""), place.get("line", 0), place.get("function", ""), place.get("layer", "")
        )

    @property
    def helped(self) -> bool | None:
        """Whether the first remedy is one that helps; None where nothing is to be mended."""
        return self.remedy in self.truth.remedies if self.truth.remedies else None


def observe_program(truth: Truth, store: Path) -> dict[str, Any]:
    """Run a program under Sonda and return its document; {} where that failed."""
    with compete(truth.competitors), tempfile.TemporaryFile() as output:
        try:
            subprocess.run(
                [sys.executable, "-m", "sonda", "run", "--tag", tag_of(truth), "--json", "--",
                 sys.executable, truth.program.name, *truth.arguments],
                cwd=truth.program.parent, stdout=output, stderr=subprocess.DEVNULL, timeout=SLOWER * LONGEST,
                env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1", STORE: str(store)}, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {}
        output.seek(0)
        return last_document(output.read().decode(errors="replace"))


def judge_again(truth: Truth, store: Path) -> dict[str, Any]:
    """What today's rules say of a stored run; {} where there is none."""
    shown = subprocess.run(
        [sys.executable, "-m", "sonda", "show", tag_of(truth), "--json"],
        capture_output=True, text=True, check=False, env=os.environ | {STORE: str(store)},
    )  # fmt: skip
    return last_document(shown.stdout)


def last_document(text: str) -> dict[str, Any]:
    """The JSON document at the end of what was printed: the program prints before it."""
    for match in reversed(list(re.finditer(r"^\{", text, re.MULTILINE))):
        try:
            document = json.loads(text[match.start() :])
        except ValueError:
            continue
        if isinstance(document, dict) and "verdicts" in document:
            return document
    return {}


def tag_of(truth: Truth) -> str:
    return truth.name.replace("/", "-")


def read_answer(truth: Truth, document: dict[str, Any]) -> Answer:
    """The first verdict of a document."""
    verdicts = document.get("verdicts") or [{}]
    first = verdicts[0]
    remedies = [remedy.get("kind", "") for verdict in verdicts for remedy in verdict.get("remedies", [])]
    return Answer(
        truth,
        first.get("kind", ""),
        first.get("sentence", "no answer"),
        first.get("share") or 0.0,
        first.get("place") or {},
        remedies[0] if remedies else "",
        tuple(verdict["kind"] for verdict in verdicts[1:]),
    )


def print_score(answers: Sequence[Answer]) -> list[Bar]:
    """The score by cause, every wrong sentence, and the bars."""
    causes = sorted({answer.truth.cause for answer in answers})
    print(f"{'cause':20}{'named':>8}{'place':>8}{'remedy':>8}")
    for cause in causes:
        rows = [answer for answer in answers if answer.truth.cause == cause]
        print(f"{cause:20}" + "".join(f"{_fraction(rows, what):>8}" for what in ("named", "placed", "helped")))
    print("\nwrong:")
    for answer in answers:
        if not answer.named:
            print(f"- {answer.truth.name} ({answer.truth.cause}): {answer.kind}: {answer.sentence}")
    planted = [answer for answer in answers if answer.truth.cause != GOOD]
    good = [answer for answer in answers if answer.truth.cause == GOOD]
    device = "CPU" if all(answer.truth.device == "cpu" for answer in answers) else "GPU"
    return [
        _bar(f"{device}: cause named first", planted, "named", BARS["cause"]),
        _bar(f"{device}: right line or layer", planted, "placed", BARS["place"]),
        _bar(f"{device}: first remedy is one that helps", planted, "helped", BARS["remedy"]),
        _bar(f"{device}: good programs left in peace", good, "named", BARS["peace"]),
    ]


def _counts(answers: Sequence[Answer], what: str) -> tuple[int, int]:
    """How many are right, of how many that can be."""
    values = [getattr(answer, what) for answer in answers]
    asked = [value for value in values if value is not None]
    return sum(asked), len(asked)


def _fraction(answers: Sequence[Answer], what: str) -> str:
    right, asked = _counts(answers, what)
    return f"{right}/{asked}" if asked else "–"


def _bar(promise: str, answers: Sequence[Answer], what: str, least: float) -> Bar:
    right, asked = _counts(answers, what)
    state = "PASS" if asked and right >= least * asked else "FAIL"
    return Bar(promise, f"{right} of {asked}, bar {least:.0%}", state)


def score(truths: Sequence[Truth], store: Path, again: bool = False, at_once: int = 1) -> list[Bar]:
    """Observe the programs, or judge stored runs of them again, and print the score."""

    def answer_of(truth: Truth) -> dict[str, Any]:
        return judge_again(truth, store) if again else observe_program(truth, store)

    answers = []
    for truth, document in map_side_by_side(answer_of, truths, at_once):
        answer = read_answer(truth, document)
        answers.append(answer)
        mark = "right" if answer.named else "WRONG"
        print(f"{mark}  {truth.name:36} {truth.cause:20} {answer.kind:20} {answer.sentence[:110]}", flush=True)
    print()
    return print_score(answers)


def run() -> list[Bar]:
    """The programs that this machine can run."""
    import torch

    bars: list[Bar] = []
    for device in ("cpu", *(("cuda",) if torch.cuda.is_available() else ())):
        with tempfile.TemporaryDirectory(prefix="sonda-verdicts-") as folder:
            bars += score(read_truths(device), Path(folder))
    return bars


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    options.add_argument("--keep", type=Path, help="store of the runs, which stays")
    options.add_argument("--again", action="store_true", help="judge the runs in --keep by today's rules")
    options.add_argument("--at-once", type=int, default=1, help="programs side by side, each on two cores of its own")
    options.add_argument("--programs", type=Path, default=PROGRAMS, help="folder of planted programs")
    options.add_argument("names", nargs="*", help=f"domain/name of {PROGRAMS.name}, or a cause; all without")
    given = options.parse_args()
    if given.again and not given.keep:
        options.error("--again needs the store: --keep FOLDER")
    truths = [
        truth
        for truth in read_truths(given.device, given.programs)
        if not given.names or truth.name in given.names or truth.cause in given.names
    ]
    with tempfile.TemporaryDirectory(prefix="sonda-verdicts-") as folder:
        bars = score(truths, (given.keep or Path(folder)).resolve(), given.again, given.at_once)
    for bar in bars:
        print(bar)
    return 1 if any(bar.state == "FAIL" for bar in bars) else 0


if __name__ == "__main__":
    sys.exit(main())
