"""Validation: which probes can be trusted on this machine, and how far.

Every probe counts work whose counts are known beforehand (`microbenchmarks`), and its counts are compared with these.
Tolerances are those of other tests: PAPI's 1 % (instructions, floating-point operations), the kernel's resctrl tests
4 % (cache misses). What the kernel counts itself is exact.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sonda.probes.counters.perf_events import explain_refusal, paranoid_level
from sonda.probes.kernel_files import read_text
from sonda.record.errors import named_line
from sonda.record.progress import Say

TRUSTED, DIFFERS, MISSING = "trusted", "differs", "missing"
TOLERANCE = 0.01
CACHE_TOLERANCE = 0.04
CLOCK_TOLERANCE = 0.01
PAGES_FILLED = 64 * 256
"""Pages of 4 KiB in a fill of 64 MiB."""


@dataclass(frozen=True)
class ProbeTrial:
    """One piece of known work counted by one probe."""

    probe: str
    """os, pmu, callgrind, perf stat, papi or getrusage."""
    check: str
    """What was counted, in words."""
    state: str
    """trusted, differs, or missing: it could not be tried."""
    expected: str = ""
    found: str = ""
    deviation: float | None = None
    """The largest, relative to what was expected; None where nothing was counted."""
    reason: str = ""
    """Why it could not be tried, or what a reader must know of it."""
    remedy: str = ""


@dataclass(frozen=True)
class ProbeTrust:
    """How far one probe can be trusted on this machine."""

    probe: str
    state: str
    sentence: str
    remedy: str = ""


@dataclass(frozen=True)
class Validation:
    """All trials, and what follows for each probe."""

    trials: tuple[ProbeTrial, ...]

    @property
    def trust(self) -> tuple[ProbeTrust, ...]:
        """The judgement of every probe, in order of the trials."""
        names = dict.fromkeys(trial.probe for trial in self.trials)
        return tuple(_judge_probe(name, [trial for trial in self.trials if trial.probe == name]) for name in names)

    @property
    def exit_status(self) -> int:
        """1 where a probe counts wrong, else 0."""
        return int(any(trial.state == DIFFERS for trial in self.trials))

    def to_document(self) -> dict[str, Any]:
        return {
            "probes": [asdict(trust) for trust in self.trust],
            "trials": [asdict(trial) for trial in self.trials],
        }


def _judge_probe(name: str, trials: Sequence[ProbeTrial]) -> ProbeTrust:
    tried = [trial for trial in trials if trial.state != MISSING]
    missing = [trial for trial in trials if trial.state == MISSING]
    wrong = [trial for trial in tried if trial.state == DIFFERS]
    if not tried:
        return ProbeTrust(name, MISSING, missing[0].reason, missing[0].remedy)
    if wrong:
        worst = max(wrong, key=lambda trial: trial.deviation or 0.0)
        sentence = f"differs by {deviation_words(worst.deviation)} ({worst.check}); {_passed_words(tried)} as expected"
        return ProbeTrust(name, DIFFERS, sentence, worst.remedy)
    farthest = max(trial.deviation or 0.0 for trial in tried)
    how = "exactly" if farthest == 0 else f"within {deviation_words(farthest)}"
    without = f"; without {', '.join(trial.check for trial in missing)}: {missing[0].reason}" if missing else ""
    return ProbeTrust(
        name, TRUSTED, f"{_passed_words(tried)} as expected, {how}{without}", missing[0].remedy if missing else ""
    )


def _passed_words(trials: Sequence[ProbeTrial]) -> str:
    return f"{sum(trial.state == TRUSTED for trial in trials)} of {len(trials)} checks"


def deviation_words(deviation: float | None) -> str:
    """`0.012 %`; a deviation that is not nothing never reads as nothing."""
    return "an unknown amount" if deviation is None else f"{100 * deviation:.2g} %"


# ---- judging ------------------------------------------------------------------------------------------------------


def judge_counts(probe: str, check: str, counts: Sequence[float], exact: float, more: float = 0) -> ProbeTrial:
    """A trial that is trusted where every count is `exact`, or at most `more` above it."""
    if not counts:
        return ProbeTrial(probe, check, MISSING, _number_words(exact), reason="nothing was counted")
    low, high = min(counts), max(counts)
    expected = _number_words(exact) + (f" (+{more:g})" if more else "")
    found = _number_words(low) if low == high else f"{_number_words(low)} to {_number_words(high)}"
    right = exact <= low and high <= exact + more
    away = max(0.0, exact - low, high - exact) / exact
    several = f"{len(counts)} times" if len(counts) > 1 else ""
    # A count within its allowance is right: the program itself may touch a page more.
    return ProbeTrial(probe, check, TRUSTED if right else DIFFERS, expected, found, 0.0 if right else away, several)


def judge_slope(
    probe: str, check: str, sizes: Sequence[tuple[float, float]], each: float, tolerance: float, unit: str = "turn"
) -> ProbeTrial:
    """A trial of counts by size, several of each of two sizes: the slope of their medians must be `each` per unit."""
    by_size: dict[float, list[float]] = {}
    for size, count in sizes:
        by_size.setdefault(size, []).append(count)
    if len(by_size) != 2:
        return ProbeTrial(probe, check, MISSING, f"{each:g} a {unit}", reason="nothing was counted")
    (small, low), (large, high) = sorted(by_size.items())
    slope = (statistics.median(high) - statistics.median(low)) / (large - small)
    away = abs(slope - each) / each
    found = f"{slope:.6g} a {unit}"
    return ProbeTrial(probe, check, TRUSTED if away <= tolerance else DIFFERS, f"{each:g} a {unit}", found, away)


def judge_pair(
    probe: str, check: str, found: float, other: float, tolerance: float = 0.0, more: float = 0.0
) -> ProbeTrial:
    """A trial of one count against another source's. It may differ by the part `tolerance`, or by `more` in numbers."""
    apart = abs(found - other)
    away = apart / other if other else float(bool(apart))
    right = away <= tolerance or apart <= more
    return ProbeTrial(probe, check, TRUSTED if right else DIFFERS, _number_words(other), _number_words(found), away)


