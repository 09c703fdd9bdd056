"""Words for comparisons: what makes them doubtful, what their intervals mean, what options bring."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sonda.analysis import wording
from sonda.analysis.comparison.findings import (
    ComparedSettings,
    DifferentDevices,
    DifferentMachines,
    DifferentTools,
    DifferingClocks,
    DifferingDescriptions,
    DifferingLibrary,
    DifferingSetting,
    DifferingThreads,
    DifferingWork,
    DisturbedRuns,
    ExactCycles,
    FoundInRun,
    IncompleteTrace,
    NoInterval,
    NoisyPart,
    OneProcess,
    OptionEffect,
    OptionOutcome,
    OptionsBring,
    OtherEngines,
    ProductOfParts,
    RemedyOfRuns,
    SimulatedEnergies,
    SimulatedTraffic,
    UnfinishedRuns,
    UntimedParts,
    WidenedIntervals,
)
from sonda.analysis.comparison.option_effects import FASTER, LACKING, LITTLE, NOTHING, SLOWER, UNKNOWN
from sonda.report import quantities
from sonda.report.words.describe import describe
from sonda.report.words.names import MOST_PLACES, at_places
from sonda.report.words.simulated import bounded

MOST_SETTINGS = 4
"""More settings that differ are counted, not listed."""
MOST_FIELDS = 6
"""The same of fields of a description."""
NOT_SIGNIFICANT = "not significant"
LONGEST_VALUE = 40
"""Characters of a value that differs: fifty tables of DLRM would fill the screen."""


def _setting(setting: DifferingSetting) -> str:
    """`threads (1, 2)`."""
    return f"{setting.name} ({', '.join(map(_short, setting.values))})"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def _first(phrases: Sequence[str], most: int) -> str:
    """The first of these, and how many more there are."""
    more = len(phrases) - most
    return wording.join([*phrases[:most], *([f"{more} more"] if more > 0 else [])])


# ---- Runs that were measured ----------------------------------------------------------------------------------------


@describe.register
def _(finding: DisturbedRuns) -> str:
    return f"other programs disturbed {finding.disturbed} of {finding.runs} runs; stop them and measure again"


@describe.register
def _(finding: DifferingWork) -> str:
    shown = _first([_setting(setting) for setting in finding.settings], MOST_SETTINGS)
    return f"the workloads differ in {shown}: the ratio is not of the same work"


@describe.register
def _(finding: ComparedSettings) -> str:
    """`A and B differ in precision (float32, bfloat16)`."""
    settings = [f"{setting.name} ({_short(setting.a)}, {_short(setting.b)})" for setting in finding.settings]
    return f"A and B differ in {_first(settings, MOST_SETTINGS)}"


@describe.register
def _(finding: DifferingThreads) -> str:
    return f"the runs differ in {_setting(finding.setting)}; give all of them the same --threads"


@describe.register
def _(finding: DifferingLibrary) -> str:
    return f"the runs differ in {_setting(finding.setting)}; compare within one environment"


@describe.register
def _(finding: DifferentMachines) -> str:
    return f"the runs are from different machines ({', '.join(finding.processors)}); measure both on one"


@describe.register
def _(finding: UnfinishedRuns) -> str:
    return f"not complete: {', '.join(finding.runs)}; run it again for the whole"


@describe.register
def _(finding: UntimedParts) -> str:
    return f"{wording.join(list(finding.parts))} was not timed in every run and is not compared"


@describe.register
def _(finding: NoInterval) -> str:
    return f"{finding.part}: {finding.reason}; measure more steps"


@describe.register
def _(finding: NoisyPart) -> str:
    return (
        f"{finding.part}: too noisy to see differences below {wording.percent(finding.least)}; close other programs, "
        "or measure more processes with --repeat"
    )


@describe.register
def _(finding: OneProcess) -> str:
    return (
        f"{'each' if finding.both_sides else 'one'} side has one process: its intervals come from steps only, and how "
        "much one process differs from the next is not seen; measure several with --repeat"
    )


@describe.register
def _(finding: WidenedIntervals) -> str:
    groups = ["phases"] * finding.phases + [f"{finding.layers} layers"] * bool(finding.layers)
    return f"the intervals of {wording.join(groups)} are widened so that all of them hold at once (Bonferroni)"


# ---- Runs that were imported ----------------------------------------------------------------------------------------


@describe.register
def _(finding: IncompleteTrace) -> str:
    return f"{finding.run} is not complete"


@describe.register
def _(finding: DifferentDevices) -> str:
    return "the traces are from different devices"


@describe.register
def _(finding: DifferentTools) -> str:
    return "the runs come from different tools, whose times differ"


# ---- Runs that were simulated ---------------------------------------------------------------------------------------


@describe.register
def _(finding: ExactCycles) -> str:
    return "cycles are exact, simulated: a ratio other than 1 is a difference, and there are no intervals"


@describe.register
def _(finding: OtherEngines) -> str:
    sides = [
        f"{side} has {wording.join([f'{name} ({engine})' for name, engine in engines])}"
        for side, engines in (("A", finding.a), ("B", finding.b))
        if engines
    ]
    return f"the accelerators have other engines: {', '.join(sides)}"


@describe.register
def _(finding: DifferingDescriptions) -> str:
    """`the accelerators differ in multipliers (256, 512)`."""
    return f"the accelerators differ in {_first([f'{name} ({a}, {b})' for name, a, b in finding.fields], MOST_FIELDS)}"


@describe.register
def _(finding: DifferingClocks) -> str:
    clocks = wording.join([f"{clock / 1e9:g} GHz" if clock else "no clock" for clock in (finding.a, finding.b)])
    return f"the clocks differ ({clocks}): the ratios are of cycles, not of times"


@describe.register
def _(finding: SimulatedEnergies) -> str:
    return f"energy {bounded(finding.a)} to {bounded(finding.b)}, bounds of its table in brackets"


@describe.register
def _(finding: SimulatedTraffic) -> str:
    return f"memory moves {wording.amount(finding.a, 'B')} to {wording.amount(finding.b, 'B')}"


# ---- Options of a study ---------------------------------------------------------------------------------------------

ORDER = (FASTER, NOTHING, SLOWER, LITTLE, UNKNOWN, LACKING)
WIDEST = 100
"""An interval that reaches further says nothing."""


@describe.register
def _(finding: OptionOutcome) -> str:
    """`1.70x faster`, `not significant`, or why there is no interval or nothing at all."""
    speedup = finding.speedup
    if speedup.value is None:
        return speedup.reason
    if finding.effect == FASTER:
        return f"{quantities.times(speedup.value)} faster"
    if finding.effect == SLOWER:
        return f"{quantities.times(1 / speedup.value)} slower"
    verdict = NOT_SIGNIFICANT if speedup.low is not None else speedup.reason
    if finding.most is None or finding.effect == NOTHING:
        return verdict
    return f"{verdict}; {wording.at_most(finding.most)} at the most"


@describe.register
def _(finding: ProductOfParts) -> str:
    product = quantities.times(finding.product)
    match finding.relation:
        case "equal":
            return f"as the product of its parts, {product}"
        case "more" | "less":
            return f"{finding.relation} than the product of its parts, {product}"
        case "unsure":
            return f"product of its parts {product}, the difference {NOT_SIGNIFICANT}"
    return NOT_SIGNIFICANT


@describe.register
def _(finding: OptionsBring) -> str:
    """`Prefetch and mixed precision bring 1.70x together (1.50 to 1.93); private threads bring nothing here.`; '' where
    nothing was measured."""
    text = "; ".join(_clauses(finding.effects, finding.places))
    return f"{text[:1].upper()}{text[1:]}." if text else ""


@describe.register
def _(finding: RemedyOfRuns) -> str:
    remedy, places = describe(finding.remedy), finding.places
    if len(places) == finding.configurations:
        return remedy
    few = len(places) <= MOST_PLACES
    return f"{remedy} ({'; '.join(places) if few else f'{len(places)} of {finding.configurations} configurations'})"


@describe.register
def _(finding: FoundInRun) -> str:
    return f"{finding.configuration} ({finding.run}): {describe(finding.finding)}"


def _clauses(effects: Sequence[OptionEffect], places: int) -> Iterable[str]:
    """Gains and losses one by one; what brings nothing, what cannot be told and what does not apply, in one each."""
    for kind in ORDER:
        alike = [effect for effect in effects if effect.effect == kind]
        if kind in (FASTER, SLOWER):
            yield from (_gain_clause(effect, places) for effect in alike)
            continue
        groups: dict[tuple[tuple[str, ...], bool], list[OptionEffect]] = {}
        for effect in alike:
            where = effect.places if len(effect.places) < places else ()
            groups.setdefault((where, kind == UNKNOWN and effect.bound is not None), []).append(effect)
        for (where, _), group in groups.items():
            names = [name for effect in group for name in effect.names]
            yield _other_clause(kind, names, group, where, places)


def _gain_clause(effect: OptionEffect, places: int) -> str:
    at = at_places(effect.places, places)
    if effect.effect == FASTER:
        gain = f"{_subject(effect.names, 'bring')} {_range(effect.least, effect.most)}"
        together = " together" if len(effect.names) > 1 else ""
        return f"{gain}{together}{_interval(effect.low, effect.high)}{at}"
    low, high = (None if end is None else 1 / end for end in (effect.high, effect.low))
    loss = f"{_subject(effect.names, 'make')} it {_range(1 / effect.most, 1 / effect.least)} slower"
    return f"{loss}{_interval(low, high)}{at}"


def _other_clause(
    kind: str, names: Sequence[str], group: Sequence[OptionEffect], where: Sequence[str], places: int
) -> str:
    at = at_places(where, places)
    if kind == LACKING:
        return f"{_subject(names, 'do')} not apply {at.strip() or 'here'}"
    bound = max((effect.bound for effect in group if effect.bound is not None), default=None)
    if kind == LITTLE and bound is not None:
        return f"input takes too little for {wording.join(list(names))} to bring more than {wording.at_most(bound)}{at}"
    known = [(effect.low, effect.high) for effect in group if effect.low is not None and effect.high is not None]
    low, high = (None, None) if len(known) < len(group) else (min(a for a, _ in known), max(b for _, b in known))
    if kind == NOTHING:
        return f"{_subject(names, 'bring')} nothing{at or ' here'}{_interval(low, high)}"
    hidden = f"what {_subject(names, 'bring')}{at} cannot be told from noise{_interval(low, high)}"
    return hidden if bound is None else f"{hidden}, but input takes too little for more than {wording.at_most(bound)}"


def _range(least: float, most: float) -> str:
    low, high = quantities.times(least), quantities.times(most)
    return low if low == high else f"{low} to {high}"


def ends(low: float | None, high: float | None) -> str:
    """`0.98 to 1.15`; '' where there is no interval."""
    if low is None or high is None:
        return ""
    if low < 1 / WIDEST or high > WIDEST:
        return f"wider than {1 / WIDEST:g} to {WIDEST}"
    return f"{quantities.ratio(low)} to {quantities.ratio(high)}"


def _interval(low: float | None, high: float | None) -> str:
    return f" ({interval})" if (interval := ends(low, high)) else ""


def _subject(names: Sequence[str], verb: str) -> str:
    """Names and their verb: one that ends in s is taken for several things."""
    singular = len(names) == 1 and (not names[0].endswith("s") or names[0].endswith("ss"))
    return f"{wording.join(list(names))} {'does' if verb == 'do' and singular else verb + 's' if singular else verb}"
