"""What options bring, in one sentence: of one place of a study, and of all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sonda.analysis import wording

if TYPE_CHECKING:
    from sonda.analysis.optimisations import Option, Options

FASTER, SLOWER, NOTHING, LITTLE, UNKNOWN = "faster", "slower", "nothing", "little", "unknown"
LACKING = "lacking"
"""Not applicable."""
ORDER = (FASTER, NOTHING, SLOWER, LITTLE, UNKNOWN, LACKING)
UNSURE = (LITTLE, UNKNOWN, LACKING)
"""What is said of an option at one place leaves others open."""
MOST_PLACES = 3
"""That are named."""
WIDEST = 100
"""An interval that reaches further says nothing."""


@dataclass(frozen=True)
class Finding:
    """What one option does, or several together: how many times as fast, from least to most where it was seen."""

    names: tuple[str, ...]
    effect: str
    least: float = 1.0
    most: float = 1.0
    low: float | None = None
    high: float | None = None
    """Ends of the interval; of several, what holds all of them."""
    places: tuple[str, ...] = ()
    first: bool = False
    """The best of its place."""
    bound: float | None = None
    """The most times as fast that it can be; None where that is not known."""


def findings(options: Sequence[Option]) -> list[Finding]:
    """Of one place: the best variant by its parts, then single options that it does not have."""
    gains = sorted((one for one in options if one.effect == FASTER), key=lambda one: -(one.speedup.value or 0.0))
    found, inside = [], set()
    if gains:
        parts = gains[0].together.parts if gains[0].together else (gains[0].name,)
        inside = {gains[0].name, *parts}
        found.append(_finding(gains[0], tuple(parts), True))
    singles = [one for one in (*gains, *(one for one in options if one not in gains)) if one.together is None]
    for one in singles:
        if one.name in inside:
            continue
        if one.effect:
            found.append(_finding(one, (one.name,)))
        elif one.speedup.reason.startswith("not applicable"):
            found.append(Finding((one.name,), LACKING))
    return found


def _finding(one: Option, names: tuple[str, ...], first: bool = False) -> Finding:
    value = one.speedup.value or 1.0
    return Finding(names, one.effect, value, value, one.speedup.low, one.speedup.high, first=first, bound=one.most)


def sentence(options: Sequence[Option]) -> str:
    """`Prefetch and mixed precision bring 1.70x together (1.50 to 1.93); private threads bring nothing here.`"""
    return _joined(_clauses(findings(options), 1))


def whole(places: Sequence[Options]) -> str:
    """The same of all places of a study: what holds at some of them says where. '' where nothing was measured."""
    merged: dict[tuple[tuple[str, ...], str], Finding] = {}
    for place in places:
        for one in findings(place.said):
            key = (one.names, one.effect)
            merged[key] = _with(merged.get(key), one, place.place)
    # What is known of an option at one place is not put in doubt by another where it is not.
    known = {one.names for one in merged.values() if one.effect not in UNSURE}
    kept = [one for one in merged.values() if one.effect not in UNSURE or one.names not in known]
    kept.sort(key=lambda one: (not one.first, -one.most if one.effect == FASTER else 0))
    return _joined(_clauses(kept, len(places)))


def _with(before: Finding | None, one: Finding, place: str) -> Finding:
    if before is None:
        return replace(one, places=(place,))
    both = [(found.low, found.high) for found in (before, one)]
    known = [(low, high) for low, high in both if low is not None and high is not None]
    return Finding(
        one.names, one.effect, min(before.least, one.least), max(before.most, one.most),
        min(low for low, _ in known) if len(known) == 2 else None,
        max(high for _, high in known) if len(known) == 2 else None,
        (*before.places, place), before.first or one.first,
        None if before.bound is None or one.bound is None else max(before.bound, one.bound),
    )  # fmt: skip


def _clauses(found: Sequence[Finding], places: int) -> list[str]:
    """Gains and losses one by one; what brings nothing, what cannot be told and what does not apply, in one each."""
    clauses = []
    for effect in ORDER:
        mine = [one for one in found if one.effect == effect]
        if effect in (FASTER, SLOWER):
            clauses += [_changing(one, places) for one in mine]
            continue
        groups: dict[tuple[tuple[str, ...], bool], list[Finding]] = {}
        for one in mine:
            where = one.places if len(one.places) < places else ()
            groups.setdefault((where, effect == UNKNOWN and one.bound is not None), []).append(one)
        for (where, _), group in groups.items():
            names = [name for one in group for name in one.names]
            clauses.append(_still(effect, names, group, where, places))
    return clauses


def _changing(one: Finding, places: int) -> str:
    at = at_places(one.places, places)
    if one.effect == FASTER:
        said = f"{_subject(one.names, 'bring')} {_range(one.least, one.most)}"
        together = " together" if len(one.names) > 1 else ""
        return f"{said}{together}{_interval(one.low, one.high)}{at}"
    low, high = (None if end is None else 1 / end for end in (one.high, one.low))
    return f"{_subject(one.names, 'make')} it {_range(1 / one.most, 1 / one.least)} slower{_interval(low, high)}{at}"


def _still(effect: str, names: Sequence[str], group: Sequence[Finding], where: Sequence[str], places: int) -> str:
    at = at_places(where, places)
    if effect == LACKING:
        return f"{_subject(names, 'do')} not apply {at.strip() or 'here'}"
    bound = max((one.bound for one in group if one.bound is not None), default=None)
    if effect == LITTLE and bound is not None:
        return f"input takes too little for {wording.join(list(names))} to bring more than {at_most(bound)}{at}"
    known = [(one.low, one.high) for one in group if one.low is not None and one.high is not None]
    low, high = (None, None) if len(known) < len(group) else (min(a for a, _ in known), max(b for _, b in known))
    if effect == NOTHING:
        return f"{_subject(names, 'bring')} nothing{at or ' here'}{_interval(low, high)}"
    hidden = f"what {_subject(names, 'bring')}{at} cannot be told from noise{_interval(low, high)}"
    return hidden if bound is None else f"{hidden}, but input takes too little for more than {at_most(bound)}"


def at_most(bound: float) -> str:
    """A bound in two digits, rounded up."""
    return f"{math.ceil(100 * bound - 1e-9) / 100:.2f}x"


def _range(least: float, most: float) -> str:
    return f"{least:.2f}x" if f"{least:.2f}" == f"{most:.2f}" else f"{least:.2f}x to {most:.2f}x"


def ends(low: float | None, high: float | None) -> str:
    """`0.98 to 1.15`; '' where there is no interval."""
    if low is None or high is None:
        return ""
    if low < 1 / WIDEST or high > WIDEST:
        return f"wider than {1 / WIDEST:g} to {WIDEST}"
    return f"{low:.2f} to {high:.2f}"


def _interval(low: float | None, high: float | None) -> str:
    return f" ({said})" if (said := ends(low, high)) else ""


def at_places(names: Sequence[str], places: int) -> str:
    """` with cnn and with resnet50`, ` in 5 of 8 places`; nothing where it holds everywhere."""
    named = [name for name in dict.fromkeys(names) if name]
    if len(names) == places or not named:
        return ""
    if len(named) > MOST_PLACES:
        return f" in {len(names)} of {places} places"
    return " " + wording.join([f"with {name}" for name in named])


def _joined(clauses: Iterable[str]) -> str:
    said = "; ".join(clauses)
    return f"{said[:1].upper()}{said[1:]}." if said else ""


def _subject(names: Sequence[str], verb: str) -> str:
    """Names and their verb: one that ends in s is taken for several things."""
    one = len(names) == 1 and (not names[0].endswith("s") or names[0].endswith("ss"))
    return f"{wording.join(list(names))} {'does' if verb == 'do' and one else verb + 's' if one else verb}"
