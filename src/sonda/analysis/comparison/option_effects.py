"""What options do: at one place of a study, and at all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sonda.analysis.comparison.findings import OptionEffect, OptionsBring

if TYPE_CHECKING:
    from sonda.analysis.comparison.optimisations import Option, Options

FASTER, SLOWER, NOTHING, LITTLE, UNKNOWN = "faster", "slower", "nothing", "little", "unknown"
LACKING = "lacking"
"""Not applicable."""
UNSURE = (LITTLE, UNKNOWN, LACKING)
"""What is known of an option at one place leaves others open."""


def option_effects(options: Sequence[Option]) -> list[OptionEffect]:
    """Of one place: the best variant by its parts, then single options that it does not have."""
    gains = sorted(
        (option for option in options if option.effect == FASTER), key=lambda option: -(option.speedup.value or 0.0)
    )
    effects, inside = [], set()
    if gains:
        parts = gains[0].together.parts if gains[0].together else (gains[0].name,)
        inside = {gains[0].name, *parts}
        effects.append(_effect_of(gains[0], tuple(parts), True))
    ordered = (*gains, *(option for option in options if option not in gains))
    for option in ordered:
        if option.together is not None or option.name in inside:
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


def brought_everywhere(places: Sequence[Options]) -> OptionsBring:
    """What options bring at all places of a study, each effect with the places that have it."""
    merged: dict[tuple[tuple[str, ...], str], OptionEffect] = {}
    for place in places:
        for effect in option_effects(place.notable):
            key = (effect.names, effect.effect)
            merged[key] = _merge_effects(merged.get(key), effect, place.place)
    # What is known of an option at one place is not put in doubt by another where it is not.
    known = {effect.names for effect in merged.values() if effect.effect not in UNSURE}
    certain = [effect for effect in merged.values() if effect.effect not in UNSURE or effect.names not in known]
    certain.sort(key=lambda effect: (not effect.first, -effect.most if effect.effect == FASTER else 0))
    return OptionsBring(tuple(certain), len(places))


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
