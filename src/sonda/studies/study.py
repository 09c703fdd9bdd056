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
VARIANT = "variant"
"""The key under which a configuration has the name of its variant; no option of a measurement."""

Printed = float | tuple[float, float]
"""A printed figure: a number, or the two ends of a range."""


@dataclass(frozen=True)
class Published:
    """Figures that somebody printed, and for which configurations they stand beside ours."""

    where: dict[str, Any]
    figures: Mapping[str, Printed]
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
    compare: tuple[str, ...] = ()
    """Metrics by which variants stand side by side."""
    exclude: tuple[dict[str, Any], ...] = ()
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By name, in the order of the file: what each changes. A study without variants is one by itself."""
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
        changes = dict(self.scales[name])
        kept = changes.pop(VARIANT, list(self.variants))
        variants = {one: self.variants[one] for one in self.variants if one in kept}
        repeat = changes.pop("repeat", self.repeat)
        return dataclasses.replace(self._with(changes), repeat=repeat, variants=variants, scale=name)

    def parts(self) -> list[tuple[str, Study]]:
        """Its variants by name, each as a study by itself; without variants the study itself, under no name."""
        if not self.variants:
            return [("", self)]
        alone = dataclasses.replace(self, variants={})
        return [(name, alone._with(changes)) for name, changes in self.variants.items()]

    def _with(self, changes: Mapping[str, Any]) -> Study:
        """An axis is replaced, other options are set."""
        axes, workload = dict(self.axes), dict(self.workload)
        for key, value in changes.items():
            if key in axes:
                axes[key] = tuple(value) if isinstance(value, list) else (value,)
            else:
                workload[key] = value
        return dataclasses.replace(self, axes=axes, workload=workload)


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
