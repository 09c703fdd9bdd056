"""A search for the front: the points of a space that no other beats, found without simulating all of them.

It begins with points far apart and looks around those that are on the front so far, first in large steps along every
field, then in steps half as large, until the neighbours of the front at a distance of one value are all known. What it
finds is the front of what it has seen: a point that lies behind a wall of worse ones can be missed.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from sonda.record.errors import SondaError
from sonda.record.progress import Say
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.studies.executors.executor import Executor, ExecutorTask, ThisProcess
from sonda.studies.explore.exploration import (
    ExplorationLauncher,
    SimulatedPoints,
    check_space,
    collect_parts,
    keep_exploration,
)
from sonda.studies.explore.pareto import pareto_front
from sonda.studies.explore.parts import OBJECTIVES, Candidate, ExplorationTotal, PartOrder, PartsFolder, explore_part
from sonda.targets.job import Job
from sonda.targets.simulated.design_space import AND, APART, MAPPING
from sonda.targets.simulated.exploration import Grid
from sonda.version import VERSION

Place = tuple[int, ...]
"""A point: the place of its target, then that of its value in every axis."""
FIRST = 64
"""Points to begin with."""
BATCH = 2_000


def search(
    job: Job,
    space: Mapping[str, Sequence[str]],
    store: Store,
    share: float,
    tags: Sequence[str] = (),
    say: Say = lambda text: None,
    executor: Executor | None = None,
) -> Run:
    """Find the front of the space with at most a `share` (0 to 1) of its points; the run has those that were simulated.

    Raises SondaError as `explore` does.
    """
    if not 0 < share <= 1:
        raise SondaError(f"a search of {share:.4g} of the points cannot be", "give more than 0 % and at most 100 %")
    grid, axes, targets = check_space(job, space)
    folder = PartsFolder(store, VERSION, "search", share, grid.job, axes, targets, grid.descriptions)

    def simulate(say: Say) -> SimulatedPoints:
        looking = _Search(grid, axes, targets, share, folder, executor or ThisProcess(), say)
        begin = time.perf_counter()
        looking.search()
        seconds = time.perf_counter() - begin + looking.seconds / looking.workers
        return SimulatedPoints(looking.total, seconds, looking.words)

    return keep_exploration(ExplorationLauncher(grid, axes, space, targets, folder, simulate), store, tags, say)


class _Search:
    """The same points are simulated whoever does it and however often it is stopped: every round is taken in the order
    of its parts, not in that in which they come."""

    def __init__(
        self, grid: Grid, axes: dict[str, tuple[str, ...]], targets: tuple[str, ...], share: float,
        folder: PartsFolder, executor: Executor, say: Say,
    ) -> None:  # fmt: skip
        self.total = ExplorationTotal()
        self._grid, self._axes, self._targets = grid, axes, targets
        self._folder, self._executor, self._say = folder, executor, say
        self.workers = executor.workers
        self._sizes = (len(targets), *(len(values) for values in axes.values()))
        self._count = sum(math.prod(map(len, grid.axes[on].values())) for on in targets)
        self._budget = max(1, round(share * self._count))
        self._seen: set[Place] = set()
        self._rounds = 0
        self._candidates: dict[Place, Candidate] = {}
        self._known = dict(folder.known())
        self.seconds = 0.0
        """What parts of earlier starts took."""

    @property
    def words(self) -> str:
        """What is said of the search in the run."""
        return (
            f"searched in {self._rounds} rounds: {len(self._seen):,} of {self._count:,} points were simulated "
            f"({len(self._seen) / self._count:.2g} of all); the front is that of these"
        )

    def search(self) -> None:
        self._simulate(self._first_places())
        step = max(self._sizes) // 2
        while step and len(self._seen) < self._budget:
            new = list(self._neighbours(step))
            if new:
                self._simulate(new)
            else:
                step //= 2

    def _first_places(self) -> Iterator[Place]:
        """Both ends of everything, the middle, and points by chance; the same in every search of this space."""
        yield tuple(0 for _ in self._sizes)
        yield tuple(size - 1 for size in self._sizes)
        yield tuple(size // 2 for size in self._sizes)
        chance = random.Random(0)
        for _ in range(FIRST):
            yield tuple(chance.randrange(size) for size in self._sizes)

    def _neighbours(self, step: int) -> Iterator[Place]:
        """Unknown places beside the front. Targets and mappings have no order: each is as near as any other."""
        fields = ("on", *self._axes)
        for place in self._front():
            for at, size in enumerate(self._sizes):
                unordered = fields[at] in ("on", MAPPING)
                neighbours = range(size) if unordered else (place[at] - step, place[at] + step)
                for neighbour in neighbours:
                    near = self._canonical((*place[:at], min(max(neighbour, 0), size - 1), *place[at + 1 :]))
                    if near not in self._seen:
                        yield near

    def _canonical(self, place: Place) -> Place:
        """The place with 0 in the axes that its target does not have: equal for all places that mean the same."""
        own = self._grid.axes[self._targets[place[0]]]
        return (place[0], *(at if key in own else 0 for key, at in zip(self._axes, place[1:], strict=True)))

    def _front(self) -> list[Place]:
        """The places on the front so far, in their order. What is beaten in cycles and in time is forgotten."""
        by_time = len(self.total.clocks) > 1 and not np.isnan(self.total.clocks).any()
        fronts = {first: self._front_by(first) for first in (False, True)}
        self._candidates = {place: self._candidates[place] for place in sorted({*fronts[False], *fronts[True]})}
        return sorted(fronts[by_time])

    def _front_by(self, time: bool) -> list[Place]:
        """The same by cycles or by time, among points that leave as much to the host."""
        known = [OBJECTIVES.index(name) for name in self.total.objectives]
        front: list[Place] = []
        for word in sorted({candidate.on_host for candidate in self._candidates.values()}):
            group = [place for place, candidate in self._candidates.items() if candidate.on_host == word]
            values = np.array([(candidate.time if time else candidate.values[0], *candidate.values[1:])
                               for candidate in (self._candidates[place] for place in group)])[:, known]  # fmt: skip
            front += [group[row] for row in np.flatnonzero(pareto_front(values))]
        return front

    def _simulate(self, places: Iterable[Place]) -> None:
        """Simulate points that are not known yet, as many as the share allows."""
        new = [place for place in dict.fromkeys(map(self._canonical, places)) if place not in self._seen]
        new = new[: self._budget - len(self._seen)]
        self._seen.update(new)
        self._rounds += 1
        groups: dict[tuple[int, int], list[Place]] = {}
        mapping = list(self._axes).index(MAPPING) + 1 if MAPPING in self._axes else 0
        for place in new:
            groups.setdefault((place[0], place[mapping] if mapping else 0), []).append(place)
        meant: dict[int, list[Place]] = {}
        for _, group in sorted(groups.items()):
            for at in range(0, len(group), BATCH):
                meant[len(self.total.parts) + len(meant)] = group[at : at + BATCH]
        self._complete_round(meant)
        self._say(f"{len(self._seen):,} of {self._count:,} points, {len(self._front())} on the front")

    def _complete_round(self, meant: Mapping[int, list[Place]]) -> None:
        """Have the parts of a round simulated that an earlier start did not leave, and take all of them."""
        come = {
            number: part for number, places in meant.items()
            if (part := self._known.pop(number, None)) is not None and part.points == len(places)
        }  # fmt: skip
        for number, part in come.items():
            self.total.add(number, part)
            self.seconds += part.seconds
        waiting = [ExecutorTask(number, self._order(places)) for number, places in meant.items() if number not in come]
        come |= dict(collect_parts(self._executor, explore_part, waiting, self._folder, self.total))
        for number, part in sorted(come.items()):
            self._candidates |= {meant[number][candidate.row]: candidate for candidate in part.candidates}

    def _order(self, places: Sequence[Place]) -> PartOrder:
        """Points of one target and mapping as one axis of fields that vary in step; fields that this target does not
        have fall out."""
        on = self._targets[places[0][0]]
        own = self._grid.axes[on]
        keys = [key for key in self._axes if key in own and key != MAPPING]
        at = [list(self._axes).index(key) + 1 for key in keys]
        values = [APART.join(_spread_value(key, self._axes[key][place[i]]) for key, i in zip(keys, at, strict=True))
                  for place in places]  # fmt: skip
        axes: dict[str, tuple[str, ...]] = {AND.join(keys): tuple(values)} if keys else {}
        if MAPPING in own:
            where = list(self._axes).index(MAPPING) + 1
            axes[MAPPING] = (self._axes[MAPPING][places[0][where]],)
        return PartOrder(self._grid.job, self._grid.zeros, on, axes, self._axes, self._targets)


def _spread_value(key: str, value: str) -> str:
    """A value of every field of a key: one for all of them is written for each."""
    fields = key.count(AND) + 1
    return value if fields == 1 or APART in value else APART.join([value] * fields)
