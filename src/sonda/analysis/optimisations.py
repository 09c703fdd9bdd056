"""What options bring: every variant of a study against its base, options together against the product of the single
ones, and one sentence for all of them.

Intervals are of samples a second, from steps within processes and from process to process. How far processes differ is
taken from all variants of a place together, which is what few repetitions allow, and intervals are widened so that all
options of a place hold at once with 95 % (Bonferroni). Whole trainings are compared by their time. An option *brings
nothing* where its interval lies within 5 % of the base; where it reaches further and holds 1, nothing is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sonda.analysis import wording
from sonda.analysis.statistics import CONFIDENCE, Side, effective_size, pooled, ratio, side, student, welch
from sonda.analysis.summary import Summary, Value

EQUAL = 0.05
"""A change below 5 % is what a noisy machine does by itself."""
FASTER, SLOWER, NOTHING, UNKNOWN = "faster", "slower", "nothing", "unknown"


@dataclass(frozen=True)
class Together:
    """Options at once against the same options one by one."""

    parts: tuple[str, ...]
    product: float
    """Of the speed-ups of the parts."""
    excess: Value
    """Speed-up of all together over that product."""
    text: str


@dataclass(frozen=True)
class Option:
    """One variant against the base."""

    name: str
    speedup: Value
    """How many times as many samples a second as the base; missing with a reason."""
    effect: str
    """faster, slower, nothing, unknown; '' where it is missing."""
    text: str
    """`1.70x faster`, `not significant`, or why it is missing."""
    verdict: str
    """What limits it, in a sentence; '' where nothing was measured."""
    remedy: str
    together: Together | None = None


@dataclass(frozen=True)
class Options:
    """All variants at one place of a study."""

    place: str
    """The values of the axes there; '' where there is one place."""
    base: str
    base_verdict: str
    base_remedy: str
    options: tuple[Option, ...]
    sentence: str


def weigh(
    place: str,
    base: str,
    runs: Mapping[str, Sequence[Summary]],
    changes: Mapping[str, Mapping[str, object]],
    missing: Mapping[str, str],
) -> Options:
    """Hold all variants at a place against the base.

    `runs` are the repetitions of every variant, `changes` the settings in which each differs from the base, `missing`
    why a variant has no runs.
    """
    names = [name for name in changes if name != base]
    found = {name: one for name, of in runs.items() if (one := _side(of)) is not None}
    repeated = all(len(runs[name]) > 1 for name in found)
    sides = dict(zip(found, pooled(list(found.values())), strict=True)) if repeated else found
    measured = [name for name in names if name in sides]
    options = []
    for name in names:
        speedup = _speedup(sides, base, name, len(measured), missing.get(name, "not measured yet"))
        effect = _effect(speedup)
        verdict, remedy = _limit(runs.get(name, ()))
        together = _together(sides, base, name, changes, len(measured)) if name in sides and base in sides else None
        options.append(Option(name, speedup, effect, _text(speedup, effect), verdict, remedy, together))
    verdict, remedy = _limit(runs.get(base, ()))
    # Of what is not there, only single options are worth words: what is made of them follows.
    said = [one for one in options if one.speedup.value is not None or not parts_of(one.name, changes)]
    return Options(place, base, verdict, remedy, tuple(options), sentence(said))


def sentence(options: Sequence[Option]) -> str:
    """`Prefetch and mixed precision bring 1.70x together; private threads bring nothing here.`"""
    clauses = []
    gains = sorted((one for one in options if one.effect == FASTER), key=lambda one: -(one.speedup.value or 0.0))
    best = gains[0] if gains else None
    inside: set[str] = set()
    if best is not None:
        parts = list(best.together.parts) if best.together else [best.name]
        inside = {best.name, *parts}
        clauses.append(f"{_subject(parts, 'bring')} {best.speedup.value:.2f}x{' together' if len(parts) > 1 else ''}")
    singles = [one for one in options if one.together is None and one.name not in inside]
    clauses += [f"{_subject([one.name], 'bring')} {one.speedup.value:.2f}x" for one in gains if one in singles]
    nothing = [one.name for one in singles if one.effect == NOTHING]
    clauses += [f"{_subject(nothing, 'bring')} nothing here"] if nothing else []
    clauses += [
        f"{_subject([one.name], 'make')} it {1 / (one.speedup.value or 1):.2f}x slower"
        for one in singles
        if one.effect == SLOWER
    ]
    unknown = [one.name for one in singles if one.effect == UNKNOWN]
    clauses += [f"what {_subject(unknown, 'bring')} cannot be told from noise"] if unknown else []
    lacking = [one.name for one in options if one.speedup.reason.startswith("not applicable")]
    clauses += [f"{_subject(lacking, 'do')} not apply here"] if lacking else []
    if not clauses:
        return ""
    said = "; ".join(clauses)
    return f"{said[:1].upper()}{said[1:]}."


def _subject(names: Sequence[str], verb: str) -> str:
    """Names and their verb: one that ends in s is taken for several things."""
    one = len(names) == 1 and (not names[0].endswith("s") or names[0].endswith("ss"))
    return f"{wording.join(list(names))} {'does' if verb == 'do' and one else verb + 's' if one else verb}"


def _side(summaries: Sequence[Summary]) -> Side | None:
    """ns a sample of every timed step, process by process; of whole trainings ns each. None without any."""
    tables = []
    for one in summaries:
        if one.training is not None:
            tables.append(np.array([[float(one.training.whole)]]))
        elif one.parts and one.parts[0].step.value:
            part = one.parts[0]
            samples = max(1.0, float(one.workload.get("samples") or 1))
            tables.append(np.array(part.timed, np.float64)[:, None] / samples)
    tables = [table for table in tables if len(table)]
    return side(tables, [effective_size(table[:, 0]) for table in tables]) if tables else None


def _speedup(sides: Mapping[str, Side], base: str, name: str, comparisons: int, reason: str) -> Value:
    if base not in sides or name not in sides:
        return Value(None, "1", "derived", reason="the base is not measured yet" if name in sides else reason)
    middle, low, high = (float(end[0]) for end in ratio(sides[name], sides[base], max(1, comparisons)))
    if low == high:
        return Value(middle, "1", "derived", reason="one measurement each has no interval")
    return Value(middle, "1", "derived", low, high)


def _effect(speedup: Value) -> str:
    if speedup.value is None:
        return ""
    if speedup.low is None or speedup.high is None:
        return UNKNOWN
    if speedup.low > 1:
        return FASTER
    if speedup.high < 1:
        return SLOWER
    return NOTHING if speedup.low > 1 / (1 + EQUAL) and speedup.high < 1 + EQUAL else UNKNOWN


def _text(speedup: Value, effect: str) -> str:
    if speedup.value is None:
        return speedup.reason
    if effect == FASTER:
        return f"{speedup.value:.2f}x faster"
    return f"{1 / speedup.value:.2f}x slower" if effect == SLOWER else "not significant"


def _limit(summaries: Sequence[Summary]) -> tuple[str, str]:
    """The first verdict of the run in the middle, and its first remedy."""
    timed = [one for one in summaries if one.parts and one.parts[0].step.value]
    if not timed:
        return "", ""
    middle = sorted(timed, key=lambda one: one.parts[0].step.value or 0.0)[len(timed) // 2]
    verdict = middle.verdicts[0]
    return verdict.sentence, verdict.remedies[0].text if verdict.remedies else ""


def parts_of(name: str, changes: Mapping[str, Mapping[str, object]]) -> tuple[str, ...]:
    """The single options that a variant is made of: together they are its settings, none in two of them; or ()."""
    whole = changes[name]
    inside = [
        other
        for other, own in changes.items()
        if other != name and own and len(own) < len(whole) and all(whole.get(key) == own[key] for key in own)
    ]
    # The larger first: what is made of smaller ones covers their settings.
    inside.sort(key=lambda other: -len(changes[other]))
    found: list[str] = []
    left = set(whole)
    for other in inside:
        if set(changes[other]) <= left and not parts_of(other, changes):
            found.append(other)
            left -= set(changes[other])
    return tuple(one for one in changes if one in found) if not left and len(found) > 1 else ()


def _together(
    sides: Mapping[str, Side], base: str, name: str, changes: Mapping[str, Mapping[str, object]], comparisons: int
) -> Together | None:
    """None for a single option, and where one of its parts is not measured.

    The excess is base^(n-1) · whole / (part · part · …) in times upside down: its relative variance is the sum of those
    of all factors, the base's (n-1)² times.
    """
    parts = parts_of(name, changes)
    if not parts or any(part not in sides for part in parts):
        return None
    time = {one: float(sides[one].middle[0]) for one in (base, name, *parts)}
    product = math.prod(time[base] / time[part] for part in parts)
    excess = time[base] / time[name] / product
    weights = {base: len(parts) - 1.0, name: 1.0, **dict.fromkeys(parts, 1.0)}
    terms = [(weight * float(sides[one].error[0])) ** 2 for one, weight in weights.items()]
    variance = sum(terms)
    if variance <= 0:
        value = Value(excess, "1", "derived", reason="one measurement each has no interval")
        return Together(parts, product, value, "not significant")
    freedom = welch([(term, sides[one]) for one, term in zip(weights, terms, strict=True)])
    tail = (1 - CONFIDENCE) / 2 / max(1, comparisons)
    reach = math.exp(min(student(1 - tail, freedom) * math.sqrt(variance), 700.0))
    value = Value(excess, "1", "derived", excess / reach, excess * reach)
    text = f"as the product of its parts, {product:.2f}x"
    if excess / reach > 1:
        text = f"more than the product of its parts, {product:.2f}x"
    elif excess * reach < 1:
        text = f"less than the product of its parts, {product:.2f}x"
    elif reach > 1 + EQUAL:
        text = f"product of its parts {product:.2f}x, the difference not significant"
    return Together(parts, product, value, text)
