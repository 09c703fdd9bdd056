"""The plan of a study: which points are measured, and in which order."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from dataclasses import dataclass
from typing import Any

from sonda.record.errors import SondaError
from sonda.studies.study import VARIANT, Configuration, Study, matches


@dataclass(frozen=True)
class Point:
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

    def record(self) -> dict[str, Any]:
        """What `run.json` keeps of the point."""
        return {**self.configuration, "repetition": self.repetition}


def study_identity(study: Study) -> str:
    """16 hexadecimal digits that change when the measurements do.

    Fixed options, seed and protocol count; prose, published figures and the number of repetitions do not. The values of
    the axes count in each point's own identity, so that a study that gains a value keeps what it has measured.
    """
    return _digest([study.name, study.protocol, study.seed, study.workload])


def configurations(study: Study) -> list[Configuration]:
    """Variant by variant the axes crossed, the first varying slowest, without what is excluded."""
    found = []
    for name, part in study.parts():
        fixed: Configuration = {VARIANT: name} if name else {}
        fixed |= {"seed": part.seed, **part.workload}
        crossed = [
            {**fixed, **dict(zip(part.axes, values, strict=True))} for values in itertools.product(*part.axes.values())
        ]
        found += [one for one in crossed if not any(matches(exclude, one) for exclude in part.exclude)]
    return found


def plan(study: Study) -> list[Point]:
    """The points in the order in which they are measured.

    `plain`: all repetitions of a configuration in a row. `interleaved`: every configuration once, then every one again,
    in an order shuffled by the study's seed, so that a machine that drifts does not favour one of them. What is
    simulated is the same every time, and has one repetition.
    """
    identity = study_identity(study)
    wanted = configurations(study)
    content = {name: _content(name) for name in {str(one.get("workload", "")) for one in wanted}}
    rounds = range(1, study.repeat + 1)
    if study.protocol == "plain":
        order = [(configuration, repetition) for configuration in wanted for repetition in rounds]
    else:
        order = []
        for repetition in rounds:
            shuffled = list(wanted)
            random.Random(f"{study.seed}/{repetition}").shuffle(shuffled)
            order += [(configuration, repetition) for configuration in shuffled]
    points = []
    machines = _Machines()
    for configuration, repetition in order:
        if repetition > 1 and simulated(configuration):
            continue
        group = [identity, options(configuration), content[str(configuration.get("workload", ""))]]
        group += machines.described(configuration)
        points.append(Point(study.name, configuration, repetition, _digest([*group, repetition]), _digest(group)))
    return points


def size(study: Study) -> int:
    """How many points the plan has."""
    return sum(1 if simulated(one) else study.repeat for one in configurations(study))


def options(configuration: Configuration) -> Configuration:
    """What is measured, whatever the variant is called."""
    return {key: value for key, value in configuration.items() if key != VARIANT}


def simulated(configuration: Configuration) -> bool:
    """Whether the configuration runs on a simulated accelerator."""
    return str(configuration.get("on", "")).startswith("sim:")


class _Machines:
    """What the name of a simulated accelerator does not say: its description, read once for each."""

    def __init__(self) -> None:
        self._digests: dict[tuple[str, str], str] = {}

    def described(self, configuration: Configuration) -> list[str]:
        """A digest of the description; nothing for what is measured."""
        if not simulated(configuration):
            return []
        key = (str(configuration["on"]), str(configuration.get("set", "")))
        if key not in self._digests:
            self._digests[key] = _description(*key)
        return [self._digests[key]]


def _description(on: str, changes: str) -> str:
    from dataclasses import asdict

    from sonda.targets.job import Job
    from sonda.targets.simulated import accelerator_of

    try:
        return _digest(asdict(accelerator_of(Job(workload="", on=on, set=changes))))
    except SondaError:
        # There is no such accelerator: the point will say so when its turn comes.
        return ""


def _content(workload: str) -> str:
    """What a workload's name does not say: the content of somebody's own file; empty for every other workload."""
    from sonda.workloads.own import is_own, own_model

    return own_model(workload, {}).digest if is_own(workload) else ""


def _digest(content: Any) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
