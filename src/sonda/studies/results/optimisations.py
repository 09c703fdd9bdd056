"""What the variants of a study bring against its base, place by place of its axes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from sonda.analysis.comparison.optimisations import CombinedOptions, Limit, Option, Options, weigh_options
from sonda.analysis.comparison.option_effects import brought_everywhere as brought_everywhere
from sonda.analysis.summary import Summary
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.studies.engine.plan import ENERGY, configurations, is_simulated, options
from sonda.studies.engine.runner import StudyResult
from sonda.studies.figures.speedup import different_work
from sonda.studies.file.study import INTERLEAVED, VARIANT, Configuration, Study, key_of


def optimisations(result: StudyResult, summarise: Callable[[Run], Summary]) -> list[Options]:
    """One for every place where the base and another variant that does the same work stand; none of a study without a
    base, or of cycles.

    Energy runs are left out: they are not timed. A run that cannot be read counts as one that is not there.
    """
    study = result.study
    if not study.base:
        return []
    runs: dict[str, list[Summary]] = {}
    rounds: dict[str, list[int]] = {}
    missing = {key_of(point.configuration): why for point, why in (*result.failures, *result.inapplicable)}
    pointless = {key_of(point.configuration) for point, _ in result.inapplicable}
    for point, run in sorted(result.runs, key=lambda pair: pair[0].repetition):
        if point.measures == ENERGY:
            continue
        try:
            summary = summarise(run)
            runs.setdefault(key_of(point.configuration), []).append(summary)
            rounds.setdefault(key_of(point.configuration), []).append(point.repetition)
        except SondaError as error:
            missing[key_of(point.configuration)] = str(error)
    places: dict[str, dict[str, Configuration]] = {}
    for configuration in configurations(study):
        if not is_simulated(configuration):
            places.setdefault(place_of(study, configuration), {})[str(configuration[VARIANT])] = configuration
    by_place = []
    for place, by_name in places.items():
        against = by_name.get(study.base)
        if against is None:
            continue
        by_name = {
            name: configuration for name, configuration in by_name.items() if not different_work(configuration, against)
        }
        if len(by_name) < 2:
            continue
        changes = {name: _changes(against, configuration) for name, configuration in by_name.items()}
        keys = {name: key_of(configuration) for name, configuration in by_name.items()}
        own = {name: runs.get(key, []) for name, key in keys.items()}
        why = {name: missing[key] for name, key in keys.items() if key in missing}
        turns = {name: rounds.get(key, []) for name, key in keys.items()} if study.protocol == INTERLEAVED else None
        without = {name for name, key in keys.items() if key in pointless}
        by_place.append(weigh_options(place, study.base, own, changes, why, turns, without))
    return by_place


def optimisations_document(by_place: list[Options]) -> list[dict[str, Any]]:
    """As plain values and findings, which `sonda.report.words` puts into words."""
    return [
        {
            "place": place_options.place,
            "base": place_options.base,
            "options": [_option(option) for option in place_options.options],
            "sentence": place_options.finding,
            "base_limit": _limit(place_options.base_limit),
            "rounds": place_options.rounds,
        }
        for place_options in by_place
    ]


def _option(option: Option) -> dict[str, Any]:
    return {
        "name": option.name,
        "speedup": dataclasses.asdict(option.speedup),
        "effect": option.effect,
        "text": option.outcome,
        "limit": _limit(option.limit),
        "together": _together(option.together) if option.together is not None else None,
        "several": option.several,
        "most": option.most,
    }


def _together(options: CombinedOptions) -> dict[str, Any]:
    return {
        "parts": options.parts,
        "product": options.product,
        "excess": dataclasses.asdict(options.excess),
        "text": options.finding,
    }


def _limit(limit: Limit) -> dict[str, Any]:
    return {
        "kind": limit.kind,
        "share": limit.share,
        "sentence": limit.finding or "",
        "remedy": limit.advice or "",
        "flags": limit.flags,
    }


def place_of(study: Study, configuration: Configuration) -> str:
    """The values of the axes on which configurations differ."""
    return ", ".join(
        f"{configuration[axis]}" if isinstance(configuration[axis], str) else f"{axis} {configuration[axis]}"
        for axis, values in study.axes.items()
        if len(values) > 1
    )


def _changes(base: Configuration, variant: Configuration) -> dict[str, object]:
    own, against = options(variant), options(base)
    return {key: own.get(key) for key in {**against, **own} if own.get(key) != against.get(key)}
