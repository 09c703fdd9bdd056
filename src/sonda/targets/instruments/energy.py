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
from sonda.targets.instrument import AROUND, Contribution, EndedRun, Instrument, RunPlan
from sonda.targets.job import ProbeWord, split_probes
from sonda.targets.target import parse_seconds

ENERGY, MODEL, METERED = "energy", "energy-model", "metered"
"""Two probes, and where a run's `target` keeps what they found."""
IDLE_S = 2.0
"""s of idling before a program: 20 updates of a GPU's counter."""


@dataclass(frozen=True)
class EnergySettings:
    """How energy is to be read. `root` stands in for `/`."""

    interval: float = INTERVAL_S
    """s."""
    idle: float = IDLE_S
    """s before the program starts; 0: idle power is not measured."""
    model: str = ""
    """`cpu=20..95+ram=4..12+gpu=60..700`: W at rest and under full load, for an estimate."""
    root: Path = Path("/")
    gpus: bool = True


def parse_energy_probes(probes: Sequence[str] | str) -> EnergySettings | None:
    """Settings from the words of `--probe`: `energy`, `energy:10ms+idle=0s`, `energy-model:cpu=20..95+gpu=60..700`.

    None where no word is about energy. Raises SondaError for an unknown option.
    """
    settings: dict[str, Any] = {}
    requested = False
    for word in split_probes(probes):
        if word.name == MODEL:
            requested, settings["model"] = True, word.written
            parse_model(word.written)
        elif word.name == ENERGY:
            requested = True
            for option in word.options:
                idle = option.removeprefix("idle=")
                settings["interval" if idle == option else "idle"] = _require_seconds(idle)
    if not requested:
        return None
    check_times(settings.get("interval", INTERVAL_S), settings.get("idle", IDLE_S))
    return EnergySettings(**settings)


def parse_energy_options(interval: str, idle: str, model: str) -> EnergySettings:
    """Settings from the options of `sonda energy`. Raises SondaError for what is no time or no model."""
    if model:
        parse_model(model)
    settings = EnergySettings(interval=_require_seconds(interval), idle=_require_seconds(idle), model=model)
    check_times(settings.interval, settings.idle)
    return settings


def _require_seconds(text: str) -> float:
    """`2s`, `500ms`, `0`. Raises SondaError for anything else."""
    seconds = parse_seconds(text)
    if seconds is None:
        raise SondaError(f"{text!r} is not a time", "write it like 500ms or 2s")
    return seconds


class EnergyInstrument(Instrument):
    """Reads energy from before a program starts until it ends.

    `required`: raise SondaError where nothing can be read.
    """

    needs = frozenset({AROUND})

    def __init__(self, settings: EnergySettings, required: bool = False) -> None:
        self.settings = settings
        self.required = required
        self.sampler: EnergySampler | None = None

    @classmethod
    def from_words(cls, words: Sequence[ProbeWord]) -> EnergyInstrument:
        return cls(parse_energy_probes([word.text for word in words]) or EnergySettings())

    def prepare(self, plan: RunPlan) -> Mapping[str, str]:
        settings = self.settings
        self.sampler = EnergySampler(
            plan.directory,
            settings.interval,
            settings.idle,
            root=settings.root,
            gpus=settings.gpus,
            model=settings.model,
        )
        return self.sampler.environment  # by which the program can announce regions

    @contextmanager
    def around(self, plan: RunPlan) -> Iterator[None]:
        assert self.sampler is not None
        if self.settings.idle:
            plan.say(Expected(f"measuring idle power for {self.settings.idle:g} s", self.settings.idle))
        with self.sampler:
            if self.required:
                _require_sensor(self.sampler)
            yield

    def collect(self, ended_run: EndedRun) -> Contribution:
        assert self.sampler is not None
        observation = ended_run.observation
        energy = self.sampler.result(observation.begin, observation.end)
        used = devices_used(energy, observation.used, observation.identities)
        ended_run.spans.metrics.update(attribute_energy(ended_run.spans, energy.readings, energy.origin, used or None))
        facts = msgspec.structs.replace(energy.facts, used=used, regions=energy.regions)
        return Contribution(
            ended_run.spans, {METERED: msgspec.to_builtins(facts)}, energy.states, energy.notes, energy.samples
        )


def devices_used(energy: EnergyMeasurement, used: Sequence[str] | None, identities: Mapping[str, str]) -> list[str]:
    """The devices that a program used, by Sonda's names. `identities` has the UUIDs of GPUs by the program's names.

    Where `used` is None: the processor, and every GPU that was busy at any time while the program ran.
    """
    if used is None:
        busy = {
            sample.device
            for sample in energy.samples
            if sample.sensor == "utilisation" and sample.value > 0 and sample.time >= 0
        }
        return ["cpu", *sorted(busy)]
    by_identity = {identity: device for device, identity in energy.readings.identities.items()}
    return [by_identity.get(identities.get(device, ""), device) for device in used]


def _require_sensor(sampler: EnergySampler) -> None:
    """Raise SondaError where the sampler can read nothing, before the program runs in vain."""
    state = sampler.check_readable()
    if state.state != "ok":
        raise SondaError(
            f"no energy can be read: {state.reason}",
            f"{state.remedy or 'see: sonda doctor'}; or estimate it from the processor's watts: --model cpu=20..95",
        )