def refused_trial(
    probe: str, check: str, code: int, hardware: bool, virtual: bool | None, root: Path = Path("/")
) -> ProbeTrial:
    """A trial that the kernel did not allow."""
    cause, remedy = explain_refusal(code, paranoid_level(root), hardware, virtual, kernel=not hardware)
    return ProbeTrial(probe, check, MISSING, reason=cause, remedy=remedy)


def _number_words(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.6g}"


def huge_pages_reason(root: Path = Path("/")) -> str:
    """Why counts of page faults are not known beforehand on this machine; '' where they are."""
    if "[always]" in (read_text(root / "sys/kernel/mm/transparent_hugepage/enabled") or ""):
        return "transparent huge pages are always on, so a fault brings in more than 4 KiB"
    return ""


# ---- all of it ----------------------------------------------------------------------------------------------------


def validate_probes(say: Say = lambda text: None, times: int = 100) -> Validation:
    """Try every probe on this machine; takes one to three minutes. Never raises: a trial says why it is missing.

    `times` is how often each fill is repeated.
    """
    from sonda.probes.validation.callgrind import callgrind_trials
    from sonda.probes.validation.pmu import pmu_trials
    from sonda.probes.validation.system import source_trials, system_trials

    trials: list[ProbeTrial] = []
    where = ""

    def tell(text: str) -> None:
        say(f"{where}: {text}")

    parts: tuple[tuple[str, Callable[[], Iterable[ProbeTrial]]], ...] = (
        ("os", lambda: system_trials(tell, times)),
        ("pmu", lambda: pmu_trials(tell)),
        ("callgrind", lambda: callgrind_trials(tell)),
        ("sources", lambda: source_trials(tell)),
    )
    for number, (name, part) in enumerate(parts, start=1):
        where = f"part {number} of {len(parts)}"
        try:
            trials += part()
        except Exception as error:
            # A machine stranger than foreseen must still get the rest of its validation.
            trials.append(ProbeTrial(name, "trial", MISSING, reason=named_line(error)))
    return Validation(tuple(trials))
