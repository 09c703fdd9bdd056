"""The check of how a study measures: its protocol, repetitions, energy runs, and what is waited between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sonda.record.errors import SondaError, nearest
from sonda.studies.file.lines import Path
from sonda.studies.file.mistakes import StudyWalk
from sonda.studies.file.study import COUNTS, ENERGY_INTERLEAVED, INTERLEAVED, PROTOCOLS, SETTINGS

MOST_REPETITIONS = 10_000
LONGEST_S = 86_400.0
ENERGY_RUNS = 3
COOL_DOWN_S = 60.0
REST_S = 10.0
"""What the protocol with energy runs does unless told: three of them, and at most a minute of cooling."""
STATISTICS = ("mean", "minimum", "maximum")


def check_protocol(walk: StudyWalk, table: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The fields of a study that say how it measures, out of `[study]`."""
    protocol = walk.text(table, path, "protocol", INTERLEAVED)
    if protocol not in PROTOCOLS:
        walk.wrong((*path, "protocol"), f"{protocol!r} is not a protocol; {nearest(protocol, PROTOCOLS)}")
    apart = protocol == ENERGY_INTERLEAVED
    for key in ("energy", "energy_probe"):
        if key in table and not apart:
            walk.wrong((*path, key), f'is for protocol = "{ENERGY_INTERLEAVED}"')
    usual = {
        "repeat": 1,
        "energy": ENERGY_RUNS if apart else 0,
        "energy_probe": "energy",
        "cool_down_s": COOL_DOWN_S if apart else 0.0,
        "rest_s": REST_S if apart else 0.0,
    }
    settings = {**usual, **check_settings(walk, table, path)}
    if not apart:
        settings["energy"] = 0
    statistics = walk.texts(table, path, "statistics")
    for index, word in enumerate(statistics):
        if word not in STATISTICS or word in statistics[:index]:
            twice = "is there twice" if word in STATISTICS else f"is no statistic; {nearest(word, STATISTICS)}"
            walk.wrong((*path, "statistics", index), f"{word!r} {twice}")
    return {**settings, "protocol": protocol, "statistics": statistics}


def check_settings(walk: StudyWalk, table: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The settings among the keys of `[study]`, of a scale or of a variant; what is wrong is left out."""
    settings: dict[str, Any] = {}
    for key in COUNTS:
        if key in table:
            settings[key] = walk.whole(table, path, key, 1 if key == "repeat" else 0, MOST_REPETITIONS, 1)
    for key in ("cool_down_s", "rest_s"):
        if key in table:
            settings[key] = walk.number(table, path, key, 0.0, LONGEST_S, 0.0)
    if "energy_probe" in table:
        from sonda.targets.instruments.energy import parse_energy_probes

        settings["energy_probe"] = walk.text(table, path, "energy_probe", "energy")
        try:
            reads = parse_energy_probes(settings["energy_probe"]) is not None
        except SondaError as error:
            walk.wrong((*path, "energy_probe"), str(error))
        else:
            if not reads:
                walk.wrong((*path, "energy_probe"), "reads no energy; name energy or energy-model:cpu=A..B")
    return settings


def check_no_energy_probe(walk: StudyWalk, protocol: str, table: Mapping[str, Any], path: Path) -> None:
    """Timing runs are without the sampler: that is what the protocol is for."""
    probe = table.get("probe")
    if protocol != ENERGY_INTERLEAVED or not isinstance(probe, str):
        return
    from sonda.targets.instruments.energy import ENERGY, MODEL
    from sonda.targets.job import split_probes

    if any(word.name in (ENERGY, MODEL) for word in split_probes(probe)):
        walk.wrong((*path, "probe"), "would read energy in timing runs too; leave it to energy_probe")


SETTING_KEYS = (*SETTINGS, "protocol", "statistics")
"""Keys of [study] that are checked here."""
