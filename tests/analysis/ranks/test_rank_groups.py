"""Collectives of groups of ranks, in constructed traces of a job of two groups of tensor parallelism by two of data
parallelism (four ranks), with the arguments that Kineto writes; every skew is counted by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from places import TESTS
from sonda.analysis.ranks.arrivals import arrivals, once
from sonda.analysis.ranks.collectives import Matched
from sonda.analysis.ranks.findings import (
    ImpossibleCollectives,
    MatchedOverGroups,
    MissingRanks,
    SlowRanks,
    UnmatchedCollectives,
    UntoldGroups,
)
from sonda.analysis.ranks.stragglers import ImportedJob, job_of
from sonda.analysis.ranks.verdict import rank_verdict
from sonda.analysis.traces.summary import summarise_trace
from sonda.imports.trace.raw_events import RAW, pack_group, unpack_groups
from sonda.imports.trace.spill import Spill, merge_by_time
from sonda.record.conventions import rank_group
from sonda.record.run import Run
from sonda.report.blocks import Detail
from sonda.report.section import section_of
from sonda.report.views.imported import TraceView
from sonda.studies.executors.choice import spread_over
from sonda.studies.executors.executor import ThisProcess
from sonda.targets.imported.launcher import import_files
from trace_examples import call, kernel, op, step, write

RECORDED = (TESTS / "data") / "groups"
Events = list[dict[str, Any]]
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
TENSOR, DATA = ((0, 1), (2, 3)), ((0, 2), (1, 3))
NAMES = {(0, 1, 2, 3): "0", (0, 1): "1", (2, 3): "2", (0, 2): "3", (1, 3): "4"}
"""As PyTorch numbers groups: every rank calls `new_group` for all of them."""


def about(ranks: tuple[int, ...], number: int | None, collective: str = "allreduce") -> dict[str, Any]:
    """The arguments of a collective as Kineto of PyTorch 2.13 writes them; the number came with 2.12."""
    kind = "tp" if ranks in TENSOR else "dp" if ranks in DATA else "default_pg"
    found: dict[str, Any] = {
        "Collective name": collective, "In msg nelems": 4, "Out msg nelems": 4, "dtype": "Float",
        "Group size": len(ranks), "Process Group Name": NAMES[ranks], "Process Group Description": kind,
        "Process Group Ranks": str(list(ranks)),
    }  # fmt: skip
    return found if number is None else {**found, "Seq": number}


def mine(rank: int, every: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    return next(ranks for ranks in every if rank in ranks)


def rank_events(rank: int, numbered: bool = True, steps: int = 2) -> Events:
    """Steps of 2000 µs. Every rank computes from 100 on: 200 µs, rank 2 500 µs. Then it reduces in its group of tensor
    parallelism, and 100 µs after that in its group of data parallelism. Transfers take 50 µs.

    By hand, in µs of a step: 0 and 1 come to their first at 300 and leave at 350. 3 comes to its first at 300, 2 at
    600: both leave at 650. 0 and 1 come to their second at 450, 2 and 3 at 750: all leave at 800. So 3 waits 300 in its
    first and 0 and 1 wait 300 in their second.
    """
    events: Events = []
    for number in range(steps):
        begin, pair = 2000.0 * number, 10 * number
        came = 600 if rank == 2 else 300
        left = 650 if rank > 1 else 350
        events += [
            step(number, begin, 2000), *(call("cudaLaunchKernel", begin + 5 * at, 4, pair + at) for at in range(1, 4)),
            kernel("gemm", begin + 100, came - 100, pair + 1),
            kernel(REDUCE, begin + came, left - came, pair + 2, 20,
                   **about(mine(rank, TENSOR), 7 + number if numbered else None)),
            kernel(REDUCE, begin + left + 100, 800 - left - 100, pair + 3, 24,
                   **about(mine(rank, DATA), 3 + number if numbered else None)),
        ]  # fmt: skip
    return events


def traces(folder: Path, ranks: list[Events], host: bool = True, config: bool = True) -> Path:
    folder.mkdir(exist_ok=True)
    for rank, events in enumerate(ranks):
        said = [{"pg_name": name, "pg_desc": "", "pg_size": len(members), "ranks": list(members)}
                for members, name in NAMES.items() if rank in members]  # fmt: skip
        head = {"distributedInfo": {"rank": rank, "world_size": len(ranks), **({"pg_config": said} if config else {})}}
        write(folder / f"{rank}.json", events, **head, **({"host_name": "a"} if host else {}))
    return folder


def job(run: Run) -> ImportedJob:
    found = job_of(run)
    assert found is not None
    return found


def counted(found: ImportedJob) -> None:
    groups = {one.ranks: one for one in found.groups}
    assert set(groups) == {(0, 1), (2, 3), (0, 2), (1, 3)} and found.collectives == 8
    assert [groups[ranks].skew for ranks in ((0, 1), (2, 3), (0, 2), (1, 3))] == [0, 300_000, 300_000, 300_000]
    assert [(groups[ranks].latest, groups[ranks].last) for ranks in ((0, 1), (2, 3), (0, 2), (1, 3))] == [
        (-1, 0), (2, 2), (2, 2), (3, 2),
    ]  # fmt: skip
    assert [one.wait for one in found.ranks] == [300_000, 300_000, 0, 300_000]
    assert [one.transfer for one in found.ranks] == [100_000] * 4
    assert [(one.collectives, one.last, one.held) for one in found.ranks] == [
        (4, 0, 0), (4, 0, 0), (4, 4, 300_000), (4, 2, 300_000),
    ]  # fmt: skip
    assert groups[2, 3].wait == 150_000 and groups[2, 3].held == 300_000
    # 3 comes last to the other group only because it waited for 2, who alone waits for nobody.
    assert [one.rank for one in found.late] == [2] and (found.late_last, found.late_of) == (4, 4)
    assert found.late_held == 300_000


@pytest.mark.parametrize("numbered", [True, False], ids=["numbers", "order"])
def test_groups_of_a_constructed_job(tmp_path: Path, numbered: bool) -> None:
    run = import_files([traces(tmp_path / "a", [rank_events(rank, numbered) for rank in range(4)])], tmp_path / "runs")
    found = job(run)
    counted(found)
    assert found.notes == () and {one.numbered for one in found.groups} == {numbered}
    slow = rank_verdict(found).finding
    assert isinstance(slow, SlowRanks)
    assert (slow.ranks, slow.last, slow.collectives, slow.groups) == ((2,), 4, 4, True)
    assert (slow.held, slow.share) == (300_000, pytest.approx(0.15))
    assert (slow.part, slow.theirs, slow.others, slow.operation) == ("compute", 500_000, 200_000, "gemm")
    groups = {group.ranks: group for group in found.groups}
    assert (groups[2, 3].latest, groups[2, 3].last, groups[2, 3].held, groups[2, 3].skew) == (2, 2, 300_000, 300_000)
    assert groups[0, 1].latest == -1
    summary = summarise_trace(run)
    screen = TraceView(summary).text(140, color=False, detail=Detail.ALL)
    assert (
        "tp (2)" in screen
        and "rank 2, 2 times" in screen
        and f"matched by their {'numbers' if numbered else 'order'}" in screen
    )
    assert "Groups of ranks" in section_of(TraceView(summary), 0, True).html
    documents = TraceView(summary).document()["job"]["groups"]
    assert [(one["name"], one["ranks"]) for one in documents] == [(NAMES[one.ranks], list(one.ranks))
                                                                 for one in found.groups]  # fmt: skip


def test_groups_that_communicate_at_the_same_time_wait_once(tmp_path: Path) -> None:
    """Steps of 1000 µs. Ranks 1 and 2 come to both of their groups at 900 µs, 0 and 3 at 200 and to their group of data
    parallelism at 250; all leave at 950. Every group has one of each.

    By hand, in µs of a step: 0 and 3 wait from 200 to 900, which is 700, and the data group's 650 are among them: 300
    remain for themselves. All transfer from 900 to 950.
    """
    ranks: list[Events] = []
    for rank in range(4):
        late, events = rank in (1, 2), []
        for number in range(2):
            begin, pair = 1000.0 * number, 10 * number
            tensor, data = (900, 900) if late else (200, 250)
            events += [
                step(number, begin, 1000),
                *(call("cudaLaunchKernel", begin + 5 * at, 4, pair + at) for at in range(1, 4)),
                kernel("gemm", begin + 100, tensor - 100, pair + 1),
                kernel(REDUCE, begin + tensor, 950 - tensor, pair + 2, 20, **about(mine(rank, TENSOR), 7 + number)),
                kernel(REDUCE, begin + data, 950 - data, pair + 3, 24, **about(mine(rank, DATA), 3 + number)),
            ]
        ranks.append(events)
    found = job(import_files([traces(tmp_path / "a", ranks)], tmp_path / "runs"))
    assert [one.wait for one in found.ranks] == [700_000, 0, 0, 700_000]
    assert [one.transfer for one in found.ranks] == [50_000] * 4
    assert found.own.tolist() == [[300_000] * 2, [1_000_000] * 2, [1_000_000] * 2, [300_000] * 2]
    assert {one.ranks: one.wait for one in found.groups} == {
        (0, 1): 350_000, (2, 3): 350_000, (0, 2): 325_000, (1, 3): 325_000,
    }  # fmt: skip
    assert [one.rank for one in found.late] == [1, 2]


def test_what_several_intervals_cover_is_counted_once() -> None:
    """By hand: 0-10; 5-20 adds 10; 6-8 nothing; 20-20 nothing; 30-40 adds 10; in whatever order they are given."""
    begin, end = np.array([30, 5, 0, 20, 6]), np.array([40, 20, 10, 20, 8])
    assert once(begin, end).tolist() == [10, 10, 10, 0, 0]
    assert begin.tolist() == [30, 5, 0, 20, 6] and once(begin[:0], end[:0]).tolist() == []


def test_clocks_are_compared_through_groups_that_share_a_rank(tmp_path: Path) -> None:
    """No group has all ranks: 3 shares none with 0, and is compared through 1 or 2. Clocks are seconds apart."""
    ranks = [rank_events(rank) for rank in range(4)]
    ahead = [0, 5_000_000, -3_000_000, 9_000_000]
    for events, offset in zip(ranks, ahead, strict=True):
        for event in events:
            event["ts"] += offset + 20_000_000
    found = job(import_files([traces(tmp_path / "a", ranks, host=False)], tmp_path / "runs"))
    counted(found)
    assert [one.offset for one in found.ranks] == [1000 * offset for offset in ahead]
    assert (found.clocks, found.doubt) == (4, 0)


def test_clocks_that_share_nothing_are_not_compared() -> None:
    start = np.array([[0, 1000], [100, 1100]])
    pairs = [Matched(rows, np.zeros(2, np.int64), start + rows[0] * 10**9, start * 0 + [[200, 1200]] + rows[0] * 10**9)
             for rows in ((0, 1), (2, 3))]  # fmt: skip
    found = arrivals(pairs, 4)
    assert (found.apart, found.clocks, found.doubt) == (2, 4, 0)
    assert all(one.last.tolist() == [one.group.rows[1]] * 2 and one.skew.tolist() == [100] * 2 for one in found.groups)
    assert arrivals(pairs, 4, ["a", "a", "b", "b"]).apart == 2 and arrivals(pairs, 4, ["a"] * 4).apart == 1


def test_a_number_finds_its_partner_where_one_is_missing(tmp_path: Path) -> None:
    """Rank 3 lacks the first reduce of its first step: by order nothing of that group and step could be matched."""
    ranks = [
        [*rank_events(rank), kernel(REDUCE, 900, 50, -1, 20, **about(mine(rank, TENSOR), 99))] for rank in range(4)
    ]
    del ranks[3][next(at for at, one in enumerate(ranks[3]) if one["name"] == REDUCE)]
    found = job(import_files([traces(tmp_path / "a", ranks)], tmp_path / "runs"))
    groups = {one.ranks: one.collectives for one in found.groups}
    assert groups == {(0, 1): 3, (2, 3): 2, (0, 2): 2, (1, 3): 2}
    assert found.notes == (UnmatchedCollectives(1),)


def test_the_operation_says_what_its_kernel_does_not(tmp_path: Path) -> None:
    """Kernels of RCCL have one name; older profilers write the group beside the operation that launches them only."""
    ranks = []
    for rank in range(4):
        events = rank_events(rank)
        for at, event in enumerate([event for event in events if event["name"] == REDUCE]):
            said = {key: event["args"].pop(key) for key in about((0, 1), 1)}
            event["name"] = "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"
            event["args"]["External id"] = 50 + at
            launch = op("record_param_comms", event["ts"] - 250, 2, 50 + at, thread=3)
            events.append(launch | {"args": {"External id": 50 + at, **said}})
        ranks.append(events)
    folder = traces(tmp_path / "a", ranks)
    run = import_files([folder], tmp_path / "runs")
    counted(job(run))
    spread = import_files([folder], tmp_path / "runs", spread=spread_over(ThisProcess()))
    for column in ("path", "name"):
        assert spread.spans.words(column).decoded().tolist() == run.spans.words(column).decoded().tolist()
    assert np.array_equal(spread.spans.metrics["sequence:counted"], run.spans.metrics["sequence:counted"], True)
    assert not np.isfinite(run.spans.metrics["bytes:counted"]).any()


def test_a_cut_list_of_ranks_is_found_in_the_head_of_the_trace(tmp_path: Path) -> None:
    """Kineto writes 30 ranks of a group; two groups of one name begin alike and are told apart by who is in them."""
    ranks = [rank_events(rank) for rank in range(4)]
    for events in ranks:
        for event in events:
            if "Process Group Name" in event.get("args", {}):
                whole = event["args"]["Process Group Ranks"]
                event["args"] |= {"Process Group Ranks": f"{whole.split(',')[0]}, ...]"}
    counted(job(import_files([traces(tmp_path / "a", ranks)], tmp_path / "runs")))
    # Without the head those who name the same group are its ranks.
    counted(job(import_files([traces(tmp_path / "b", ranks, config=False)], tmp_path / "runs")))


def test_one_name_for_several_groups_is_told_apart_by_ranks(tmp_path: Path) -> None:
    """`split_group` gives all parts of a split the same name."""
    ranks = [rank_events(rank) for rank in range(4)]
    for events in ranks:
        for event in events:
            if "Process Group Name" in event.get("args", {}):
                event["args"]["Process Group Name"] = event["args"]["Process Group Description"]
    counted(job(import_files([traces(tmp_path / "a", ranks, config=False)], tmp_path / "runs")))


def test_groups_that_are_not_said_are_matched_by_order_and_the_run_says_so(tmp_path: Path) -> None:
    ranks = [rank_events(rank) for rank in range(4)]
    for events in ranks:
        for event in events:
            for key in about((0, 1), 1):
                event.get("args", {}).pop(key, None)
    found = job(import_files([traces(tmp_path / "a", ranks)], tmp_path / "runs"))
    assert len(found.groups) == 1 and not found.groups[0].name
    assert MatchedOverGroups(2) in found.notes
    # 0 and 1 left their first before 2 came, so that it cannot have been one of all four.
    assert ImpossibleCollectives(2) in found.notes
    assert isinstance(rank_verdict(found).finding, UntoldGroups)


def test_missing_ranks_of_a_group_are_said(tmp_path: Path) -> None:
    folder = traces(tmp_path / "a", [rank_events(rank) for rank in range(4)])
    (folder / "3.json").unlink()
    found = job(import_files([folder], tmp_path / "runs"))
    assert {one.ranks: one.missing for one in found.groups} == {(0, 1): 0, (0, 2): 0}
    assert MissingRanks(4, 3) in found.notes
    # Of rank 1 the group with 3, of rank 2 that with 3: nobody is there to be compared with.
    assert UnmatchedCollectives(4) in found.notes


def test_what_is_said_of_a_group() -> None:
    whole = rank_group.parse_group("1", "tp", "[0, 1]", "allreduce")
    assert whole == rank_group.RankGroup("1", "tp", (0, 1), False, "allreduce")
    assert rank_group.group_of(rank_group.label(whole)) == whole
    assert rank_group.parse_group(3, None, [4, 5], None) == rank_group.RankGroup("3", "", (4, 5))
    assert rank_group.parse_group("x", "", "[0, 1, ...]", "") == rank_group.RankGroup("x", "", (0, 1), True)
    for odd in ("", None, True, 1.5, ["1"]):
        assert rank_group.parse_group(odd, "", "[0]", "") is None
    for odd in ("0-3", "[a]", "[-1]", {"a": 1}, [0, "1"], [True], "[1,,2]"):
        assert rank_group.parse_group("1", "", odd, "") == rank_group.RankGroup("1")
    for word in ("", "model/layer", '{"group"', '{"group": 1}', "{}"):
        assert rank_group.group_of(word) is None
    packed = np.array(
        [pack_group(name, number) for name, number in ((0, -1), (0, 0), (7, 5), (9, 1 << 41))] + [-1, 0, 96]
    )
    names, numbers = unpack_groups(packed)
    assert names.tolist() == [0, 0, 7, 9, -1, -1, -1] and numbers.tolist() == [-1, 0, 5, -1, -1, -1, -1]


@pytest.mark.parametrize("odd", [{"Seq": "7"}, {"Seq": -1}, {"Seq": 1.5}, {"Process Group Ranks": {"a": []}},
                                 {"Process Group Description": None}, {"Comms Id": 10159970886763999679}])  # fmt: skip
def test_strange_arguments_do_not_lose_the_event(tmp_path: Path, odd: dict[str, Any]) -> None:
    ranks = [rank_events(rank) for rank in range(4)]
    for events in ranks:
        for event in events:
            if "Seq" in event.get("args", {}):
                event["args"] |= odd
    found = job(import_files([traces(tmp_path / "a", ranks)], tmp_path / "runs"))
    assert sum(one.collectives for one in found.groups) == 8


def test_a_recorded_job_on_gloo_does_not_say_groups(tmp_path: Path) -> None:
    """Real traces: six collectives a step on every rank, of three groups that only the heads of the files name."""
    run = import_files([RECORDED], tmp_path / "runs")
    assert {(one.name, tuple(one.ranks)) for one in run.info.workload.groups} == {
        ("0", (0, 1, 2, 3)), ("1", (0, 1)), ("2", (2, 3)), ("3", (0, 2)), ("4", (1, 3)),
    }  # fmt: skip
    found = job(run)
    assert not found.groups[0].name and found.mixed
    (left,) = (note for note in found.notes if isinstance(note, ImpossibleCollectives))
    assert found.collectives + left.collectives == 6 * 3
    assert isinstance(rank_verdict(found).finding, UntoldGroups)


def test_groups_read_by_another_process_are_told_by_their_names_here(tmp_path: Path) -> None:
    rows = np.zeros(3, RAW)
    rows["name"], rows["bytes"] = [0, 1, 0], [pack_group(1, 5), 96, pack_group(0, -1)]
    with Spill(tmp_path / "rows") as spill:
        spill.add(rows)
    spill.names = np.array([40, 30], np.int32)
    (found,) = merge_by_time([spill])
    assert found["name"].tolist() == [40, 30, 40]
    assert found["bytes"].tolist() == [pack_group(30, 5), 96, pack_group(40, -1)]
