"""Traces of ranks on CPUs: what communicates is no computing, counted again from the files by plain Python."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow.parquet as pq
import pytest

from places import DATA
from ranks_cases import job
from sonda.analysis.findings import Finding
from sonda.analysis.ranks.findings import NoCollective, NoSlowRank, SlowRanks
from sonda.analysis.ranks.stragglers import job_of
from sonda.analysis.ranks.verdict import rank_verdict
from sonda.analysis.traces.findings import HostOnly, LongOperations, LongPart, OfRank
from sonda.analysis.traces.summary import TraceSummary, summarise_trace
from sonda.record.conventions.profile_names import communicates, executes_collective
from sonda.record.run import SPANS
from sonda.report.blocks import Detail
from sonda.report.views.imported import TraceView
from sonda.targets.imported.launcher import import_files
from trace_examples import op, step, write

GLOO = DATA / "gloo_ranks"
CASES = ("straggler", "fsdp", "collectives", "asynchronous", "functional")
SAID = ("gloo:", "c10d::", "_c10d_functional::")
Counted = dict[str, float]


def events_of(path: Path) -> list[dict[str, Any]]:
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    for event in events:
        event["begin"] = round(event["ts"] * 1000)
        event["end"] = event["begin"] + round(event["dur"] * 1000)
    return list(events)


def moments(events: list[dict[str, Any]]) -> Iterator[tuple[int, int, str]]:
    """What one thread does from moment to moment: the innermost of its events decides, but for communication, which
    is one whatever lies inside it."""
    events = sorted(events, key=lambda event: (event["begin"], -event["end"]))
    borders = sorted({moment for event in events for moment in (event["begin"], event["end"])})
    communicating = [event for event in events if event["name"].startswith(SAID)]
    under_way: list[dict[str, Any]] = []
    waiting = iter([*events, None])
    following = next(waiting)
    for begin, end in pairwise(borders):
        while following is not None and following["begin"] <= begin:
            under_way.append(following)
            following = next(waiting)
        under_way = [event for event in under_way if event["end"] > begin]
        if not under_way:
            continue
        innermost = max(under_way, key=lambda event: (event["begin"], -event["end"]))
        if any(event["name"].startswith(SAID) for event in under_way):
            yield begin, end, "communication"
        elif innermost["cat"] == "user_annotation" or innermost["name"].startswith("autograd::engine"):
            yield begin, end, "host"
        elif any(innermost["begin"] <= event["begin"] and event["end"] <= innermost["end"] for event in communicating):
            yield begin, end, "calling"
        else:
            yield begin, end, "compute"


def counted(path: Path) -> Counted:
    """ns a step: computing first, then communication that it does not hide, what calls it, the rest of the host."""
    events = events_of(path)
    steps = [event for event in events if event["name"].startswith("ProfilerStep")]
    threads = {event["tid"] for event in events}
    pieces = [
        piece for thread in threads
        for piece in moments([event for event in events if event["tid"] == thread and event not in steps])
    ]  # fmt: skip
    totals: Counted = dict.fromkeys(("compute", "communication", "host", "idle", "hidden"), 0.0)
    for whole in steps:
        mine = [piece for piece in pieces if piece[1] > whole["begin"] and piece[0] < whole["end"]]
        borders = {whole["begin"], whole["end"], *(moment for piece in mine for moment in piece[:2])}
        inside = sorted(moment for moment in borders if whole["begin"] <= moment <= whole["end"])
        changes = sorted([(piece[0], 1, piece[2]) for piece in mine] + [(piece[1], -1, piece[2]) for piece in mine])
        active: dict[str, int] = dict.fromkeys(("compute", "communication", "calling", "host"), 0)
        at = 0
        for begin, end in pairwise(inside):
            while at < len(changes) and changes[at][0] <= begin:
                active[changes[at][2]] += changes[at][1]
                at += 1
            first = next((word for word, count in active.items() if count), "idle")
            totals["compute" if first == "calling" else first] += (end - begin) / len(steps)
            if first == "compute" and active["communication"]:
                totals["hidden"] += (end - begin) / len(steps)
    return totals


def summary_of(folder: Path, place: Path) -> TraceSummary:
    return summarise_trace(import_files([folder], place))


@pytest.mark.parametrize("case", CASES)
def test_every_moment_of_a_recorded_step_is_what_its_events_say(tmp_path: Path, case: str) -> None:
    summary = summary_of(GLOO / case, tmp_path)
    assert summary.job is not None and summary.profile is not None
    for rank in summary.job.ranks:
        expected = counted(GLOO / case / f"rank{rank.rank}.json.gz")
        mine = {part: rank.parts[part] for part in ("compute", "communication", "host", "idle")}
        assert mine == pytest.approx({part: expected[part] for part in mine}, abs=2)  # ns
        assert sum(rank.parts.values()) == pytest.approx(rank.step)
        steps = next(steps for steps in summary.profile.steps if steps.rank == rank.rank)
        shown = {part: (steps.parts[part].value or 0.0) / len(steps.durations) for part in steps.parts}
        assert shown["operations"] == pytest.approx(rank.compute)
        assert shown["communication"] == pytest.approx(rank.exposed)
        assert steps.parts["compute"].value is None, "no device computes"
    communication = min(rank.exposed for rank in summary.job.ranks)
    assert communication > 0 and not any("gloo" in found.operation for found in found_in(summary, LongOperations))


Kind = TypeVar("Kind", bound=Finding)


def found_in(summary: TraceSummary, kind: type[Kind]) -> list[Kind]:
    """Findings of a kind among the verdicts, of whichever rank they are."""
    findings = [verdict.finding for verdict in summary.summary.verdicts]
    findings = [finding.finding if isinstance(finding, OfRank) else finding for finding in findings]
    return [finding for finding in findings if isinstance(finding, kind)]


@pytest.mark.parametrize("case", [*CASES, "ranks"])
def test_the_factor_that_is_said_is_that_of_the_table(tmp_path: Path, case: str) -> None:
    summary = summary_of(DATA / "ranks" if case == "ranks" else GLOO / case, tmp_path)
    assert summary.job is not None
    compute = [rank["parts_ns"]["compute"] for rank in TraceView(summary).document()["job"]["ranks"]]
    factor = max(compute) / (sum(compute) / len(compute))
    assert summary.job.imbalance == pytest.approx(factor)
    said = re.findall(
        r"busiest rank computes ([\d.]+) times the mean", TraceView(summary).text(120, color=False, detail=Detail.ALL)
    )
    assert said and set(said) == {f"{factor:.2f}"}
    evidence = summary.summary.verdicts[0].evidence["imbalance"].value
    assert evidence == pytest.approx(factor)


def test_a_step_unlike_the_others_counts_in_the_factor_as_in_the_table(tmp_path: Path) -> None:
    """Rank 0 computes 100, 100 and 700 µs, rank 1 100 each time: 300 and 100 a step, 1.5 times the mean of 200."""
    events = [
        [event for number, length in enumerate(lengths) for event in
         (step(number, 1000 * number, 1000), op("aten::mm", 1000 * number, length))]
        for lengths in ((100, 100, 700), (100, 100, 100))
    ]  # fmt: skip
    found = job(tmp_path, events)
    assert [rank.compute for rank in found.ranks] == [300_000, 100_000]
    assert found.imbalance == pytest.approx(1.5)
    assert rank_verdict(found).finding == NoCollective(pytest.approx(1.5))


def test_a_rank_that_sleeps_keeps_the_other_waiting_as_long_as_its_clock_said(tmp_path: Path) -> None:
    summary = summary_of(GLOO / "straggler", tmp_path)
    assert summary.job is not None
    first, slow = summary.job.ranks
    assert [found.ranks for found in found_in(summary, SlowRanks)] == [(1,)]
    assert slow.parts["idle"] == pytest.approx(100e6, rel=0.05), "it sleeps 100 ms a step"
    assert [first.step, slow.step] == pytest.approx([113.5e6, 114.6e6], rel=0.01), "the program's own clock"
    begins = [
        sorted(event["begin"] for event in events_of(GLOO / "straggler" / f"rank{rank}.json.gz")
               if event["name"] == "gloo:all_reduce")
        for rank in range(2)
    ]  # fmt: skip
    # The two all-reduces of a step wait at the same time: that of the first counts, and what the second adds.
    held = [max(mine) - min(theirs) for theirs, mine in zip(_pairs(begins[0]), _pairs(begins[1]), strict=True)]
    assert slow.held <= np.mean(held) and slow.held == pytest.approx(np.mean(held), rel=0.1)
    assert first.exposed == pytest.approx(first.wait, rel=0.05), "it waits, and does nothing else meanwhile"


def _pairs(moments: list[int]) -> list[tuple[int, int]]:
    return list(zip(moments[::2], moments[1::2], strict=True))


def test_a_wait_behind_computing_makes_nobody_slow(tmp_path: Path) -> None:
    summary = summary_of(GLOO / "asynchronous", tmp_path)
    assert summary.job is not None
    for rank in summary.job.ranks:
        expected = counted(GLOO / "asynchronous" / f"rank{rank.rank}.json.gz")
        assert expected["hidden"] > 20 * expected["communication"]
        assert rank.exposed < 0.01 * rank.step
    nobody = summary.summary.verdicts[0].finding
    assert isinstance(nobody, NoSlowRank) and nobody.hidden and not nobody.sometimes
    assert found_in(summary, LongOperations) and not found_in(summary, LongPart)


def test_one_process_with_threads_of_gloo(tmp_path: Path) -> None:
    path = GLOO / "collectives" / "rank0.json.gz"
    summary = summarise_trace(import_files([path], tmp_path))
    assert summary.job is None and summary.profile is not None
    expected, steps = counted(path), summary.profile.steps[0]
    share = expected["communication"] / (steps.total / len(steps.durations))
    assert share > 0.7 and steps.share("communication") == pytest.approx(share, rel=1e-6)
    (long,) = found_in(summary, LongPart)
    assert (long.part, long.share) == ("communication", pytest.approx(share, rel=1e-6))


def test_an_operation_that_calls_a_collective_may_wait_for_it(tmp_path: Path) -> None:
    """A backward of one's own: 10 µs before it calls an all-reduce, which another thread executes from 20 to 900."""
    backward = [step(0, 0, 1000), op("SyncBackward", 0, 950), op("c10d::allreduce_", 10, 10),
                op("aten::mm", 30, 100), op("gloo:all_reduce", 20, 880, thread=9)]  # fmt: skip
    found = job(tmp_path, [backward, backward])
    parts = found.ranks[0].parts
    assert (parts["compute"], parts["communication"], parts["idle"]) == (160_000, 790_000, 50_000)


