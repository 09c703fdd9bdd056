"""Sonda's engines against reference runs of STONNE: which are exact in every number, and how long simulating takes."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sonda.accelerators.engines.result import Result
from sonda.accelerators.formats.stonne.reference import ReferenceRun, reference_run, run_name, uncompared_results
from sonda.record.errors import SondaError, named_line
from sonda.record.jit import require_compiler
from sonda.record.progress import Say


@dataclass(frozen=True)
class Difference:
    """A run that ended well and is not the same here: one number of it, or why it cannot be simulated."""

    run: str
    mode: str
    what: str
    expected: int | str | None
    found: int | str | None


@dataclass(frozen=True)
class KnownDifference:
    """A number that differs for a reason of the reference's own; it does not make a run inexact."""

    run: str
    mode: str
    what: str
    expected: int
    found: int
    why: str


@dataclass(frozen=True)
class Failure:
    """A run in which the reference failed, and what Sonda says to it."""

    run: str
    mode: str
    status: str
    says: str


@dataclass
class ModeReport:
    """Runs of one mode that ended well in the reference."""

    total: int = 0
    exact: int = 0
    seconds: float = 0.0
    """CPU seconds of simulating, operands ready, code compiled."""


@dataclass
class VerifyReport:
    """All runs of a reference file."""

    modes: dict[str, ModeReport] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    known: list[KnownDifference] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    not_compared: dict[str, int] = field(default_factory=dict)
    """Results of the reference that Sonda has no number for, with how many runs that ended well have them."""
    preparing: float = 0.0
    """CPU seconds of reading operands and of compiling, or loading compiled code, apart from simulating."""

    @property
    def total(self) -> int:
        """Runs with status ok."""
        return sum(mode.total for mode in self.modes.values())

    @property
    def exact(self) -> int:
        """Those of them of which every number is the same, known differences apart."""
        return sum(mode.exact for mode in self.modes.values())

    @property
    def seconds(self) -> float:
        return sum(mode.seconds for mode in self.modes.values())

    @property
    def exit_status(self) -> int:
        """1 where any run differs, else 0."""
        return 0 if self.exact == self.total else 1

    def to_document(self) -> dict[str, Any]:
        """The report as plain data for JSON."""
        return {
            "total": self.total,
            "exact": self.exact,
            "seconds": self.seconds,
            "preparing_seconds": self.preparing,
            "modes": {mode: vars(mode_report) for mode, mode_report in sorted(self.modes.items())},
            "differences": [vars(difference) for difference in self.differences],
            "known": [vars(difference) for difference in self.known],
            "failures": [vars(failure) for failure in self.failures],
            "not_compared": self.not_compared,
        }


def verify_stonne(path: Path | str, say: Say = lambda text: None) -> VerifyReport:
    """Simulate every run of a reference file and compare cycles, accesses and every counter that the file has.

    What else the file has of results is named in `not_compared`.

    Each run is simulated twice: a first time to compare, in which code is compiled or loaded, a second time to be
    timed. A run that ended well and cannot be read is a difference. Raises SondaError where the file cannot be read
    or nothing in it is a run.
    """
    began = time.process_time()
    entries = _read_entries(Path(path))
    require_compiler()
    read = [_read_run(entry, place) for place, entry in enumerate(entries)]
    runs = [run for run in read if isinstance(run, ReferenceRun)]
    if not runs:
        raise next(error for error in read if isinstance(error, SondaError))
    report = VerifyReport()
    for place, run in enumerate(read):
        say(f"simulating run {place + 1} of {len(read)}")
        if isinstance(run, SondaError):
            _note_unreadable(report, entries[place], place, run)
        else:
            _note_run(report, run, _simulate_run(run))
            for name in uncompared_results(entries[place]) if run.status == "ok" else ():
                report.not_compared[name] = report.not_compared.get(name, 0) + 1
    report.preparing = time.process_time() - began
    for run in runs:
        if run.status == "ok":
            began = time.process_time()
            _simulate_run(run)
            report.modes[run.mode].seconds += time.process_time() - began
    # What comes before the timed pass holds one simulation of each run, too.
    report.preparing = max(0.0, report.preparing - report.seconds)
    return report


def _read_entries(path: Path) -> list[Any]:
    """The runs of a file: a list; an object with `runs`, or with a run under each name; or a single run."""
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise SondaError(f"{path} cannot be read: {error.strerror}", "give a file of reference runs") from None
    except (ValueError, RecursionError) as error:
        raise SondaError(f"{path} is not JSON ({error})", "give a file of reference runs") from None
    if isinstance(document, dict):
        if "mode" in document or "argv" in document:
            return [document]
        named = [{"id": name, **run} for name, run in document.items() if isinstance(run, dict)]
        document = document.get("runs", named)
    if not isinstance(document, list) or not document:
        raise SondaError(f"{path} is not a list of runs", "give a file of reference runs")
    return document


def _read_run(entry: Any, place: int) -> ReferenceRun | SondaError:
    try:
        return reference_run(entry, place)
    except SondaError as error:
        return error


def _simulate_run(run: ReferenceRun) -> Result | SondaError:
    try:
        return run.simulate()
    except SondaError as error:
        return error
    except (ArithmeticError, ValueError, TypeError, IndexError, MemoryError) as error:
        # One run that Sonda stumbles over must not keep the others from being compared.
        return SondaError(f"a defect in Sonda: {named_line(error)}", "report it with this run")


def _note_run(report: VerifyReport, run: ReferenceRun, result: Result | SondaError) -> None:
    if run.status != "ok":
        report.failures.append(Failure(run.name, run.mode, run.status, _describe_answer(run, result)))
        return
    mode = report.modes.setdefault(run.mode, ModeReport())
    mode.total += 1
    if isinstance(result, SondaError):
        report.differences.append(Difference(run.name, run.mode, "run", run.status, str(result)))
        return
    differing = run.differences(result)
    known = run.known_differences(differing)
    mode.exact += len(known) == len(differing)
    for what, (expected, found) in differing.items():
        if what in known and expected is not None and found is not None:
            report.known.append(KnownDifference(run.name, run.mode, what, expected, found, known[what]))
        else:
            report.differences.append(Difference(run.name, run.mode, what, expected, found))


def _note_unreadable(report: VerifyReport, entry: Any, place: int, error: SondaError) -> None:
    """A run of which Sonda does not know what was run; where the reference failed too, it only is listed."""
    about = entry if isinstance(entry, dict) else {}
    name, mode = run_name(entry, place), str(about.get("mode", "unknown"))
    status = str(about.get("status") or "ok").lower()
    if status != "ok":
        report.failures.append(Failure(name, mode, status, str(error)))
        return
    report.modes.setdefault(mode, ModeReport()).total += 1
    report.differences.append(Difference(name, mode, "run", "ok", str(error)))


def _describe_answer(run: ReferenceRun, result: Result | SondaError) -> str:
    if isinstance(result, SondaError):
        return str(result)
    printed = run.expected.get("cycles")
    return f"{result.cycles} cycles" + (f" (the reference printed {printed})" if printed is not None else "")
