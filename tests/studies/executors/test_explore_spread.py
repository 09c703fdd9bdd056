"""Explorations in batches: the same run whatever the batch and whoever explores it; stopped ones go on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.record.stored import plain
from sonda.studies.executors.executor import ExecutorTask, TaskResult, ThisProcess
from sonda.studies.executors.processes import ProcessPool
from sonda.studies.explore.exploration import explore
from sonda.studies.explore.search import search
from sonda.studies.explore.space import cut_grid, parse_space
from sonda.targets.job import Job

DLRM = Job(workload="dlrm", on="sim:dlrm-hybrid", set="clock_GHz=1 memory.dram=hbm2", threads=1)
SPACE = parse_space(
    ["perceptrons.multipliers=64..512*2", "perceptrons.dn_bw=8..128*2", "memory.buffer_KiB=16..1024*4",
     "embeddings.multipliers=64,128"]
)  # fmt: skip
"""160 points, of which those with more ports than multipliers cannot be."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return explore(DLRM, SPACE, Store(tmp_path_factory.mktemp("whole")))


def facts(run: Run) -> dict[str, Any]:
    """All that an exploration says but how long it took; how much can be shared depends on the batch."""
    told = plain(run.info.target.exploration)
    del told["seconds"], told["simulations"]
    return told


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 40))
def test_pieces_are_the_grid_in_its_order(sizes: list[int], most: int) -> None:
    axes = {f"f{number}": tuple(map(str, range(size))) for number, size in enumerate(sizes)}
    pieces = list(cut_grid(axes, most))
    rows = [row for piece in pieces for row in itertools.product(*piece.values())]
    assert rows == list(itertools.product(*axes.values()))
    assert all(list(piece) == list(axes) for piece in pieces)
    assert all(math.prod(map(len, piece.values())) <= most for piece in pieces)


@pytest.mark.parametrize("batch", [1, 7, 40, 160])
def test_batches_do_not_change_the_run(whole: Run, batch: int, tmp_path: Path) -> None:
    cut_up = explore(DLRM, SPACE, Store(tmp_path), batch=batch)
    assert facts(cut_up) == facts(whole)
    assert cut_up.info.notes == whole.info.notes
    assert cut_up.points.to_pydict() == whole.points.to_pydict()
    assert [field.metadata for field in cut_up.points.schema] == [field.metadata for field in whole.points.schema]
    assert not any((tmp_path / "explorations").glob("*/"))


def test_several_targets_in_batches(tmp_path: Path) -> None:
    space = parse_space(
        ["on=sim:tpu-16x16,sim:maeri-256", "read_ports=4,16,64", "rows,columns=8:16,16:16", "clock_GHz=1,2"]
    )
    one = explore(Job(workload="mlp", on="", threads=1), space, Store(tmp_path / "one"))
    many = explore(Job(workload="mlp", on="", threads=1), space, Store(tmp_path / "many"), batch=5)
    assert facts(many) == facts(one) and many.points.to_pydict() == one.points.to_pydict()
    assert one.points.num_rows == 12 + 6


def test_processes_find_the_same(whole: Run, tmp_path: Path) -> None:
    crew = ProcessPool(2)
    try:
        spread = explore(DLRM, SPACE, Store(tmp_path), executor=crew, batch=40)
    finally:
        crew.close()
    assert facts(spread) == facts(whole) and spread.points.to_pydict() == whole.points.to_pydict()


class Stopping(ThisProcess):
    """Does some tasks, then loses the others."""

    def __init__(self, some: int) -> None:
        self.left = some
        self.done: list[int] = []

    def run(self, work: Any, tasks: Iterable[ExecutorTask]) -> Iterator[TaskResult]:
        for task in tasks:
            if not self.left:
                yield TaskResult(task.number, failure="its worker was killed", remedy="start this again", lost=True)
                continue
            self.left -= 1
            self.done.append(task.number)
            yield from super().run(work, [task])


def test_a_stopped_exploration_goes_on(whole: Run, tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(SondaError, match=r"its worker was killed \(40 points are kept"):
        explore(DLRM, SPACE, store, executor=Stopping(1), batch=40)
    assert not list(store.runs())
    rest = Stopping(99)
    run = explore(DLRM, SPACE, store, executor=rest, batch=40)
    assert rest.done == [1, 2, 3]
    assert facts(run) == facts(whole) and run.points.to_pydict() == whole.points.to_pydict()


def test_a_damaged_part_is_explored_again(whole: Run, tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(SondaError):
        explore(DLRM, SPACE, store, executor=Stopping(1), batch=40)
    (one,) = sorted((tmp_path / "explorations").glob("*/*.part"))
    one.write_bytes(one.read_bytes()[:100])
    rest = Stopping(99)
    run = explore(DLRM, SPACE, store, executor=rest, batch=40)
    assert 0 in rest.done and run.points.to_pydict() == whole.points.to_pydict()


def test_another_space_does_not_go_on_from_there(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(SondaError):
        explore(DLRM, SPACE, store, executor=Stopping(1), batch=40)
    other = Stopping(99)
    explore(DLRM, {**SPACE, "embeddings.multipliers": ("128",)}, store, executor=other, batch=40)
    assert other.done == [0, 1]


def front(run: Run) -> set[tuple[Any, ...]]:
    columns = run.points.column_names
    settings = columns[: columns.index("cycles:simulated")]
    rows = run.points.select([*settings, "front"]).to_pylist()
    return {tuple(row[name] for name in settings) for row in rows if row["front"]}


def test_a_search_of_everything_finds_the_front(whole: Run, tmp_path: Path) -> None:
    found = search(DLRM, SPACE, Store(tmp_path), 1.0)
    assert front(found) == front(whole)
    assert found.points.num_rows < 160 and "of 160 points were simulated" in found.info.notes[0]
    values = {name: found.points.column(name).to_pylist() for name in found.points.column_names}
    at = values["front"].index(True)
    same = whole.points.to_pylist()
    settings = ("perceptrons.multipliers", "perceptrons.dn_bw", "memory.buffer_KiB", "embeddings.multipliers")
    (twin,) = [row for row in same if all(row[name] == values[name][at] for name in settings)]
    assert twin["cycles:simulated"] == values["cycles:simulated"][at]
    assert twin["energy:simulated"] == pytest.approx(values["energy:simulated"][at], rel=1e-12)


def test_a_search_keeps_to_its_share(tmp_path: Path) -> None:
    assert search(DLRM, SPACE, Store(tmp_path), 0.25).points.num_rows == 40


def test_a_search_over_targets_and_mappings(tmp_path: Path) -> None:
    space = parse_space(
        ["on=sim:tpu-16x16,sim:maeri-256", "mapping=stonne,best", "read_ports=4..64*2", "rows,columns=8:16,16:16"]
    )
    job = Job(workload="mlp", on="", threads=1)
    whole = explore(job, space, Store(tmp_path / "whole"))
    found = search(job, space, Store(tmp_path / "found"), 1.0)
    assert front(found) == front(whole)


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5])
def test_a_share_is_a_share(share: float, tmp_path: Path) -> None:
    with pytest.raises(SondaError, match="cannot be"):
        search(DLRM, SPACE, Store(tmp_path), share)
