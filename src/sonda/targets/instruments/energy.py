"""The probes `energy` and `energy-model` of any target: asked for by name, read around a program, added to its run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from sonda.probes.energy.attribution import attribute_energy
from sonda.probes.energy.meter import INTERVAL_S, EnergyMeasurement, EnergySampler, check_times
from sonda.probes.energy.model import parse_model
from sonda.record.errors import SondaError
from sonda.record.progress import Expected
from sonda.targets.instrument import AROUND, Contribution, Instrument, RunPlan, Seen
from sonda.targets.job import split_probes
from sonda.targets.target import seconds_of

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
    for word in split_probes(probes):
        if word.name == MODEL:
            wanted, found["model"] = True, word.written
            parse_model(word.written)
        elif word.name == ENERGY:
            wanted = True
            for option in word.options:
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


class EnergyInstrument(Instrument):
    """Reads energy while a program runs, from before its start. `required`: refuses where nothing can be read."""

    needs = frozenset({AROUND})

    def __init__(self, wanted: Asked, required: bool = False) -> None:
        self.wanted = wanted
        self.required = required
        self.sampler: EnergySampler | None = None

    def prepare(self, plan: RunPlan) -> Mapping[str, str]:
        wanted = self.wanted
        self.sampler = EnergySampler(
            plan.directory, wanted.interval, wanted.idle, root=wanted.root, gpus=wanted.gpus, model=wanted.model
        )
        return self.sampler.environment  # by which the program can announce regions

    @contextmanager
    def around(self, plan: RunPlan) -> Iterator[None]:
        assert self.sampler is not None
        if self.wanted.idle:
            plan.say(Expected(f"measuring idle power for {self.wanted.idle:g} s", self.wanted.idle))
        with self.sampler:
            if self.required:
                _refuse_nothing(self.sampler)
            yield

    def collect(self, seen: Seen) -> Contribution:
        assert self.sampler is not None
        observation = seen.observation
        energy = self.sampler.result(observation.begin, observation.end)
        used = devices_used(energy, observation.used, observation.identities)
        seen.spans.metrics.update(attribute_energy(seen.spans, energy.readings, energy.origin, used or None))
        facts = msgspec.structs.replace(energy.facts, used=used, regions=energy.regions)
        return Contribution(
            seen.spans, {METERED: msgspec.to_builtins(facts)}, energy.states, energy.notes, energy.samples
        )


def devices_used(energy: EnergyMeasurement, used: Sequence[str] | None, identities: Mapping[str, str]) -> list[str]:
    """The devices that a program used, by our names; it may number GPUs in another way, and then says who they are.

    Where nobody knows which it used: the processor, and every GPU that was busy at any time while it ran.
    """
    if used is None:
        busy = {
            sample.device
            for sample in energy.samples
            if sample.sensor == "utilisation" and sample.value > 0 and sample.time >= 0
        }
        return ["cpu", *sorted(busy)]
    here = {identity: device for device, identity in energy.readings.identities.items()}
    return [here.get(identities.get(device, ""), device) for device in used]


def _refuse_nothing(sampler: EnergySampler) -> None:
    """Raise SondaError where the sampler has nothing to read: the program would run for nothing."""
    state = sampler.check_readable()
    if state.state != "ok":
        raise SondaError(
            f"no energy can be read: {state.reason}",
            f"{state.remedy or 'see: sonda doctor'}; or estimate it from the processor's watts: --model cpu=20..95",
        )
