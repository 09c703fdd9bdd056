"""The check of a study file: everything that is wrong with it, before anything runs."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sonda.record.errors import near, nearest
from sonda.studies.engine.plan import configurations, options
from sonda.studies.figures.registry import figure_names, parse_figure
from sonda.studies.file.check_protocol import SETTING_KEYS, check_no_energy_probe, check_protocol, check_settings
from sonda.studies.file.check_published import AxisNames, check_published
from sonda.studies.file.lines import Path
from sonda.studies.file.mistakes import Mistake, StudyWalk, kind_of_value
from sonda.studies.file.study import COUNTS, ENERGY_INTERLEAVED, SETTINGS, VARIANT, Configuration, Scalar, Study, key_of

STUDY_KEYS = ("name", "question", "seed", "source", "fitted", "deviations", "metrics", "compare", "base", *SETTING_KEYS)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
MOST_POINTS = 100_000


@dataclass(frozen=True)
class Vocabulary:
    """What other rooms know about the words of a study. Each answers with what is wrong, or with nothing."""

    workload: Callable[[str], str]
    option: Callable[[str, str, Scalar], str]
    """Of a workload's name, an option's name and its value, the other options being left alone."""
    configuration: Callable[[Configuration], str]
    """Of all options of a point together."""
    target: Callable[[str], str]


def check(
    document: Mapping[str, Any], lines: Mapping[Path, int], vocabulary: Vocabulary
) -> tuple[Study, tuple[Mistake, ...]]:
    """The study that a parsed file describes, and its mistakes; with any mistake the study is not fit to run."""
    walk = StudyWalk(lines)
    walk.only(document, (), ("study", "workload", "axes", "exclude", "variant", "scale", "published"))
    study = _head(walk, document)
    words = _Options(walk, vocabulary, study.protocol)
    axes_table = walk.table(document, ("axes",))
    axes = words.axes(axes_table)
    fixed = words.fixed(walk.table(document, ("workload",)), axes_table)
    variants = words.variants(walk.table(document, (VARIANT,)), axes_table)
    scales = words.scales(walk.table(document, ("scale",)), axes_table, variants)
    _check_base(walk, study.base, variants, scales)
    names = (*axes_table, VARIANT) if variants else tuple(axes_table)
    named = AxisNames(walk, names, _all_values(axes, variants, scales))
    exclude: list[dict[str, Any]] = []
    for path, row in walk.tables(document, "exclude"):
        if row in exclude:
            walk.wrong(path, "is there twice")
        elif named.condition(row, path, "excludes"):
            exclude.append(row)
    study = dataclasses.replace(
        study, workload=fixed, axes=axes, exclude=tuple(exclude), variants=variants, scales=scales
    )
    crossings = _crossings(walk, study)
    words.check_all(crossings)
    sound = not walk.mistakes and _all_have_points(walk, crossings)
    published = check_published(walk, document, study, named, sound)
    return dataclasses.replace(study, published=published), tuple(walk.mistakes)


def _head(walk: StudyWalk, document: Mapping[str, Any]) -> Study:
    path: Path = ("study",)
    if "study" not in document:
        walk.wrong(path, "is missing; begin with [study] and a name")
        return Study("", {}, {})
    table = walk.table(document, path)
    walk.only(table, path, STUDY_KEYS)
    name = walk.text(table, path, "name")
    if "name" not in table:
        walk.wrong((*path, "name"), "is missing")
    elif name and not NAME.fullmatch(name):
        walk.wrong((*path, "name"), f"{name!r} cannot be a name; use letters, digits, '.', '_' and '-'")
    metrics = walk.texts(table, path, "metrics")
    compare = walk.texts(table, path, "compare")
    for index, key in enumerate(compare):
        if key not in metrics:
            walk.wrong((*path, "compare", index), f"{key!r} is none of the study's metrics; {nearest(key, metrics)}")
    for index, key in enumerate(metrics):
        figure = parse_figure(key)
        if figure.mistake:
            walk.wrong((*path, "metrics", index), figure.mistake)
        elif not figure.measurable:
            walk.wrong((*path, "metrics", index), f"{key!r} is not a metric; {_nearest_figure(key)}")
        elif key in metrics[:index]:
            walk.wrong((*path, "metrics", index), f"{key!r} is there twice")
    return Study(
        name,
        {},
        {},
        question=walk.text(table, path, "question"),
        seed=walk.whole(table, path, "seed", 0, 2**63 - 1, 0),
        source=walk.text(table, path, "source"),
        fitted=walk.text(table, path, "fitted"),
        deviations=walk.texts(table, path, "deviations"),
        metrics=metrics,
        compare=compare,
        base=walk.text(table, path, "base"),
        **check_protocol(walk, table, path),
    )


def _nearest_figure(key: str) -> str:
    """What a figure that is none was probably meant to be."""
    whole, _, place = key.partition("@")
    near_names = near(whole, figure_names())
    meant = f"{near_names}@{place}" if place else near_names
    return f"did you mean {meant!r}?" if near_names else "name it with its unit, such as 'step_ms'"


def _check_base(
    walk: StudyWalk, base: str, variants: Mapping[str, Any], scales: Mapping[str, Mapping[str, Any]]
) -> None:
    if not base:
        return
    if base not in variants:
        walk.wrong(("study", "base"), f"{base!r} is no variant; {nearest(base, variants)}")
        return
    for name, changes in scales.items():
        if base not in changes.get(VARIANT, variants):
            walk.wrong(("scale", name, VARIANT), f"leaves out the base {base!r}, against which all others are held")


class _Options:
    """Collects the options of `[workload]`, `[axes]` and `[scale]`, then asks the vocabulary about every value."""

    def __init__(self, walk: StudyWalk, vocabulary: Vocabulary, protocol: str) -> None:
        self.walk = walk
        self.vocabulary = vocabulary
        self.protocol = protocol
        self.workloads: list[str] = []
        self.values: dict[Path, list[tuple[Path, str, Scalar]]] = {}
        """Places, names and values of the options, by the key that they stand under."""

    def axes(self, table: Mapping[str, Any]) -> dict[str, tuple[Scalar, ...]]:
        axes = {}
        for key, value in table.items():
            path: Path = ("axes", key)
            if key == "name":
                self.walk.wrong(path, "cannot be an axis; to vary the workload write: workload = [...]")
            elif not isinstance(value, list):
                self.walk.wrong(path, f"must be a list of values, not {kind_of_value(value)}")
            elif values := self.walk.scalars(value, path, self._known(key)):
                axes[key] = tuple(values)
        return axes

    def fixed(self, table: Mapping[str, Any], axes: Mapping[str, Any]) -> dict[str, Scalar]:
        fixed: dict[str, Scalar] = {}
        check_no_energy_probe(self.walk, self.protocol, table, ("workload",))
        if "name" not in table and "workload" not in axes:
            self.walk.wrong(("workload", "name"), "is missing; name a workload here, or several as the axis 'workload'")
        for key, value in table.items():
            path: Path = ("workload", key)
            option = "workload" if key == "name" else key
            if option in axes:
                self.walk.wrong(path, f"is an axis too; remove it here or from [axes] ({option})")
            elif key == "workload":
                self.walk.wrong(path, "unknown key; did you mean 'name'?")
            elif key == "seed":
                self.walk.wrong(path, "belongs to [study], or is an axis")
            elif self.walk.scalar(value, path) and self._known(option)(value, path):
                fixed[option] = value
        return fixed

    def variants(self, table: Mapping[str, Any], axes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        return {
            name: self._of_variant(variant, (VARIANT, name), axes)
            for name, variant in table.items()
            if self._is_table(variant, (VARIANT, name))
        }

    def _of_variant(self, table: Mapping[str, Any], path: Path, axes: Mapping[str, Any]) -> dict[str, Any]:
        """What a variant changes: repetitions, an axis, options."""
        own = {key: value for key, value in table.items() if key not in COUNTS}
        check_no_energy_probe(self.walk, self.protocol, own, path)
        return self._changes(own, path, axes) | self._settings(table, path, COUNTS)

    def _settings(self, table: Mapping[str, Any], path: Path, keys: Iterable[str]) -> dict[str, Any]:
        settings = {key: table[key] for key in keys if key in table}
        for key in ("energy", "energy_probe"):
            if key in settings and self.protocol != ENERGY_INTERLEAVED:
                self.walk.wrong((*path, key), f'is for protocol = "{ENERGY_INTERLEAVED}"')
        return check_settings(self.walk, settings, path)

    def scales(
        self, table: Mapping[str, Any], axes: Mapping[str, Any], variants: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        scales: dict[str, dict[str, Any]] = {}
        for name, variant in table.items():
            path: Path = ("scale", name)
            if not self._is_table(variant, path):
                continue
            own = {key: value for key, value in variant.items() if key not in (*SETTINGS, VARIANT)}
            check_no_energy_probe(self.walk, self.protocol, own, path)
            scales[name] = self._changes(own, path, axes) | self._settings(variant, path, SETTINGS)
            if VARIANT in variant:
                scales[name][VARIANT] = self._kept(variant, (*path, VARIANT), axes, variants)
        return scales

    def _kept(
        self, scale: Mapping[str, Any], path: Path, axes: Mapping[str, Any], variants: Mapping[str, Any]
    ) -> list[str] | dict[str, dict[str, Any]]:
        """The variants that a scale keeps: a list of names, or tables with what it changes of each."""
        tables = isinstance(scale[VARIANT], dict)
        names = list(scale[VARIANT]) if tables else list(self.walk.texts(scale, path[:-1], VARIANT))
        for index, word in enumerate(names):
            if word not in variants:
                place = word if tables else index
                self.walk.wrong((*path, place), f"{word!r} is no variant; {nearest(word, variants)}")
        if not tables:
            return names
        return {
            name: self._of_variant(variant, (*path, name), axes)
            for name, variant in scale[VARIANT].items()
            if self._is_table(variant, (*path, name))
        }

    def _is_table(self, value: Any, path: Path) -> bool:
        if not isinstance(value, dict):
            self.walk.wrong(path, f"must be a table [{path[0]}.NAME], not {kind_of_value(value)}")
        return isinstance(value, dict)

    def _changes(self, table: Mapping[str, Any], path: Path, axes: Mapping[str, Any]) -> dict[str, Any]:
        """What a scale or a variant changes: an axis is replaced, other options are set."""
        changes: dict[str, Any] = {}
        for key, value in table.items():
            place = (*path, key)
            known = self._known(key)
            if key in axes and isinstance(value, list):
                changes[key] = self.walk.scalars(value, place, known)
            elif key in ("name", "workload", "seed") and key not in axes:
                self.walk.wrong(place, f"cannot be changed by a {path[0]} unless it is an axis")
            elif self.walk.scalar(value, place) and known(value, place):
                changes[key] = value
        return changes

    def check_all(self, crossings: list[tuple[Path, list[Configuration]]]) -> None:
        """Ask about every option by itself, and about all options of every configuration together.

        A value that is wrong by itself but right in a configuration is right: it needs the others' company.
        What is said of a configuration counts where none of its options was found to be wrong.
        """
        right: set[tuple[str, str]] = set()
        failing: list[tuple[Path, Configuration, str]] = []
        for path, crossing in crossings:
            for configuration in crossing:
                if "workload" not in configuration:
                    continue
                if problem := self.vocabulary.configuration(configuration):
                    failing.append((path, configuration, problem))
                else:
                    right |= _pairs(configuration)
        wrong: set[tuple[str, str]] = set()
        known = [name for name in dict.fromkeys(self.workloads) if not self.vocabulary.workload(name)]
        for places in self.values.values():
            problems = {path: self._problem(known, key, value) for path, key, value in places}
            places = [place for place in places if problems[place[0]] and not _pairs_of([place]) <= right]
            wrong |= _pairs_of(places)
            texts = {problems[path] for path, _, _ in places}
            if len(texts) == 1 and len(places) == len(problems) > 1:
                # The same is said of every value: it is the option itself that is wrong.
                self.walk.wrong(places[0][0][:-1], texts.pop())
            else:
                for path, _, _ in places:
                    self.walk.wrong(path, problems[path])
        for path, configuration, problem in failing:
            if not _pairs(configuration) & wrong:
                self.walk.wrong(path, problem)

    def _problem(self, workloads: list[str], key: str, value: Scalar) -> str:
        return next((text for name in workloads if (text := self.vocabulary.option(name, key, value))), "")

    def _known(self, key: str) -> Callable[[Any, Path], bool]:
        def check(value: Any, path: Path) -> bool:
            problem = ""
            if key in ("workload", "on", "framework") and not isinstance(value, str):
                problem = f"must be text, not {kind_of_value(value)}"
            elif key == "workload":
                problem = self.vocabulary.workload(value)
                self.workloads.append(value)
            elif key == "on":
                problem = self.vocabulary.target(value)
            else:
                under = path[:-1] if isinstance(path[-1], int) else path
                self.values.setdefault(under, []).append((path, key, value))
            if problem:
                self.walk.wrong(path, problem)
            return not problem

        return check


def _pairs(configuration: Configuration) -> set[tuple[str, str]]:
    return {(key, repr(value)) for key, value in configuration.items()}


def _pairs_of(places: Iterable[tuple[Path, str, Scalar]]) -> set[tuple[str, str]]:
    return {(key, repr(value)) for _, key, value in places}


def _all_values(
    axes: Mapping[str, tuple[Scalar, ...]], variants: Mapping[str, Mapping[str, Any]], scales: Mapping[str, Any]
) -> dict[str, Any]:
    """Every value that an axis has anywhere in the study, the names of variants among them."""
    every_value: dict[str, Any] = {key: list(values) for key, values in axes.items()}
    for changes in (*variants.values(), *scales.values()):
        for key in set(changes) & set(every_value):
            every_value[key] += changes[key] if isinstance(changes[key], list) else [changes[key]]
    return every_value | {VARIANT: list(variants)}


def _crossings(walk: StudyWalk, study: Study) -> list[tuple[Path, list[Configuration]]]:
    """The configurations of the study as it is and at each of its scales, with the key that makes them."""
    crossings: list[tuple[Path, list[Configuration]]] = []
    places: list[tuple[Path, Study]] = [(("axes",), study)]
    places += [(("scale", name), study.at_scale(name)) for name in study.scales]
    too_many: set[int] = set()
    for path, place in places:
        size = sum(
            math.prod(len(values) for values in part.axes.values()) * (part.repeat + part.energy)
            for _, part in place.parts()
        )
        if size <= MOST_POINTS:
            crossings.append((path, configurations(place)))
            if not walk.mistakes:
                _no_twins(walk, crossings[-1][1])
        elif size not in too_many:  # a scale that leaves the number alone is no mistake of its own
            too_many.add(size)
            walk.wrong(path, f"makes {size} points, more than {MOST_POINTS}; leave out values or repetitions")
    return crossings


def _no_twins(walk: StudyWalk, crossed: list[Configuration]) -> None:
    """Two variants that measure the same thing are a mistake: one would be shown in the other's name."""
    seen: dict[str, Scalar] = {}
    for configuration in crossed:
        name = configuration.get(VARIANT, "")
        first = seen.setdefault(key_of(options(configuration)), name)
        if first != name:
            walk.wrong((VARIANT, str(name)), f"measures what the variant {first!r} does; change an option")
            return


def _all_have_points(walk: StudyWalk, crossings: list[tuple[Path, list[Configuration]]]) -> bool:
    for path, crossing in crossings:
        if not crossing:
            walk.wrong(path, "leaves no point: everything is excluded")
    return not walk.mistakes
