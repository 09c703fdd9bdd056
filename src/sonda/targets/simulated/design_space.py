"""Exploring: a program on every accelerator of a grid of settings, all at once.

The cycles of an engine depend on its own fields only; those that memory adds depend on the memory's fields too. So
every engine is simulated once for each of its designs. The grid is then composed of these parts, as arrays with an axis
for every field that varies. One more point costs a few additions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.description.accelerator import Accelerator
from sonda.accelerators.description.fields import DescriptionMistakes
from sonda.accelerators.description.settings import AND as AND
from sonda.accelerators.description.settings import APART as APART
from sonda.accelerators.description.settings import (
    Path,
    apply_settings,
    change_engine,
    change_memory,
    describe_memory,
    field_changes,
    field_paths,
    split_values,
)
from sonda.accelerators.designs.costs import Costs, costs_of
from sonda.accelerators.designs.work import EngineWork
from sonda.accelerators.energy.area import buffer_area
from sonda.accelerators.energy.charges import FIGURES, Charges, add_known
from sonda.accelerators.energy.table import load_energy_table
from sonda.accelerators.mapping.placement import SEARCHED, Placement
from sonda.accelerators.memory.hierarchy import Memory
from sonda.record.errors import SondaError

Numbers = NDArray[np.float64]
MAPPING = "mapping"
FIXED = "fixed "
"""Prefix of the keys of settings that do not vary, so that they are not taken for axes of the same name."""
Made = TypeVar("Made")


@dataclass(frozen=True)
class GridPoints:
    """Every point of a grid, the last axis fastest. An impossible point has a reason; its counts are 0, figures NaN."""

    axes: dict[str, tuple[str, ...]]
    """The fields that this accelerator has, and their values."""
    cycles: NDArray[np.int64]
    """With the cycles in which engines wait for memory."""
    memory_cycles: NDArray[np.int64]
    dram_bytes: NDArray[np.int64]
    energy: Numbers
    """Points x (value, low, high) in `units[0]`; NaN where it is not known."""
    area: Numbers
    """The same in `units[1]`: of the engines that work, and one global buffer for all of them."""
    reasons: tuple[str, ...]
    """Texts that points refer to, the first is '': why points are impossible, and what runs on the host."""
    impossible: NDArray[np.int32]
    """Index in `reasons` of why a point is impossible; 0 where it is possible."""
    unpriced: NDArray[np.int32]
    """Index in `reasons` of why a point has no energy; 0 where it has one."""
    on_host: NDArray[np.int32]
    """Index in `reasons` of the kinds of operation that no engine takes. Points that differ in it do other work."""
    units: tuple[str, str]
    missing: tuple[str, ...]
    """What was counted without an entry in the energy table."""
    recalled: tuple[str, ...]
    """Entries used that nobody has verified."""


def explore(
    work: EngineWork,
    accelerator: Accelerator,
    axes: Mapping[str, Sequence[str]],
    mapping: str = "",
    fixed: Mapping[str, str] | None = None,
) -> GridPoints:
    """The program on the accelerator with every combination of these settings.

    A field that the accelerator does not have is left out of the grid. `mapping` and the `fixed` settings hold for all
    points as far as they do not vary. Raises SondaError where two axes change the same field, or where energy tables
    do not count in the same units.
    """
    return _Grid(work, accelerator, axes, mapping, fixed or {}).points()


def values_by_field(axes: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """The values of every single field: those of fields that vary in step are separated."""
    apart: dict[str, tuple[str, ...]] = {}
    for key, values in axes.items():
        columns = zip(*(split_values(key, value) for value in values), strict=True)
        apart |= dict(zip(key.split(AND), columns, strict=True))
    return apart


def refusal_of_field(accelerator: Accelerator, key: str) -> SondaError | None:
    """Why a field of this accelerator cannot vary; None where it can."""
    try:
        if key != MAPPING:
            field_paths(accelerator, key)
    except SondaError as error:
        return error
    return None


def needed_patterns(
    accelerator: Accelerator, axes: Mapping[str, Sequence[str]], fixed: Mapping[str, str]
) -> frozenset[str]:
    """Kinds of operation for which some point of the grid must know where the zeros are."""
    axes = {**{key: (value,) for key, value in fixed.items()}, **axes}
    routing = [
        key for key in axes if key != MAPPING and refusal_of_field(accelerator, key) is None
        and any(path[0] == "route" or path[2:] == ("kind",) for path in field_paths(accelerator, key))
    ]  # fmt: skip
    kinds: set[str] = set()
    for chosen in itertools.product(*(axes[key] for key in routing)):
        changed_accelerator = _try_to_make(apply_settings, accelerator, dict(zip(routing, chosen, strict=True)))
        if not isinstance(changed_accelerator, SondaError):
            kinds |= Placement(changed_accelerator).patterns()
    return frozenset(kinds)


class _Grid:
    """Fills the grid slice by slice. In a slice routes, energy table, clock and mapping rule are the same."""

    def __init__(
        self,
        work: EngineWork,
        accelerator: Accelerator,
        axes: Mapping[str, Sequence[str]],
        mapping: str,
        fixed: Mapping[str, str],
    ) -> None:
        self._work = work
        self._base = accelerator
        self._mapping = mapping
        self._axes = {key: tuple(values) for key, values in axes.items() if refusal_of_field(accelerator, key) is None}
        self._paths = {key: field_paths(accelerator, key) for key in self._axes if key != MAPPING}
        self._changes = {key: field_changes(accelerator, key, self._axes[key]) for key in self._paths}
        self._refuse_twice()
        varied = {path for paths in self._paths.values() for path in paths}
        for key, value in fixed.items():
            (fixed_changes,) = [{}] if refusal_of_field(accelerator, key) else field_changes(accelerator, key, (value,))
            unvaried = {path: new_value for path, new_value in fixed_changes.items() if path not in varied}
            if unvaried:
                # An axis of one value changes no order; where a field varies, what varies wins.
                name = f"{FIXED}{key}"
                self._axes[name], self._paths[name], self._changes[name] = (value,), list(unvaried), [unvaried]
        self._outer = self._outer_axes()
        self._inner = [key for key in self._axes if key not in self._outer]
        self._reasons: dict[str, int] = {"": 0}
        self._charges: dict[tuple[str, float | None], Charges] = {}

    def points(self) -> GridPoints:
        whole = _GridArrays(tuple(len(values) for values in self._axes.values()))
        for chosen in itertools.product(*(range(len(self._axes[key])) for key in self._outer)):
            place: dict[str, Any] = dict(zip(self._outer, chosen, strict=True))
            at = tuple(place.get(key, slice(None)) for key in self._axes)
            settings = {key.removeprefix(FIXED): self._axes[key][place[key]] for key in self._outer}
            mapping = settings.pop(MAPPING, self._mapping)
            try:
                base = apply_settings(self._base, settings) if settings else self._base
            except SondaError as error:
                whole.impossible[at] = self._reason_code(error)
            else:
                whole.put_slice(at, self._fill_slice(base, mapping))
        whole.clear_impossible()
        return GridPoints(
            {key: values for key, values in self._axes.items() if not key.startswith(FIXED)},
            whole.cycles.ravel(), whole.stalls.ravel(), whole.dram_bytes.ravel(),
            whole.energy.reshape(FIGURES, -1).T, whole.area.reshape(FIGURES, -1).T,
            tuple(self._reasons), whole.impossible.ravel(), whole.unpriced.ravel(), whole.on_host.ravel(),
            self._units(),
            _distinct_names(charges.missing for charges in self._charges.values()),
            _distinct_names(charges.recalled for charges in self._charges.values()),
        )  # fmt: skip

    def _outer_axes(self) -> list[str]:
        """Axes that concern more than one engine or the memory alone, and axes that change the same engine or memory.

        Only together they are a design that can be checked.
        """
        outer = {key for key, paths in self._paths.items() if _concern_all(paths)}
        while True:
            parts = {_owner_of_field(path) for key in outer for path in self._paths[key]}
            touching = {key for key, paths in self._paths.items() if parts & set(map(_owner_of_field, paths))} - outer
            if not touching:
                return [key for key in self._axes if key == MAPPING or key in outer]
            outer |= touching

    def _fill_slice(self, base: Accelerator, mapping: str) -> _GridArrays:
        """The arrays over all inner axes for one accelerator and mapping rule; axes without effect have length 1."""
        charges = self._load_charges(base)
        of_memory, changes = self._combinations(("memory",))
        described = describe_memory(base)
        memories = [_try_to_make(change_memory, described, base.clock_hz, change) for change in changes]
        arrays = _GridArrays((1,) * len(self._inner))
        for name, engine in base.engines.items():
            of_engine, changes = self._combinations(("engines", name))
            engines = [_try_to_make(change_engine, engine, change) for change in changes]
            arrays.deny(self._reason_codes([[design] for design in engines], of_engine, of_memory))
            if name in base.route.values():
                buildable = [design for design in engines if not isinstance(design, SondaError)]
                if mapping != SEARCHED or not all(isinstance(memory, Memory) for memory in memories):
                    self._work.prepare(base, buildable, mapping)
                costs = costs_of(self._work, base, engines, memories, mapping, charges)
                arrays.deny(self._reason_codes(costs.errors, of_engine, of_memory))
                arrays.add_engine(costs, partial(self._spread, of_engine=of_engine, of_memory=of_memory))
        arrays.deny(self._reason_codes([memories], [], of_memory))
        left = self._work.host_operations(base)
        arrays.on_host[...] = self._number_of_word(", ".join(f"{kind} {count}" for kind, count in left.items()))
        sizes = [memory.buffer_bytes if isinstance(memory, Memory) else None for memory in memories]
        buffers = [_try_to_make(buffer_area, size, charges) for size in sizes]
        arrays.unpriced = self._reason_codes([buffers], [], of_memory)
        if np.isnan(arrays.energy).all():
            lacking = SondaError(f"energy table {base.energy_table} has no entry for anything that was counted")
            arrays.unpriced = np.maximum(arrays.unpriced, self._reason_code(lacking))
        figures = np.array([[np.nan] * FIGURES if isinstance(area, SondaError) else area for area in buffers])
        arrays.area = add_known(
            arrays.area, np.stack([self._spread(figure[None], [], of_memory) for figure in figures.T])
        )
        return arrays

    def _combinations(self, begins: Path) -> tuple[list[int], list[dict[Path, str]]]:
        """Indices of the inner axes with fields under this path, and all combinations of these, last axis fastest."""
        touching = {
            place: [
                {path: value for path, value in change.items() if path[: len(begins)] == begins}
                for change in self._changes[key]
            ]
            for place, key in enumerate(self._inner)
            if any(path[: len(begins)] == begins for path in self._paths[key])
        }
        return list(touching), [
            {path: value for change in chosen for path, value in change.items()}
            for chosen in itertools.product(*touching.values())
        ]

    def _spread(self, array: NDArray[Any], of_engine: list[int], of_memory: list[int]) -> NDArray[Any]:
        """Lay an array of designs x memories out over the inner axes; length 1 where it does not depend on an axis."""
        sizes, places = [], [*of_engine, *of_memory]
        for length, axes_of_part in zip(array.shape, (of_engine, of_memory), strict=True):
            sizes += [1 if length == 1 else len(self._axes[self._inner[place]]) for place in axes_of_part]
        ordered = array.reshape(sizes).transpose(np.argsort(places))
        shape = [1] * len(self._inner)
        for place, size in zip(places, sizes, strict=True):
            shape[place] = size
        return ordered.reshape(shape)

    def _reason_codes(self, results: list[list[Any]], of_engine: list[int], of_memory: list[int]) -> NDArray[np.int32]:
        """Indices of the reasons of results that are errors, 0 for others, laid out over the inner axes."""
        codes = [
            [self._reason_code(result) if isinstance(result, SondaError) else 0 for result in row] for row in results
        ]
        return self._spread(np.array(codes, np.int32), of_engine, of_memory)

    def _reason_code(self, error: SondaError) -> int:
        return self._number_of_word(error.mistakes[0] if isinstance(error, DescriptionMistakes) else error.cause)

    def _number_of_word(self, word: str) -> int:
        return self._reasons.setdefault(word, len(self._reasons))

    def _load_charges(self, accelerator: Accelerator) -> Charges:
        key = (accelerator.energy_table, accelerator.clock_hz)
        if key not in self._charges:
            self._charges[key] = Charges(load_energy_table(accelerator.energy_table), accelerator.clock_hz)
        return self._charges[key]

    def _units(self) -> tuple[str, str]:
        units = {(charges.unit, charges.area_unit) for charges in self._charges.values()}
        if len(units) > 1:
            raise SondaError("energy_table: the tables do not count in the same units", "vary tables that do")
        return units.pop() if units else ("J", "mm2")

    def _refuse_twice(self) -> None:
        seen: dict[Path, str] = {}
        for key, paths in self._paths.items():
            for path in paths:
                if path in seen:
                    raise SondaError(f"{seen[path]!r} and {key!r} vary the same field", "give one of them")
                seen[path] = key


class _GridArrays:
    """Arrays with an axis for every field that varies; those with figures have one more in front."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.cycles, self.stalls, self.dram_bytes = (np.zeros(shape, np.int64) for _ in range(3))
        self.energy, self.area = (np.full((FIGURES, *shape), np.nan) for _ in range(2))
        self.impossible, self.unpriced, self.on_host = (np.zeros(shape, np.int32) for _ in range(3))

    def deny(self, codes: NDArray[np.int32]) -> None:
        """Set the reasons why points are impossible, where none was set before."""
        self.impossible = np.where(self.impossible > 0, self.impossible, codes)

    def add_engine(self, costs: Costs, spread: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
        """Add cycles, bytes, energy and area of one engine."""
        stalls = spread(costs.stalls)
        self.cycles = self.cycles + spread(costs.cycles) + stalls
        self.stalls = self.stalls + stalls
        self.dram_bytes = self.dram_bytes + spread(costs.dram_bytes)
        self.energy = add_known(self.energy, np.stack([spread(figure) for figure in costs.energy]))
        self.area = add_known(self.area, np.stack([spread(figure) for figure in costs.area]))

    def put_slice(self, at: tuple[Any, ...], arrays: _GridArrays) -> None:
        """Put a slice into its place; axes of length 1 are repeated."""
        for name in ("cycles", "stalls", "dram_bytes", "impossible", "unpriced", "on_host"):
            getattr(self, name)[at] = getattr(arrays, name)
        for name in ("energy", "area"):
            getattr(self, name)[(slice(None), *at)] = getattr(arrays, name)

    def clear_impossible(self) -> None:
        cannot = self.impossible > 0
        for counts in (self.cycles, self.stalls, self.dram_bytes, self.unpriced, self.on_host):
            counts[cannot] = 0
        for figures in (self.energy, self.area):
            figures[:, cannot | (self.unpriced > 0)] = np.nan


def _concern_all(paths: list[Path]) -> bool:
    """Whether fields that vary in step concern more than engines alone or the memory alone."""
    return len({path[0] for path in paths}) > 1 or any(
        path[0] not in ("engines", "memory") or path == ("memory",) or path[2:] == ("kind",) for path in paths
    )


def _owner_of_field(path: Path) -> Path:
    """The path of the engine or the memory that a field belongs to; a field of neither owns itself."""
    return {"engines": path[:2], "memory": path[:1]}.get(path[0], path)


def _try_to_make(make: Callable[..., Made], *arguments: Any) -> Made | SondaError:
    """What `make` returns, or the SondaError that it raises."""
    try:
        return make(*arguments)
    except SondaError as error:
        return error


def _distinct_names(names: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for group in names for name in group))
