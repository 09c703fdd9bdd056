"""The plan of a study: which points are measured, and in which order."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from dataclasses import dataclass
from typing import Any

from sonda.record.errors import SondaError
from sonda.record.index import POINT_NODE
from sonda.studies.file.study import ENERGY_INTERLEAVED, PLAIN, VARIANT, Configuration, Study, matches

TIME, ENERGY = "time", "energy"
"""What a run of a study measures, where the two are kept apart."""
NODE = POINT_NODE
"""The key under which a configuration has the kind of node that it is measured on; no option of a measurement."""


@dataclass(frozen=True)
class StudyPoint:
    """One measurement of a study: a configuration, for the n-th time."""

    study: str
    configuration: Configuration
    """Everything that determines the measurement, fixed options included."""
    repetition: int
    """Counted from 1."""
    identity: str
    """16 hexadecimal digits, the same whenever the study is planned: the id of the run that measures the point."""

    group: str
    """16 hexadecimal digits that all repetitions of the configuration share."""

    measures: str = ""
    """`time` or `energy`; empty where both come from the same runs."""

    def record(self) -> dict[str, Any]:
        """What `run.json` keeps of the point."""
        apart = {"measures": self.measures} if self.measures else {}
        return {**self.configuration, "repetition": self.repetition, **apart}


def study_identity(study: Study) -> str:
    """16 hexadecimal digits that change when the measurements do.

    Fixed options, seed and protocol count; prose, published figures and the number of repetitions do not. The values of
    the axes count in each point's own identity, so that a study that gains a value keeps what it has measured.
    """
    return _digest([study.name, study.protocol, study.seed, study.workload])


def configurations(study: Study) -> list[Configuration]:
    """Variant by variant the axes crossed, the first varying slowest, without what is excluded."""
    return [configuration for configuration, _ in _configurations_by_part(study)]


def _configurations_by_part(study: Study) -> list[tuple[Configuration, Study]]:
    """Every configuration, with the variant of the study that it belongs to."""
    configurations_of_parts = []
    for name, part in study.parts():
        fixed: Configuration = {VARIANT: name} if name else {}
        fixed |= {"seed": part.seed, **part.workload}
        crossed = [
            {**fixed, **dict(zip(part.axes, values, strict=True))} for values in itertools.product(*part.axes.values())
        ]
        configurations_of_parts += [
            (configuration, part)
            for configuration in crossed
            if not any(matches(exclude, configuration) for exclude in part.exclude)
        ]
    return configurations_of_parts


def plan_points(study: Study) -> list[StudyPoint]:
    """The points in the order in which they are measured.

    `plain`: all repetitions of a configuration in a row. `interleaved`: every configuration once, then every one again,
    in an order shuffled by the study's seed, so that a machine that drifts does not favour one of them.
    `energy-interleaved`: configuration by configuration, an energy run first, then timing runs with the other energy
    runs spread among them. What is simulated is the same every time, and has one repetition.
    """
    identity = study_identity(study)
    wanted = _configurations_by_part(study)
    content = {
        name: content_of(name) for name in {str(configuration.get("workload", "")) for configuration, _ in wanted}
    }
    points = []
    machines = _Machines()
    for configuration, part, measures, repetition in _order(study, wanted):
        group = [identity, options(configuration), content[str(configuration.get("workload", ""))]]
        group += machines.describe(configuration)
        group += [f"{NODE} {configuration[NODE]}"] if NODE in configuration else []
        group += [ENERGY, part.energy_probe] if measures == ENERGY else []
        points.append(
            StudyPoint(study.name, configuration, repetition, _digest([*group, repetition]), _digest(group), measures)
        )
    return points


def _order(study: Study, wanted: list[tuple[Configuration, Study]]) -> list[tuple[Configuration, Study, str, int]]:
    """Configurations with what is measured of them and for which time, counted from 1."""
    if study.protocol == ENERGY_INTERLEAVED:
        return [
            (configuration, part, *turn)
            for configuration, part in wanted
            for turn in ([("", 1)] if is_simulated(configuration) else energy_order(part.energy, part.repeat))
        ]
    times = {id(configuration): 1 if is_simulated(configuration) else part.repeat for configuration, part in wanted}
    if study.protocol == PLAIN:
        return [
            (configuration, part, "", number)
            for configuration, part in wanted
            for number in range(1, times[id(configuration)] + 1)
        ]
    order = []
    for number in range(1, max(times.values(), default=0) + 1):
        shuffled = list(wanted)
        random.Random(f"{study.seed}/{number}").shuffle(shuffled)
        order += [
            (configuration, part, "", number) for configuration, part in shuffled if number <= times[id(configuration)]
        ]
    return order


def energy_order(energy: int, repeat: int) -> list[tuple[str, int]]:
    """E,5T,E,5T,E for 3 energy runs and 10 timing runs: one of energy first, the others where they part the rest."""
    order = []
    ends = [0] if energy else []
    ends += [round(repeat * number / (energy - 1)) for number in range(1, energy)]
    for number in range(repeat + 1):
        order += [(ENERGY, at + 1) for at, end in enumerate(ends) if end == number]
        order += [(TIME, number + 1)] if number < repeat else []
    return order


def count_points(study: Study) -> int:
    """How many points the plan has."""
    return sum(
        1 if is_simulated(configuration) else part.repeat + part.energy
        for configuration, part in _configurations_by_part(study)
    )


def options(configuration: Configuration) -> Configuration:
    """What is measured, whatever the variant is called and wherever it is."""
    return {key: value for key, value in configuration.items() if key not in (VARIANT, NODE)}


def is_simulated(configuration: Configuration) -> bool:
    """Whether the configuration runs on a simulated accelerator."""
    return str(configuration.get("on", "")).startswith("sim:")


def needs_gpu(configuration: Configuration) -> bool:
    """Whether the configuration runs on a GPU, alone or with others."""
    return "cuda" in str(configuration.get("on", ""))


class _Machines:
    """What the name of a simulated accelerator does not say: its description, read once for each."""

    def __init__(self) -> None:
        self._digests: dict[tuple[str, str], str] = {}

    def describe(self, configuration: Configuration) -> list[str]:
        """A digest of the description; nothing for what is measured."""
        if not is_simulated(configuration):
            return []
        key = (str(configuration["on"]), str(configuration.get("set", "")))
        if key not in self._digests:
            self._digests[key] = _description(*key)
        return [self._digests[key]]


def _description(on: str, changes: str) -> str:
    from dataclasses import asdict

    from sonda.targets.job import Job
    from sonda.targets.simulated.launcher import accelerator_of

    try:
        return _digest(asdict(accelerator_of(Job(workload="", on=on, set=changes))))
    except SondaError:
        # There is no such accelerator: the point will say so when its turn comes.
        return ""


def content_of(workload: str) -> str:
    """What a workload's name does not say: the content of somebody's own file; empty for every other workload."""
    from sonda.workloads.own_model import is_own, own_model

    return own_model(workload, {}).digest if is_own(workload) else ""


def _digest(content: Any) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