def test_an_annotation_computes_nothing_by_itself(tmp_path: Path) -> None:
    events = [step(0, 0, 1000), {**op("epoch", 0, 900), "cat": "user_annotation"}, op("aten::mm", 100, 300)]
    summary = summarise_trace(import_files([write(tmp_path / "x.json", events)], tmp_path / "runs"))
    assert summary.profile is not None
    parts = {part: value.value for part, value in summary.profile.steps[0].parts.items() if value.value}
    assert parts == {"operations": 300_000, "host": 600_000, "idle": 100_000}
    assert [operation.name for operation in summary.profile.operations] == ["aten::mm"]


def test_without_steps_communication_is_told_from_operations(tmp_path: Path) -> None:
    events = [op("aten::mm", 0, 100), op("record_param_comms", 100, 50), op("mpi:all_reduce", 200, 300, thread=2)]
    summary = summarise_trace(import_files([write(tmp_path / "x.json", events)], tmp_path / "runs"))
    assert summary.summary.verdicts[0].finding == HostOnly(100_000, (("aten::mm", 1.0),), 350_000)


@pytest.mark.parametrize(
    ("name", "executes", "is_of"),
    [
        ("gloo:all_reduce", True, True), ("gloo:send", True, True), ("mpi:bcast", True, True),
        ("ucc:allgather", True, True), ("c10d::allreduce_", False, True), ("c10d::recv_any_source_", False, True),
        ("_c10d_functional::wait_tensor", False, True), ("c10d_functional::all_reduce", False, True),
        ("_c10d_functional_autograd::all_to_all_single", False, True), ("nccl:all_reduce", False, True),
        ("xccl:all_gather", False, True), ("record_param_comms", False, True), ("all-reduce.3", True, True),
        ("aten::mm", False, False), ("torch::distributed::reducer::mul_out", False, False),
        ("DistributedDataParallel.forward", False, False), ("reduce_params", False, False),
    ],
)  # fmt: skip
def test_names_of_communication(name: str, executes: bool, is_of: bool) -> None:
    assert (executes_collective(name), communicates(name)) == (executes, is_of)


def test_blocks_make_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = job_of(import_files([GLOO / "fsdp"], tmp_path / "whole"))
    from sonda.imports.trace import spill

    merge = spill.merge_by_time
    monkeypatch.setattr(spill, "RUN_ROWS", 64)
    monkeypatch.setattr(spill, "STRIDE", 8)
    monkeypatch.setattr("sonda.imports.trace.ranks.merge_by_time", lambda spills: merge(spills, 64))
    pieces = import_files([GLOO / "fsdp"], tmp_path / "cut")
    assert pq.ParquetFile(pieces.directory / SPANS).num_row_groups > 8
    cut = job_of(pieces)
    assert whole is not None and cut is not None
    for one, other in zip(whole.ranks, cut.ranks, strict=True):
        # An operation that calls a collective in a later block is not known to.
        assert one.exposed == pytest.approx(other.exposed, rel=0.05)
        assert one.compute == pytest.approx(other.compute, rel=0.05)
