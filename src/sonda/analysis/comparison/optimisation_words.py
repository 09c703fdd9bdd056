"""What options bring, in one sentence: of one place of a study, and of all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sonda.analysis import wording

if TYPE_CHECKING:
    from sonda.analysis.comparison.optimisations import Option, Options

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
class OptionEffect:
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


def option_effects(options: Sequence[Option]) -> list[OptionEffect]:
    """Of one place: the best variant by its parts, then single options that it does not have."""
    gains = sorted(
        (option for option in options if option.effect == FASTER), key=lambda one: -(one.speedup.value or 0.0)
    )
    effects, inside = [], set()
    if gains:
        parts = gains[0].together.parts if gains[0].together else (gains[0].name,)
        inside = {gains[0].name, *parts}
        effects.append(_effect_of(gains[0], tuple(parts), True))
    singles = [one for one in (*gains, *(option for option in options if option not in gains)) if one.together is None]
    for option in singles:
        if option.name in inside:
            continue
        if option.effect:
            effects.append(_effect_of(option, (option.name,)))
        elif not option.applies:
            effects.append(OptionEffect((option.name,), LACKING))
    return effects


def _effect_of(option: Option, names: tuple[str, ...], first: bool = False) -> OptionEffect:
    value = option.speedup.value or 1.0
    return OptionEffect(
        names, option.effect, value, value, option.speedup.low, option.speedup.high, first=first, bound=option.most
    )


def sentence(options: Sequence[Option]) -> str:
    """`Prefetch and mixed precision bring 1.70x together (1.50 to 1.93); private threads bring nothing here.`"""
    return _join_clauses(_clauses(option_effects(options), 1))


def whole(places: Sequence[Options]) -> str:
    """The same of all places of a study: what holds at some of them says where. '' where nothing was measured."""
    merged: dict[tuple[tuple[str, ...], str], OptionEffect] = {}
    for place in places:
        for effect_of_option in option_effects(place.said):
            key = (effect_of_option.names, effect_of_option.effect)
            merged[key] = _merge_effects(merged.get(key), effect_of_option, place.place)
    # What is known of an option at one place is not put in doubt by another where it is not.
    known = {effect.names for effect in merged.values() if effect.effect not in UNSURE}
    certain = [effect for effect in merged.values() if effect.effect not in UNSURE or effect.names not in known]
    certain.sort(key=lambda effect: (not effect.first, -effect.most if effect.effect == FASTER else 0))
    return _join_clauses(_clauses(certain, len(places)))


def _merge_effects(before: OptionEffect | None, added: OptionEffect, place: str) -> OptionEffect:
    if before is None:
        return replace(added, places=(place,))
    both = [(effect.low, effect.high) for effect in (before, added)]
    known = [(low, high) for low, high in both if low is not None and high is not None]
    return OptionEffect(
        added.names, added.effect, min(before.least, added.least), max(before.most, added.most),
        min(low for low, _ in known) if len(known) == 2 else None,
        max(high for _, high in known) if len(known) == 2 else None,
        (*before.places, place), before.first or added.first,
        None if before.bound is None or added.bound is None else max(before.bound, added.bound),
    )  # fmt: skip


def _clauses(effects: Sequence[OptionEffect], places: int) -> list[str]:
    """Gains and losses one by one; what brings nothing, what cannot be told and what does not apply, in one each."""
    clauses = []
    for effect in ORDER:
        mine = [found_effect for found_effect in effects if found_effect.effect == effect]
        if effect in (FASTER, SLOWER):
            clauses += [_gain_clause(found_effect, places) for found_effect in mine]
            continue
        groups: dict[tuple[tuple[str, ...], bool], list[OptionEffect]] = {}
        for found_effect in mine:
            where = found_effect.places if len(found_effect.places) < places else ()
            groups.setdefault((where, effect == UNKNOWN and found_effect.bound is not None), []).append(found_effect)
        for (where, _), group in groups.items():
            names = [name for found_effect in group for name in found_effect.names]
            clauses.append(_other_clause(effect, names, group, where, places))
    return clauses


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
    effect: str, names: Sequence[str], group: Sequence[OptionEffect], where: Sequence[str], places: int
) -> str:
    at = at_places(where, places)
    if effect == LACKING:
        return f"{_subject(names, 'do')} not apply {at.strip() or 'here'}"
    bound = max((found_effect.bound for found_effect in group if found_effect.bound is not None), default=None)
    if effect == LITTLE and bound is not None:
        return f"input takes too little for {wording.join(list(names))} to bring more than {at_most(bound)}{at}"
    known = [
        (found_effect.low, found_effect.high)
        for found_effect in group
        if found_effect.low is not None and found_effect.high is not None
    ]
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
    return f" ({interval})" if (interval := ends(low, high)) else ""


def at_places(names: Sequence[str], places: int) -> str:
    """` with cnn and with resnet50`, ` in 5 of 8 places`; nothing where it holds everywhere."""
    named = [name for name in dict.fromkeys(names) if name]
    if len(names) == places or not named:
        return ""
    if len(named) > MOST_PLACES:
        return f" in {len(names)} of {places} places"
    return " " + wording.join([f"with {name}" for name in named])


def _join_clauses(clauses: Iterable[str]) -> str:
    sentence_text = "; ".join(clauses)
    return f"{sentence_text[:1].upper()}{sentence_text[1:]}." if sentence_text else ""


def _subject(names: Sequence[str], verb: str) -> str:
    """Names and their verb: one that ends in s is taken for several things."""
    singular = len(names) == 1 and (not names[0].endswith("s") or names[0].endswith("ss"))
    return f"{wording.join(list(names))} {'does' if verb == 'do' and singular else verb + 's' if singular else verb}"
