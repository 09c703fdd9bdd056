"""A search for the front simulates the same points whoever does it, however often it is stopped, and none twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.studies.executors.executor import ExecutorTask, TaskResult, ThisProcess
from sonda.studies.explore.exploration import explore
from sonda.studies.explore.search import search
from sonda.studies.explore.space import parse_space
from sonda.targets.job import Job

JOB = Job(workload="mlp", on="", threads=1)
# Rows and columns are the mesh's alone: 2 x 9 x 3 points there, 2 x 9 on the tree.
SPACE = ["on=sim:tpu-16x16,sim:maeri-256", "mapping=stonne,default", "read_ports=16..64*2", "write_ports=16..64*2",
         "rows,columns=8:16,16:16,4:4"]  # fmt: skip
SHARE = 0.6


class Backwards(ThisProcess):
    """Parts come in the order in which nobody asked for them."""

    workers = 2

    def run(self, work: Any, tasks: Iterable[ExecutorTask]) -> Iterator[TaskResult]:
        yield from super().run(work, list(tasks)[::-1])


class Stopped(Backwards):
    """The same, and nothing comes after some parts."""

    def __init__(self, parts: int) -> None:
        self.left = parts

    def run(self, work: Any, tasks: Iterable[ExecutorTask]) -> Iterator[TaskResult]:
        for done in super().run(work, tasks):
            self.left -= 1
            yield done if self.left >= 0 else TaskResult(done.number, failure="killed", remedy="again", lost=True)


def points(run: Run) -> list[tuple[Any, ...]]:
    """Their settings and whether they are on the front, in the order of the run."""
    table = run.points
    settings = table.column_names[: table.column_names.index("cycles:simulated")]
    return [tuple(row.values()) for row in table.select([*settings, "front"]).to_pylist()]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return search(JOB, parse_space(SPACE), Store(tmp_path_factory.mktemp("undisturbed")), SHARE)


def test_no_point_is_simulated_twice_and_all_are_counted_as_a_grid_counts_them(
    undisturbed: Run, tmp_path: Path
) -> None:
    whole = points(explore(JOB, parse_space(SPACE), Store(tmp_path)))
    found = points(undisturbed)
    assert len(whole) == 72 and len(found) == len(set(found)) == round(SHARE * 72)
    assert {one[:-1] for one in found} <= {one[:-1] for one in whole}
    assert f"{len(found)} of 72 points were simulated" in undisturbed.info.notes[0]


def test_the_order_in_which_parts_come_changes_nothing(undisturbed: Run, tmp_path: Path) -> None:
    assert points(search(JOB, parse_space(SPACE), Store(tmp_path), SHARE, executor=Backwards())) == points(undisturbed)


def test_a_search_that_meets_no_possible_point_says_how_many_it_tried_and_leaves_nothing(tmp_path: Path) -> None:
    # The first of five, which is all that a tenth allows: a tree of 64 multipliers cannot have 128 ports.
    with pytest.raises(SondaError, match=r"none of 1 simulated points is possible: .*; search more of them, vary"):
        search(Job(workload="dlrm", on=""), parse_space(["multipliers=64..1024*2"]), Store(tmp_path), 0.1)
    assert not list(tmp_path.glob("explorations/*/"))


@pytest.mark.parametrize("parts", [1, 3, 5])
def test_a_search_that_was_stopped_goes_on_as_if_it_had_not_been(undisturbed: Run, tmp_path: Path, parts: int) -> None:
    store = Store(tmp_path)
    with pytest.raises(SondaError, match="killed"):
        search(JOB, parse_space(SPACE), store, SHARE, executor=Stopped(parts))
    assert len(list(tmp_path.glob("explorations/*/*.part"))) == parts
    run = search(JOB, parse_space(SPACE), store, SHARE, executor=Backwards())
    assert points(run) == points(undisturbed)
    about = run.info.target.exploration
    assert about.points == round(SHARE * 72) and about.seconds > 0
