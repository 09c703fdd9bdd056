"""Ranks read by several processes are the run that one process makes of them, whoever is killed meanwhile."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import rank_work
from command_line import run_command
from import_ranks_cases import RANKS, same
from places import DATA
from sonda.analysis.run_rows import describe_new_runs
from sonda.imports import rank_workers as spread_ranks
from sonda.record.errors import SondaError
from sonda.record.run import LISTED, SPANS
from sonda.studies.executors.choice import spread_for, spread_over
from sonda.studies.executors.executor import ThisProcess
from sonda.studies.executors.processes import ProcessPool
from sonda.targets.imported.launcher import import_files
from trace_examples import KINETO, call, kernel, op, step, write

XPLANE = DATA / "xplane"


@pytest.fixture(scope="module")
def crew() -> Iterator[ProcessPool]:
    executor = ProcessPool(2)
    yield executor
    executor.close()


def ugly(folder: Path) -> Path:
    """Ranks that say little, begin at other moments, count, end in the middle, overlap and have marks."""
    folder.mkdir()
    counters = [{"ph": "C", "name": "used", "pid": 1, "ts": at, "args": {"MB": at}} for at in range(5)]
    marks = [
        {"ph": "B", "name": "outer", "pid": 10, "tid": 1, "ts": 1},
        {"ph": "E", "pid": 10, "tid": 1, "ts": 9},
        {"ph": "E", "pid": 10, "tid": 1, "ts": 10},
        {"ph": "b", "cat": "c", "name": "asynchronous", "id": 7, "pid": 10, "tid": 1, "ts": 3},
        {"ph": "e", "cat": "c", "name": "asynchronous", "id": 7, "pid": 10, "tid": 1, "ts": 12},
    ]
    launches = [call("cudaLaunchKernel", 20, 2, 1), kernel("k", 25, 4, 1), kernel("lost", 30, 4, 99)]
    base = {"distributedInfo": {"rank": 0}, "baseTimeNanoseconds": 5_000_000}
    write(folder / "a.json", [step(1, 0, 50), *counters, *marks, *launches], **base)
    write(folder / "b.json.gz", [op("x", 5, 10), op("y", 10, 10), *counters], **base | {"baseTimeNanoseconds": 1000})
    named = [
        {"ph": "M", "name": "process_name", "pid": 3, "args": {"name": "/device:GPU:0"}},
        {"ph": "M", "name": "thread_name", "pid": 3, "tid": 1, "args": {"name": "Stream #14"}},
        {"ph": "M", "name": "thread_name", "pid": 3, "tid": 2, "args": {"name": "XLA Modules"}},
        {"ph": "X", "name": "fusion", "pid": 3, "tid": 1, "ts": 4, "dur": 2},
        {"ph": "X", "name": "module", "pid": 3, "tid": 2, "ts": 4, "dur": 2},
    ]
    write(folder / "c.json", named)
    whole = write(folder / "d.json", [op(f"o{at}", 10 * at, 5) for at in range(20)]).read_bytes()
    (folder / "d.json").write_bytes(whole[: len(whole) // 2])
    write(folder / "e.json", [{"ph": "i", "name": "nothing that lasts", "ts": 1}])
    (folder / "notes.txt").write_text("nothing of ours")
    return folder


def test_two_processes_make_the_run_that_one_makes(tmp_path: Path, crew: ProcessPool) -> None:
    spread = spread_over(crew)
    for folder in (RANKS, ugly(tmp_path / "ugly")):
        alone = import_files([folder], tmp_path / "runs")
        same(alone, import_files([folder], tmp_path / "runs", spread=spread))
        assert alone.spans.number("start").min() == 0
    assert alone.info.status == "incomplete" and len(set(alone.spans.number("rank").tolist())) == 4
    profiles = tmp_path / "plugins" / "profile" / "now"
    profiles.mkdir(parents=True)
    for host, name in (("a", "keras_fit"), ("b", "jax_shapes")):
        packed = (XPLANE / f"{name}.xplane.pb.gz").read_bytes()
        (profiles / f"{host}.xplane.pb").write_bytes(gzip.decompress(packed))
    hosts = [import_files([tmp_path], tmp_path / "runs", spread=way) for way in (None, spread)]
    same(*hosts)
    same(*[import_files([KINETO / "mlp.json.gz"], tmp_path / "runs", spread=way) for way in (None, spread)])


def test_blocks_of_many_rows_keep_their_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sonda.imports.trace.spill.RUN_ROWS", 64)
    monkeypatch.setattr("sonda.imports.trace.ranks.merge_by_time", _small_blocks)
    describe_new_runs()  # as whoever opens a store does; an executor in this process does so too
    alone = import_files([RANKS], tmp_path / "runs")
    spread = import_files([RANKS], tmp_path / "runs", spread=spread_over(ThisProcess()))
    same(alone, spread)
    listed = [json.loads((run.directory / LISTED).read_bytes()) for run in (alone, spread)]
    assert {**listed[0], "spans": 0} == {**listed[1], "spans": 0}  # the size of the file may differ
    assert pq.ParquetFile(spread.directory / SPANS).num_row_groups > 8
    parents, ranks = spread.spans.number("parent"), spread.spans.number("rank")
    held = np.flatnonzero(parents >= 0)
    assert (ranks[parents[held]] == ranks[held]).all()


def _small_blocks(spills: Any) -> Iterator[np.ndarray]:
    from sonda.imports.trace import spill

    return spill.merge_by_time(spills, 128)


def dying(crew: ProcessPool, work: str, inside: str, mark: Path | None) -> Callable[..., Iterator[tuple[int, Any]]]:
    """Kills the process that does `work` with rank 2 when it comes to `inside`: once, or always without a mark."""

    def spread(asked: Any, orders: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        if asked.__name__ != work:
            return spread_over(crew)(asked, orders)
        doomed = [rank_work.Doomed(order, work, inside, str(mark or "")) for order in orders]
        return spread_over(crew)(rank_work.do, doomed)

    return spread


@pytest.mark.parametrize(
    ("work", "inside"), [("read_rank", "keep_state"), ("link_rank", "write_rank"), ("link_rank", "WrittenRank")]
)
def test_a_process_killed_in_the_middle_is_replaced_and_its_rank_read_again(
    tmp_path: Path, crew: ProcessPool, work: str, inside: str
) -> None:
    mark = tmp_path / "killed"
    run = import_files([RANKS], tmp_path / "runs", spread=dying(crew, work, inside, mark))
    assert mark.exists()
    assert list((tmp_path / "runs").iterdir()) == [run.directory]
    same(import_files([RANKS], tmp_path / "runs"), run)


def test_a_rank_that_kills_every_process_is_named_and_leaves_nothing(tmp_path: Path, crew: ProcessPool) -> None:
    spread = dying(crew, "link_rank", "write_rank", None)
    with pytest.raises(SondaError, match=r"rank2\.json\.gz: 2 processes died"):
        import_files([RANKS], tmp_path / "runs", spread=spread)
    assert not any((tmp_path / "runs").iterdir())


def test_what_cannot_be_read_is_named_as_by_one_process(tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    shutil.copytree(RANKS, folder)
    packed = (folder / "rank1.json.gz").read_bytes()
    (folder / "rank1.json.gz").write_bytes(packed[:20] + b"\0" * 40)
    said = []
    for spread in (None, spread_over(ThisProcess())):
        try:
            said.append(str(import_files([folder], tmp_path / "runs", spread=spread).info.notes))
        except SondaError as error:
            said.append(str(error))
    assert said[0] == said[1] and "rank1.json.gz" in said[0]
    order = spread_ranks.ReadOrder("kineto", RANKS / "rank0.json.gz", tmp_path / "elsewhere", 0, ())
    with pytest.raises(SondaError, match="shared file system"):
        spread_ranks.read_rank(order)


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sonda.record.files.tables.SpanWriter.append", full)
    with pytest.raises(SondaError, match="No space left on device"):
        import_files([RANKS], tmp_path / "runs", spread=spread_over(ThisProcess()))
    assert not any((tmp_path / "runs").iterdir())


def test_the_command_reads_ranks_with_workers(tmp_path: Path) -> None:
    done = run_command(tmp_path, "import", str(RANKS), "--workers", "2", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [one["rank"] for one in found["job"]["ranks"]] == [0, 1, 2, 3]
    assert found["verdicts"][0]["sentence"].startswith("Rank 2 is slow")
    shown = run_command(tmp_path, "show", "-v")
    assert "keeps others waiting" in shown.stdout
    refused = run_command(tmp_path, "import", str(RANKS), "--workers", "-1")
    assert refused.returncode == 2 and "--workers -1" in refused.stderr


def test_one_process_alone_is_not_spread() -> None:
    with spread_for() as nobody, spread_for(1) as one:
        assert nobody is None and one is None
    with pytest.raises(SondaError, match="--workers -2"), spread_for(-2):
        pass


def test_the_job_is_described(tmp_path: Path) -> None:
    config = [{"pg_size": 8, "ranks": []}, {"pg_size": 2}, {"pg_size": 1}, "nonsense"]
    for rank in range(2):
        about = {"rank": rank, "world_size": 8, "pg_config": config}
        write(tmp_path / f"{rank}.json", [op("x", 0, 1)], distributedInfo=about, host_name=f"node{rank}")
    said = import_files([tmp_path], tmp_path / "runs").info.workload
    assert (said.hosts, said.world, said.smallest_group) == (["node0", "node1"], 8, 2)
    json.dumps(said.plain())


def test_files_that_say_no_rank_are_numbered_by_the_numbers_in_their_names(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    for number in range(12):
        write(tmp_path / "ranks" / f"rank{number}.json", [op(f"of {number}", 0, 5)])
    spans = import_files([tmp_path / "ranks"], tmp_path / "runs").spans
    found = dict(zip(spans.number("rank").tolist(), spans.words("name").decoded(), strict=True))
    assert found == {number: f"of {number}" for number in range(12)}
