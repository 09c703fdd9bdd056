"""The probes `energy` and `energy-model` of any target: asked for by name, read around a program, added to its run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sonda.probes.energy import INTERVAL_S, Energy, EnergySampler, check_times
from sonda.probes.energy_attribution import attribute
from sonda.probes.power_model import parse_model
from sonda.record.errors import SondaError
from sonda.record.sample import Sample
from sonda.record.saying import Expected, Say
from sonda.record.span import Spans
from sonda.targets.spec import seconds_of

ENERGY, MODEL, METERED = "energy", "energy-model", "metered"
"""Two probes, and where a run's `target` keeps what they found."""
IDLE_S = 2.0
"""s of idling before a program: 20 updates of a GPU's counter."""


@dataclass(frozen=True)
class Asked:
    """How energy is to be read. `root` stands in for `/`."""

    interval: float = INTERVAL_S
    """s."""
    idle: float = IDLE_S
    """s before the program starts; 0: idle power is not measured."""
    model: str = ""
    """`cpu=20..95+ram=4..12+gpu=60..700`: W at rest and under full load, for an estimate."""
    root: Path = Path("/")
    gpus: bool = True


def asked(probes: Sequence[str] | str) -> Asked | None:
    """What the probes ask for: `energy`, `energy:10ms+idle=0s`, `energy-model:cpu=20..95+gpu=60..700`; None: nothing
    of energy.

    Raises SondaError for an option that is none.
    """
    found: dict[str, Any] = {}
    wanted = False
    for word in probes.split(",") if isinstance(probes, str) else probes:
        name, _, rest = word.strip().partition(":")
        if name == MODEL:
            wanted, found["model"] = True, rest
            parse_model(rest)
        elif name == ENERGY:
            wanted = True
            for option in (one for one in rest.split("+") if one):
                idle = option.removeprefix("idle=")
                found["interval" if idle == option else "idle"] = _seconds(idle)
    if not wanted:
        return None
    check_times(found.get("interval", INTERVAL_S), found.get("idle", IDLE_S))
    return Asked(**found)


def asked_for_command(interval: str, idle: str, model: str) -> Asked:
    """The options of `sonda energy`. Raises SondaError for what is no time or no model."""
    if model:
        parse_model(model)
    found = Asked(interval=_seconds(interval), idle=_seconds(idle), model=model)
    check_times(found.interval, found.idle)
    return found


def _seconds(text: str) -> float:
    """`2s`, `500ms`, `0`. Raises SondaError for anything else."""
    seconds = seconds_of(text)
    if seconds is None:
        raise SondaError(f"{text!r} is not a time", "write it like 500ms or 2s")
    return seconds


@dataclass
class Sampling:
    """What reading energy adds to a run; without `sampler` it adds nothing."""

    sampler: EnergySampler | None = None
    energy: Energy | None = None
    used: list[str] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """Variables that the program needs, so that it can announce regions."""
        return dict(self.sampler.environment) if self.sampler is not None else {}

    def finish(
        self, begin: int, end: int, used: Collection[str] = ("cpu",), identities: Mapping[str, str] | None = None
    ) -> None:
        """Take what was read, after the context has ended; the program ran from `begin` to `end` (ns) on `used`.

        `identities` are those of its GPUs, where it said them: it may number them in another way than we do.
        """
        if self.sampler is not None:
            self.energy = self.sampler.result(begin, end)
            here = {identity: device for device, identity in self.energy.readings.identities.items()}
            self.used = [here.get((identities or {}).get(device, ""), device) for device in used]

    @property
    def samples(self) -> list[Sample]:
        return self.energy.samples if self.energy is not None else []

    @property
    def target(self) -> dict[str, Any]:
        """What a run's `target` says of energy."""
        if self.energy is None:
            return {}
        return {
            METERED: {**self.energy.facts, "used": self.used, "regions": [list(one) for one in self.energy.regions]}
        }

    def added(self, spans: Spans) -> Spans:
        """The spans with their energy."""
        if self.energy is None:
            return spans
        columns = attribute(spans, self.energy.readings, self.energy.origin, self.used or None)
        spans.metrics.update(columns)
        return spans

    def said(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a run's `info` with what is to be said of energy."""
        if self.energy is None:
            return dict(fields)
        known = {one.name for one in self.energy.states}
        probes = [one for one in fields["probes"] if one.name not in known]
        return {
            **fields,
            "probes": [*probes, *self.energy.states],
            "notes": [*fields["notes"], *self.energy.notes],
        }


@contextmanager
def sampling(wanted: Asked | None, directory: Path, say: Say = lambda text: None) -> Iterator[Sampling]:
    """Read energy while the context lasts, where it is asked for; the sampler's files go to `directory`."""
    if wanted is None:
        yield Sampling()
        return
    if wanted.idle:
        say(Expected(f"measuring idle power for {wanted.idle:g} s", wanted.idle))
    sampler = EnergySampler(
        directory, wanted.interval, wanted.idle, root=wanted.root, gpus=wanted.gpus, model=wanted.model
    )
    with sampler:
        yield Sampling(sampler)
