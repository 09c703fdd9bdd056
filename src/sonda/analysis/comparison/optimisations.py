"""What options bring: every variant of a study against its base, options together against the product of the single
ones, and one finding for all of them.

Intervals are of samples a second. Where every variant was measured once in every round, they are of ratios within
rounds; otherwise from steps within processes and from process to process. How far processes differ is taken from all
variants of a place together, which is what few repetitions allow (where nothing is repeated, nothing tells it), and
intervals are widened so that all options of a place hold at once with 95 % (Bonferroni). Whole trainings are compared
by their time. An option *brings nothing* where its interval holds 1 and lies within 5 % of the base; where it reaches
further, nothing is known, but for options of the input: what waiting for data takes is the most that they can bring.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sonda.analysis import reasons, wording
from sonda.analysis.bounds import BoundedRatio
from sonda.analysis.comparison.findings import OptionOutcome, OptionsBring, ProductOfParts
from sonda.analysis.comparison.option_effects import FASTER, LITTLE, NOTHING, SLOWER, UNKNOWN, option_effects
from sonda.analysis.comparison.rounds import LEAST_FREEDOM, blocked_sides, freedom_of
from sonda.analysis.findings import Finding
from sonda.analysis.rules.limit_findings import UNNAMED, TooNoisy
from sonda.analysis.statistics import CONFIDENCE, Side, effective_size, pooled, ratio, side, student, welch
from sonda.analysis.summary import Summary, Value

# ---- The most that options of the input can bring -------------------------------------------------------------------

OF_INPUT = frozenset({"workers", "prefetch", "cache"})
"""Settings that change how data are loaded, and nothing else."""
LOADS_AHEAD = "tensorflow"
"""The framework that loads ahead unless it is told not to."""


def most_by_input(base: Sequence[Summary], changes: Mapping[str, object]) -> float | None:
    """How many times as fast the base can become by settings of the input alone, taken from the process in which data
    took the largest share.

    Loading ahead, sharing the loading and keeping what was decoded remove waiting for data, and nothing else: a step of
    which it takes the share s becomes at most 1 / (1 - s) times as fast (G. M. Amdahl, AFIPS Conference Proceedings 30,
    1967). That is known also where the difference itself is lost in noise.

    None where other settings change too, where the base loads ahead (what is loaded beside a step slows it, which is
    in no wait), or where its steps have no data.
    """
    if not changes or not OF_INPUT.issuperset(changes) or any(_loads_ahead(summary) for summary in base):
        return None
    shares = [share for summary in base if (share := _share(summary)) is not None]
    return 1 / (1 - max(shares)) if shares and max(shares) < 1 else None


def _loads_ahead(summary: Summary) -> bool:
    prefetch = summary.workload.prefetch
    by_itself = prefetch is None and summary.workload.framework == LOADS_AHEAD
    return bool(summary.workload.workers or prefetch or by_itself)


def _share(summary: Summary) -> float | None:
    part = summary.parts[0] if summary.parts else None
    if part is None or not part.step.value:
        return None
    waits = [wait for row in part.phases if row.name == "data" and (wait := (row.host or row.cost.time).value)]
    return sum(waits) / part.step.value if waits else None


# ----------------------------------------------------------------------------------------------------------------------

NOISY, UNCLEAR = "too noisy", "not clear"
"""Kinds of limits that are none."""
EQUAL = 0.05
"""Where an interval holds 1 and ends within 5 % of it, a change is nothing that anybody needs to know more exactly."""


@dataclass(frozen=True)
class CombinedOptions:
    """Options at once against the same options one by one."""

    parts: tuple[str, ...]
    product: float
    """Of the speed-ups of the parts."""
    excess: Value
    """Speed-up of all together over that product."""
    relation: str
    """That of `ProductOfParts`."""

    @property
    def finding(self) -> Finding:
        return ProductOfParts(self.relation, self.product)


@dataclass(frozen=True)
class Limit:
    """What limits a configuration, by the first verdict of the run in the middle."""

    kind: str = ""
    """That of the verdict, `not clear` or `too noisy`; '' where nothing was measured."""
    share: float | None = None
    """Of the step that it explains, 0 to 1; None where it explains none."""
    finding: Finding | None = None
    """That of the verdict."""
    advice: Finding | None = None
    """What to try first."""
    flags: str = ""
    """The options of `sonda run` that try the remedy; '' where it is none of them."""


@dataclass(frozen=True)
class Option:
    """One variant against the base."""

    name: str
    speedup: Value
    """How many times as many samples a second as the base; missing with a reason."""
    effect: str
    """faster, slower, nothing, little (unknown, but less than 5 % could be gained), unknown; '' where it is missing."""
    limit: Limit = Limit()
    together: CombinedOptions | None = None
    several: bool = False
    """It is made of other options."""
    most: float | None = None
    """The most times as fast that it can make the base, by what it could save; None where that is not known."""
    applies: bool = True
    """Whether the option has a meaning at this place."""

    @property
    def outcome(self) -> OptionOutcome:
        return OptionOutcome(self.effect, self.speedup, self.most)


@dataclass(frozen=True)
class Options:
    """All variants at one place of a study."""

    place: str
    """The values of the axes there; '' where there is one place."""
    base: str
    options: tuple[Option, ...]
    finding: OptionsBring
    base_limit: Limit = Limit()
    rounds: int = 0
    """Rounds within which variants were held against the base; 0 where they were not measured in such."""

    @property
    def notable(self) -> tuple[Option, ...]:
        """What is worth telling: of what is not there, only single options; what is made of them follows."""
        return tuple(option for option in self.options if option.speedup.value is not None or not option.several)


def weigh_options(
    place: str,
    base: str,
    runs: Mapping[str, Sequence[Summary]],
    changes: Mapping[str, Mapping[str, object]],
    missing: Mapping[str, str],
    rounds: Mapping[str, Sequence[int]] | None = None,
    inapplicable: Collection[str] = (),
) -> Options:
    """Hold all variants at a place against the base.

    `runs` are the repetitions of every variant, `changes` the settings in which each differs from the base, `missing`
    why a variant has no runs, `rounds` in which round each of its runs was measured, where they took turns,
    `inapplicable` the variants that have no meaning there.
    """
    names = [name for name in changes if name != base]
    measured_sides = {name: known_side for name, of in runs.items() if (known_side := _side(of)) is not None}
    repeats = {name: len(runs[name]) for name in measured_sides}
    if min(repeats.values(), default=0) > 1:
        sides = dict(zip(measured_sides, pooled(list(measured_sides.values())), strict=True))
    else:
        sides = _some_repeated(measured_sides, repeats)
    times = _by_round({name: runs[name] for name in measured_sides}, rounds or {})
    if times is not None:
        sides = dict(zip(measured_sides, blocked_sides(times), strict=True))
    measured = [name for name in names if name in sides]
    options = []
    for name in names:
        speedup = _speedup(sides, base, name, len(measured), missing.get(name, reasons.NOT_MEASURED_YET))
        speedup, most = _within_most(speedup, most_by_input(runs.get(base, ()), changes[name]))
        effect = _effect(speedup, most)
        together = _together(sides, base, name, changes, len(measured)) if name in sides and base in sides else None
        several = bool(parts_of(name, changes))
        limit, applies = main_limit(runs.get(name, ())), name not in inapplicable
        options.append(Option(name, speedup, effect, limit, together, several, most, applies))
    within = 0 if times is None else times.shape[1]
    all_of_them = Options(place, base, tuple(options), OptionsBring(()), main_limit(runs.get(base, ())), within)
    return replace(all_of_them, finding=OptionsBring(tuple(option_effects(all_of_them.notable))))


def _by_round(runs: Mapping[str, Sequence[Summary]], rounds: Mapping[str, Sequence[int]]) -> np.ndarray | None:
    """Logarithms of ns a sample by variant and round; None where a variant lacks a round that another has, or rounds
    are too few to be told from noise."""
    rates: list[dict[int, float]] = []
    for name, summaries in runs.items():
        mine = zip(rounds.get(name, ()), summaries, strict=True) if name in rounds else ()
        tables = {number: table for number, summary in mine if (table := _times(summary)) is not None}
        rates.append({number: float(np.log(np.median(table))) for number, table in tables.items()})
    known = set(rates[0]) if rates else set()
    if any(set(by_round) != known for by_round in rates) or freedom_of(len(rates), len(known)) < LEAST_FREEDOM:
        return None
    return np.array([[by_round[number] for number in sorted(known)] for by_round in rates])


def _some_repeated(sides: dict[str, Side], repeats: Mapping[str, int]) -> dict[str, Side]:
    """Sides of which some were measured once, as in a study that is not done: how far processes differ is what the
    repeated ones say, for all. Where none is repeated, only steps within a process tell."""
    several = [(measured, repeats[name]) for name, measured in sides.items() if repeats[name] > 1]
    freedom = sum(measured.freedom for measured, _ in several)
    if not freedom:
        return sides
    variance = sum(measured.freedom * many * measured.error[0] ** 2 for measured, many in several) / freedom
    return {
        name: Side(
            measured.middle,
            np.maximum(measured.error, np.sqrt(variance / repeats[name])),
            freedom,
            common=True,
        )
        for name, measured in sides.items()
    }


def _side(summaries: Sequence[Summary]) -> Side | None:
    """ns a sample of every timed step, process by process; of whole trainings ns each. None without any."""
    tables = [table for summary in summaries if (table := _times(summary)) is not None]
    return side(tables, [effective_size(table[:, 0]) for table in tables]) if tables else None


def _times(summary: Summary) -> np.ndarray | None:
    """ns a sample of every timed step of a process, in a column; of a whole training ns. None without any."""
    if summary.training is not None:
        return np.array([[float(summary.training.whole)]])
    if not summary.parts or not summary.parts[0].step.value or not len(summary.parts[0].timed):
        return None
    samples = max(1.0, float(summary.workload.samples or 1))
    return np.array(summary.parts[0].timed, np.float64)[:, None] / samples


def _speedup(sides: Mapping[str, Side], base: str, name: str, comparisons: int, reason: str) -> Value:
    if base not in sides or name not in sides:
        return Value(None, "1", "derived", reason=reasons.BASE_NOT_MEASURED_YET if name in sides else reason)
    middle, low, high = (float(end[0]) for end in ratio(sides[name], sides[base], max(1, comparisons)))
    if low == high:
        return Value(middle, "1", "derived", reason=reasons.ONE_MEASUREMENT)
    return Value(middle, "1", "derived", low, high)


def _within_most(speedup: Value, most: float | None) -> tuple[Value, float | None]:
    """The speed-up and the most that it can be, where they agree.

    A speed-up whose whole interval is beyond what waiting for data allows shows that more than the wait was saved, and
    there is no such bound. One that only its noise, or a single measurement, puts beyond it is not the speed-up.
    """
    if most is None or speedup.value is None:
        return speedup, most
    if speedup.low is not None and speedup.low > most:
        return speedup, None
    beyond = reasons.MORE_THAN_WAITING.format(speedup.value, wording.at_most(most))
    return BoundedRatio(speedup, most).value(beyond), most


def _effect(speedup: Value, most: float | None) -> str:
    if speedup.value is None:
        return ""
    if speedup.low is not None and speedup.high is not None:
        if speedup.low > 1:
            return FASTER
        if speedup.high < 1:
            return SLOWER
        if speedup.low > 1 / (1 + EQUAL) and speedup.high < 1 + EQUAL:
            return NOTHING
    return LITTLE if most is not None and most < 1 + EQUAL else UNKNOWN


def main_limit(summaries: Sequence[Summary]) -> Limit:
    """What the run in the middle says."""
    timed = [
        summary
        for summary in summaries
        if summary.parts and (summary.parts[0].step.value or summary.parts[0].simulated)
    ]
    if not timed:
        return Limit()
    middle = sorted(timed, key=lambda summary: summary.parts[0].step.value or 0.0)[len(timed) // 2]
    verdict = middle.verdicts[0]
    first = verdict.remedies[0] if verdict.remedies else None
    advice, flags = (first.advice, " ".join(first.options)) if first is not None else (None, "")
    if verdict.kind in UNNAMED:
        kind = NOISY if isinstance(verdict.finding, TooNoisy) else UNCLEAR
        return Limit(kind, None, verdict.finding, advice, flags)
    # Of what the finding names, where it does not name all.
    share = verdict.evidence["share"].value if "share" in verdict.evidence else verdict.share
    return Limit(verdict.kind, share, verdict.finding, advice, flags)


def parts_of(name: str, changes: Mapping[str, Mapping[str, object]]) -> tuple[str, ...]:
    """The single options that a variant is made of: together they are its settings, none in two of them; or ()."""
    whole = changes[name]
    inside = [
        variant
        for variant, own in changes.items()
        if variant != name and own and len(own) < len(whole) and all(whole.get(key) == own[key] for key in own)
    ]
    # The larger first: what is made of smaller ones covers their settings.
    inside.sort(key=lambda variant: -len(changes[variant]))
    parts: list[str] = []
    left = set(whole)
    for variant in inside:
        if set(changes[variant]) <= left and not parts_of(variant, changes):
            parts.append(variant)
            left -= set(changes[variant])
    return tuple(variant for variant in changes if variant in parts) if not left and len(parts) > 1 else ()


def _together(
    sides: Mapping[str, Side], base: str, name: str, changes: Mapping[str, Mapping[str, object]], comparisons: int
) -> CombinedOptions | None:
    """None for a single option, and where one of its parts is not measured.

    The excess is base^(n-1) · whole / (part · part · …) in times upside down: its relative variance is the sum of those
    of all factors, the base's (n-1)² times.
    """
    parts = parts_of(name, changes)
    if not parts or any(part not in sides for part in parts):
        return None
    time = {variant: float(sides[variant].middle[0]) for variant in (base, name, *parts)}
    product = math.prod(time[base] / time[part] for part in parts)
    excess = time[base] / time[name] / product
    weights = {base: len(parts) - 1.0, name: 1.0, **dict.fromkeys(parts, 1.0)}
    terms = [(weight * float(sides[variant].error[0])) ** 2 for variant, weight in weights.items()]
    variance = sum(terms)
    if variance <= 0:
        value = Value(excess, "1", "derived", reason=reasons.ONE_MEASUREMENT)
        return CombinedOptions(parts, product, value, "")
    freedom = welch([(term, sides[variant]) for variant, term in zip(weights, terms, strict=True)])
    tail = (1 - CONFIDENCE) / 2 / max(1, comparisons)
    reach = math.exp(min(student(1 - tail, freedom) * math.sqrt(variance), 700.0))
    value = Value(excess, "1", "derived", excess / reach, excess * reach)
    relation = "unsure" if reach > 1 + EQUAL else "equal"
    if excess / reach > 1 or excess * reach < 1:
        relation = "more" if excess > 1 else "less"
    return CombinedOptions(parts, product, value, relation)
