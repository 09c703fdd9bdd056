"""A study: a designed experiment, checked and ready to be planned."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sonda.record.errors import SondaError
from sonda.studies.mistake import nearest

Scalar = str | int | float | bool
Configuration = dict[str, Scalar]
"""Options of a measurement by name: `workload`, `on`, `framework`, `seed`, and options of the run and the workload."""

PROTOCOLS = ("interleaved", "plain")


@dataclass(frozen=True)
class Published:
    """Figures that somebody printed, and for which configurations they stand beside ours."""

    where: dict[str, Any]
    figures: dict[str, float]
    """By name and unit: `step_ms`, `mflops`, `energy_J`."""
    source: str
    """Title, authors, table: where a reader finds the figures."""
    hardware: str = ""
    """What they were measured on, in the words of their authors."""
    note: str = ""


@dataclass(frozen=True)
class Study:
    """What a study file says, with `[scale.NAME]` not applied unless `scale` names it."""

    name: str
    workload: Configuration
    """Fixed options; `workload` is the name of the workload."""
    axes: dict[str, tuple[Scalar, ...]]
    question: str = ""
    repeat: int = 1
    protocol: str = "interleaved"
    seed: int = 0
    source: str = ""
    """The publication that the study repeats."""
    deviations: tuple[str, ...] = ()
    """What differs from the published experiment, in sentences."""
    metrics: tuple[str, ...] = ()
    """What the table shows, by name and unit; empty: a choice that suits every workload."""
    exclude: tuple[dict[str, Any], ...] = ()
    scales: dict[str, dict[str, Any]] = field(default_factory=dict)
    published: tuple[Published, ...] = ()
    scale: str = ""
    """The scale that was applied."""

    def at_scale(self, name: str) -> Study:
        """This study with the changes of `[scale.NAME]`; an axis is replaced, `repeat` too, other options are set."""
        if name not in self.scales:
            remedy = f"its scales: {', '.join(self.scales)}" if self.scales else "it has no [scale.NAME]"
            near = nearest(name, self.scales) if self.scales else ""
            raise SondaError(f"study {self.name} has no scale {name!r}", near if "did you mean" in near else remedy)
        axes, workload, repeat = dict(self.axes), dict(self.workload), self.repeat
        for key, value in self.scales[name].items():
            if key == "repeat":
                repeat = value
            elif key in axes:
                axes[key] = tuple(value) if isinstance(value, list) else (value,)
            else:
                workload[key] = value
        return dataclasses.replace(self, axes=axes, workload=workload, repeat=repeat, scale=name)


def matches(where: Mapping[str, Any], configuration: Mapping[str, Scalar]) -> bool:
    """Whether a configuration has all these values; a list of values means any of them."""
    return all(
        key in configuration and any(same(configuration[key], value) for value in _listed(values))
        for key, values in where.items()
    )


def same(one: object, other: object) -> bool:
    """Equal as values of a study: `true` is not 1, but 2 is 2.0."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _listed(values: Any) -> list[Any]:
    return values if isinstance(values, list) else [values]
