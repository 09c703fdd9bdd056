"""Validation: which probes can be trusted on this machine, and how far.

Work whose counts are known beforehand (`validation_kernels`) is counted by every probe, and what they say is held
against what must come out. Tolerances are those that others use for the same: PAPI's own tests 1 % (instructions,
floating-point operations), the kernel's resctrl tests 4 % (cache misses). What the kernel counts itself is exact.
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
class Trial:
    """One kernel counted by one probe."""

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
    """Why it could not be tried, or what is to be known."""
    remedy: str = ""


@dataclass(frozen=True)
class Trust:
    """What may be thought of one probe here."""

    probe: str
    state: str
    sentence: str
    remedy: str = ""


@dataclass(frozen=True)
class Validated:
    """All trials, and what follows for each probe."""

    trials: tuple[Trial, ...]

    @property
    def trust(self) -> tuple[Trust, ...]:
        return tuple(_trust(name, [one for one in self.trials if one.probe == name])
                     for name in dict.fromkeys(one.probe for one in self.trials))  # fmt: skip

    @property
    def exit_status(self) -> int:
        """1 where a probe that is there counts something else than it should."""
        return int(any(one.state == DIFFERS for one in self.trials))

    def to_document(self) -> dict[str, Any]:
        return {
            "probes": [asdict(one) for one in self.trust],
            "trials": [asdict(one) for one in self.trials],
        }


def _trust(name: str, trials: Sequence[Trial]) -> Trust:
    tried = [one for one in trials if one.state != MISSING]
    missing = [one for one in trials if one.state == MISSING]
    wrong = [one for one in tried if one.state == DIFFERS]
    if not tried:
        return Trust(name, MISSING, missing[0].reason, missing[0].remedy)
    if wrong:
        worst = max(wrong, key=lambda one: one.deviation or 0.0)
        sentence = f"differs by {deviation_words(worst.deviation)} ({worst.check}); {_passed(tried)} as expected"
        return Trust(name, DIFFERS, sentence, worst.remedy)
    farthest = max(one.deviation or 0.0 for one in tried)
    how = "exactly" if farthest == 0 else f"within {deviation_words(farthest)}"
    without = f"; without {', '.join(one.check for one in missing)}: {missing[0].reason}" if missing else ""
    return Trust(name, TRUSTED, f"{_passed(tried)} as expected, {how}{without}", missing[0].remedy if missing else "")


def _passed(trials: Sequence[Trial]) -> str:
    return f"{sum(one.state == TRUSTED for one in trials)} of {len(trials)} checks"


def deviation_words(deviation: float | None) -> str:
    """`0.012 %`; a deviation that is not nothing never reads as nothing."""
    return "an unknown amount" if deviation is None else f"{100 * deviation:.2g} %"


# ---- judging ------------------------------------------------------------------------------------------------------


def judge_counts(probe: str, check: str, counts: Sequence[float], exact: float, more: float = 0) -> Trial:
    """Trusted where every count is what it must be, or at most `more` above it."""
    if not counts:
        return Trial(probe, check, MISSING, _number(exact), reason="nothing was counted")
    low, high = min(counts), max(counts)
    expected = _number(exact) + (f" (+{more:g})" if more else "")
    found = _number(low) if low == high else f"{_number(low)} to {_number(high)}"
    right = exact <= low and high <= exact + more
    away = max(0.0, exact - low, high - exact) / exact
    several = f"{len(counts)} times" if len(counts) > 1 else ""
    # A count within its allowance is right: that a page more was touched is the program's doing.
    return Trial(probe, check, TRUSTED if right else DIFFERS, expected, found, 0.0 if right else away, several)


def judge_slope(
    probe: str, check: str, sizes: Sequence[tuple[float, float]], each: float, tolerance: float, unit: str = "turn"
) -> Trial:
    """Counts by size, several of each of two sizes: the slope of their medians against `each` per unit of size."""
    by_size: dict[float, list[float]] = {}
    for size, count in sizes:
        by_size.setdefault(size, []).append(count)
    if len(by_size) != 2:
        return Trial(probe, check, MISSING, f"{each:g} a {unit}", reason="nothing was counted")
    (small, low), (large, high) = sorted(by_size.items())
    slope = (statistics.median(high) - statistics.median(low)) / (large - small)
    away = abs(slope - each) / each
    found = f"{slope:.6g} a {unit}"
    return Trial(probe, check, TRUSTED if away <= tolerance else DIFFERS, f"{each:g} a {unit}", found, away)


def judge_pair(probe: str, check: str, found: float, other: float, tolerance: float = 0.0, more: float = 0.0) -> Trial:
    """One count against another source's: relative `tolerance`, or `more` in absolute terms, is allowed."""
    apart = abs(found - other)
    away = apart / other if other else float(bool(apart))
    right = away <= tolerance or apart <= more
    return Trial(probe, check, TRUSTED if right else DIFFERS, _number(other), _number(found), away)


def refused(probe: str, check: str, code: int, hardware: bool, virtual: bool | None, root: Path = Path("/")) -> Trial:
    """A trial that the kernel did not allow."""
    cause, remedy = explain_refusal(code, paranoid_level(root), hardware, virtual, kernel=not hardware)
    return Trial(probe, check, MISSING, reason=cause, remedy=remedy)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.6g}"


def huge_pages(root: Path = Path("/")) -> str:
    """Why counts of page faults are not known beforehand on this machine; '' where they are."""
    if "[always]" in (read_text(root / "sys/kernel/mm/transparent_hugepage/enabled") or ""):
        return "transparent huge pages are always on, so a fault brings in more than 4 KiB"
    return ""


# ---- all of it ----------------------------------------------------------------------------------------------------


def validate(say: Say = lambda text: None, times: int = 100) -> Validated:
    """Try every probe on this machine; takes one to three minutes. Never raises: what cannot be tried says why.

    `times` is how often each fill is repeated.
    """
    from sonda.probes.validation.callgrind import callgrind_trials
    from sonda.probes.validation.pmu import pmu_trials
    from sonda.probes.validation.system import source_trials, system_trials

    trials: list[Trial] = []
    where = ""

    def tell(text: str) -> None:
        say(f"{where}: {text}")

    parts: tuple[tuple[str, Callable[[], Iterable[Trial]]], ...] = (
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
            trials.append(Trial(name, "trial", MISSING, reason=named_line(error)))
    return Validated(tuple(trials))
