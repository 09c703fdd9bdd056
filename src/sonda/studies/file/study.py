"""A study: a designed experiment, checked and ready to be planned."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sonda.record.errors import SondaError, nearest

Scalar = str | int | float | bool
Configuration = dict[str, Scalar]
"""Options of a measurement by name: `workload`, `on`, `framework`, `seed`, and options of the run and the workload."""

INTERLEAVED, PLAIN, ENERGY_INTERLEAVED = PROTOCOLS = ("interleaved", "plain", "energy-interleaved")
"""Orders in which points are measured; see `plan_points`."""
VARIANT = "variant"
"""The key under which a configuration has the name of its variant; no option of a measurement."""

COUNTS = ("repeat", "energy")
"""Keys of [study] that a variant may change; a scale's are the most that any variant has."""
SETTINGS = (*COUNTS, "energy_probe", "cool_down_s", "rest_s")
"""Keys of [study] that a scale may change."""

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
    """Processes of each configuration whose time is measured."""
    protocol: str = INTERLEAVED
    energy: int = 0
    """Processes of each configuration whose energy is measured, and whose times are not used."""
    energy_probe: str = "energy"
    """Probes of the energy runs."""
    cool_down_s: float = 0.0
    """The most s that are waited before a run until the machine is as cool as at the beginning; 0: no waiting."""
    rest_s: float = 0.0
    """s that are waited instead where no temperature can be read."""
    seed: int = 0
    source: str = ""
    """The publication that the study repeats."""
    fitted: str = ""
    """What of it was chosen to come close to the published figures, as words after "With": it is said first."""
    deviations: tuple[str, ...] = ()
    """What differs from the published experiment, in sentences."""
    metrics: tuple[str, ...] = ()
    """What the table shows, by name and unit; empty: a choice that suits every workload."""
    compare: tuple[str, ...] = ()
    """Metrics by which variants stand side by side."""
    base: str = ""
    """The variant that all others are held against, in speed-ups and ratios."""
    statistics: tuple[str, ...] = ()
    """What the table shows of repetitions beside the median: mean, minimum, maximum."""
    exclude: tuple[dict[str, Any], ...] = ()
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By name, in the order of the file: what each changes. A study without variants is one by itself."""
    scales: dict[str, dict[str, Any]] = field(default_factory=dict)
    published: tuple[Published, ...] = ()
    scale: str = ""
    """The scale that was applied."""

    def at_scale(self, name: str) -> Study:
        """This study with the changes of `[scale.NAME]`; an axis is replaced, `repeat` too, other options are set.

        `variant` names the variants that are kept, in a list, or in tables with what the scale changes of each.
        """
        if name not in self.scales:
            remedy = f"its scales: {', '.join(self.scales)}" if self.scales else "it has no [scale.NAME]"
            near = nearest(name, self.scales) if self.scales else ""
            raise SondaError(f"study {self.name} has no scale {name!r}", near if "did you mean" in near else remedy)
        changes = dict(self.scales[name])
        kept_variants = changes.pop(VARIANT, self.variants)
        own = kept_variants if isinstance(kept_variants, Mapping) else {}
        variants = {
            name: {**self.variants[name], **own.get(name, {})} for name in self.variants if name in kept_variants
        }
        most = {key: changes[key] for key in COUNTS if key in changes}
        return dataclasses.replace(self._with(changes), variants=variants, scale=name).at_most(most)

    def at_most(self, counts: Mapping[str, int]) -> Study:
        """This study with so many repetitions and energy runs; a variant that has fewer of its own keeps them."""
        variants = {
            name: {key: min(value, counts[key]) if key in counts else value for key, value in changes.items()}
            for name, changes in self.variants.items()
        }
        return dataclasses.replace(self._with(counts), variants=variants)

    def with_data(self, folder: str) -> Study:
        """This study on other images; raises SondaError where it reads none."""
        changed = (key for changes in self.variants.values() for key in changes)
        settled = {key for key, value in self.workload.items() if value}.union(self.axes, changed)
        if settled.isdisjoint(("epochs", "trained", "data")):
            raise SondaError(f"study {self.name} reads no images", "leave out --data")
        return self._with({"data": folder})

    def parts(self) -> list[tuple[str, Study]]:
        """Its variants by name, each as a study by itself; without variants the study itself, under no name."""
        if not self.variants:
            return [("", self)]
        alone = dataclasses.replace(self, variants={})
        return [(name, alone._with(changes)) for name, changes in self.variants.items()]

    def _with(self, changes: Mapping[str, Any]) -> Study:
        """An axis is replaced, other options are set."""
        axes, workload = dict(self.axes), dict(self.workload)
        settings: dict[str, Any] = {}
        for key, value in changes.items():
            if key in axes:
                axes[key] = tuple(value) if isinstance(value, list) else (value,)
            elif key in SETTINGS:
                settings[key] = value
            else:
                workload[key] = value
        return dataclasses.replace(self, axes=axes, workload=workload, **settings)


def matches(where: Mapping[str, Any], configuration: Mapping[str, Scalar]) -> bool:
    """Whether a configuration has all these values; a list of values means any of them."""
    return all(
        key in configuration and any(is_same(configuration[key], value) for value in _as_list(values))
        for key, values in where.items()
    )


def key_of(configuration: Mapping[str, Scalar]) -> str:
    """A configuration as something to look up by, in whatever order its options are."""
    return repr(sorted(configuration.items()))


def is_same(first: object, second: object) -> bool:
    """Equal as values of a study: `true` is not 1, but 2 is 2.0."""
    return isinstance(first, bool) == isinstance(second, bool) and first == second


def _as_list(values: Any) -> list[Any]:
    return values if isinstance(values, list) else [values]
