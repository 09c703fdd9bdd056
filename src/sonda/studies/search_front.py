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
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.studies.executors.executor import Executor, Here, Task
from sonda.studies.explore import check_space, collect, keep
from sonda.studies.explored_part import OBJECTIVES, Order, Part, Total, explore_part
from sonda.studies.pareto import pareto_front
from sonda.studies.parts_folder import PartsFolder
from sonda.targets.exploration import Grid
from sonda.targets.exploring import AND, APART, MAPPING
from sonda.targets.job import Job
from sonda.targets.keeping import Say
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
    for tag in tags:
        store.check_tag(tag)
    grid, axes, targets = check_space(job, space)
    folder = PartsFolder(store, VERSION, "search", share, grid.job, axes, targets, grid.descriptions)
    with folder.alone():
        looking = _Search(grid, axes, targets, share, folder, executor or Here(), say)
        begin = time.perf_counter()
        looking.search()
        seconds = time.perf_counter() - begin
        run = keep(grid, axes, space, targets, looking.total, folder, store, seconds, looking.words)
        folder.remove()
    for tag in tags:
        store.tag(run.id, tag)
    return run


class _Search:
    def __init__(
        self, grid: Grid, axes: dict[str, tuple[str, ...]], targets: tuple[str, ...], share: float,
        folder: PartsFolder, executor: Executor, say: Say,
    ) -> None:  # fmt: skip
        self.total = Total()
        self._grid, self._axes, self._targets = grid, axes, targets
        self._folder, self._executor, self._say = folder, executor, say
        self._sizes = (len(targets), *(len(values) for values in axes.values()))
        self._count = math.prod(self._sizes)
        self._budget = max(1, round(share * self._count))
        self._seen: set[Place] = set()
        self._rounds = 0
        self._candidates: dict[Place, tuple[tuple[float, ...], str]] = {}
        self._known = dict(folder.known())

    @property
    def words(self) -> str:
        """What is said of the search in the run."""
        return (
            f"searched in {self._rounds} rounds: {len(self._seen):,} of {self._count:,} points were simulated "
            f"({len(self._seen) / self._count:.2g} of all); the front is that of these"
        )

    def search(self) -> None:
        self._look(self._first())
        step = max(self._sizes) // 2
        while step and len(self._seen) < self._budget:
            new = list(self._around(step))
            if new:
                self._look(new)
            else:
                step //= 2

    def _first(self) -> Iterator[Place]:
        """Both ends of everything, the middle, and points by chance; the same in every search of this space."""
        yield tuple(0 for _ in self._sizes)
        yield tuple(size - 1 for size in self._sizes)
        yield tuple(size // 2 for size in self._sizes)
        chance = random.Random(0)
        for _ in range(FIRST):
            yield tuple(chance.randrange(size) for size in self._sizes)

    def _around(self, step: int) -> Iterator[Place]:
        """What is not known yet beside the front; another target or mapping is as near as any."""
        given: set[Place] = set()
        fields = ("on", *self._axes)
        for place in self._front():
            for at, size in enumerate(self._sizes):
                unordered = fields[at] in ("on", MAPPING)
                others = range(size) if unordered else (place[at] - step, place[at] + step)
                for other in others:
                    near = (*place[:at], min(max(other, 0), size - 1), *place[at + 1 :])
                    if near not in self._seen and near not in given:
                        given.add(near)
                        yield near

    def _front(self) -> list[Place]:
        places = list(self._candidates)
        found: list[Place] = []
        known = [OBJECTIVES.index(name) for name in self.total.objectives]
        for word in sorted({on_host for _, on_host in self._candidates.values()}):
            group = [place for place in places if self._candidates[place][1] == word]
            values = np.array([self._candidates[place][0] for place in group])[:, known]
            found += [group[row] for row in np.flatnonzero(pareto_front(values))]
        self._candidates = {place: self._candidates[place] for place in found}
        return found

    def _look(self, places: Iterable[Place]) -> None:
        """Simulate points that are not known yet, as many as the share allows."""
        new = [place for place in dict.fromkeys(places) if place not in self._seen]
        new = new[: self._budget - len(self._seen)]
        self._seen.update(new)
        self._rounds += 1
        groups: dict[tuple[int, int], list[Place]] = {}
        mapping = list(self._axes).index(MAPPING) + 1 if MAPPING in self._axes else 0
        for place in new:
            groups.setdefault((place[0], place[mapping] if mapping else 0), []).append(place)
        tasks: list[Task] = []
        meant: dict[int, list[Place]] = {}
        for (target, _), group in sorted(groups.items()):
            for at in range(0, len(group), BATCH):
                number = len(self.total.parts) + len(tasks)
                meant[number] = group[at : at + BATCH]
                tasks.append(Task(number, self._order(self._targets[target], meant[number])))
        self._fill(tasks, meant)
        self._say(f"{len(self._seen):,} of {self._count:,} points, {len(self._front())} on the front")

    def _fill(self, tasks: list[Task], meant: Mapping[int, list[Place]]) -> None:
        waiting = []
        for task in tasks:
            if task.number in self._known:
                self._take(task.number, self._known[task.number], meant)
            else:
                waiting.append(task)
        for number, part in collect(self._executor, explore_part, waiting, self._folder, self.total):
            self._take(number, part, meant)

    def _take(self, number: int, part: Part, meant: Mapping[int, list[Place]]) -> None:
        self.total.add(number, part)
        by_time = len(self.total.clocks) > 1 and not np.isnan(self.total.clocks).any()
        places = self._unique(self._order_places(meant[number]))
        for one in part.candidates:
            first = one.time if by_time else one.values[0]
            self._candidates[places[one.row]] = ((first, *one.values[1:]), one.on_host)

    def _order(self, on: str, places: Sequence[Place]) -> Order:
        """The points as one axis of fields that vary in step; fields that this target does not have fall out."""
        own = self._grid.axes[on]
        keys = [key for key in self._axes if key in own and key != MAPPING]
        at = [list(self._axes).index(key) + 1 for key in keys]
        rows = self._unique(self._order_places(places))
        values = [APART.join(_apart(key, self._axes[key][place[i]]) for key, i in zip(keys, at, strict=True))
                  for place in rows]  # fmt: skip
        axes: dict[str, tuple[str, ...]] = {AND.join(keys): tuple(values)} if keys else {}
        if MAPPING in own:
            where = list(self._axes).index(MAPPING) + 1
            axes[MAPPING] = (self._axes[MAPPING][places[0][where]],)
        return Order(self._grid.job, self._grid.zeros, on, axes, self._axes, self._targets)

    def _order_places(self, places: Sequence[Place]) -> list[tuple[Place, Place]]:
        """Every point, and what of it matters to its target."""
        own = self._grid.axes[self._targets[places[0][0]]]
        matters = [0, *(number + 1 for number, key in enumerate(self._axes) if key in own)]
        return [(place, tuple(place[at] for at in matters)) for place in places]

    @staticmethod
    def _unique(places: Sequence[tuple[Place, Place]]) -> list[Place]:
        """One point of those that are the same to their target."""
        first: dict[Place, Place] = {}
        for place, matters in places:
            first.setdefault(matters, place)
        return list(first.values())


def _apart(key: str, value: str) -> str:
    """A value of every field of a key: one for all of them is written for each."""
    fields = key.count(AND) + 1
    return value if fields == 1 or APART in value else APART.join([value] * fields)
