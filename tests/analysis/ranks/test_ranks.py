"""Ranks of a job: steps by number, who comes last, who waits, on clocks that do not agree; counted by hand."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from charts import boxes_of, charts_of
from places import DATA
from ranks_cases import REDUCE, job, on_device
from sonda.analysis.ranks.arrivals import Arrivals, Came, arrivals
from sonda.analysis.ranks.collectives import Matched, symmetric
from sonda.analysis.ranks.findings import (
    ComparedClocks,
    LookAtRank,
    NoCollective,
    NoSlowRank,
    SlowRanks,
    StepsLeftOut,
    UnmatchedCollectives,
)
from sonda.analysis.ranks.steps import step_keys
from sonda.analysis.ranks.stragglers import ImportedJob, job_of
from sonda.analysis.ranks.verdict import rank_verdict
from sonda.analysis.summary import Remedy
from sonda.analysis.traces.findings import NoCommonStep
from sonda.analysis.traces.summary import summarise_trace
from sonda.report.blocks import Detail
from sonda.report.section import section_of
from sonda.report.views.imported import TraceView
from sonda.targets.imported.launcher import import_files
from trace_examples import call, kernel, op, step, write

RANKS = DATA / "ranks"


def gloo(start: float, length: float, name: str = "all_reduce") -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "user_annotation",
        "name": f"gloo:{name}",
        "pid": 10,
        "tid": 9,
        "ts": start,
        "dur": length,
    }


def annotated(name: str, start: float, length: float) -> dict[str, Any]:
    return {"ph": "X", "cat": "user_annotation", "name": name, "pid": 10, "tid": 1, "ts": start, "dur": length}


ONE = [{"host_name": "a"}] * 3
APART = [{"host_name": "a"}, {"host_name": "b"}, {"host_name": "a"}]


def counted(found: ImportedJob) -> None:
    """By hand: computing takes 200, 300 and 600 µs, so the others wait 400 and 300, and rank 2 keeps both for 300."""
    assert [one.compute for one in found.ranks] == [200_000, 300_000, 600_000]
    assert [one.wait for one in found.ranks] == [400_000, 300_000, 0]
    assert [one.transfer for one in found.ranks] == [50_000] * 3
    assert [(one.last, one.held) for one in found.ranks] == [(0, 0), (0, 0), (2, 300_000)]
    assert found.imbalance == pytest.approx(600 / ((200 + 300 + 600) / 3))
    assert [one.step for one in found.ranks] == [1_000_000] * 3
    first = found.ranks[0].parts
    assert (first["communication"], first["launch"], first["idle"]) == (450_000, 20_000, 330_000)
    assert found.own.tolist() == [[600_000] * 2, [700_000] * 2, [1_000_000] * 2]


def slow_ranks(found: ImportedJob) -> SlowRanks:
    finding = rank_verdict(found).finding
    assert isinstance(finding, SlowRanks)
    return finding


def test_devices_on_one_clock(tmp_path: Path) -> None:
    found = job(tmp_path, [on_device(compute, 600) for compute in (200, 300, 600)], ONE)
    counted(found)
    assert (found.clocks, found.doubt, found.collectives, found.together, found.notes) == (1, 0, 2, 0, ())
    verdict = rank_verdict(found)
    slow = slow_ranks(found)
    assert (slow.ranks, slow.machine, slow.last, slow.collectives, slow.groups) == ((2,), "", 2, 2, False)
    assert (slow.held, slow.exposed, slow.hidden, slow.share) == (300_000, 300_000, False, pytest.approx(0.3))
    assert (slow.part, slow.theirs, slow.others, slow.operation) == ("compute", 600_000, 250_000, "gemm")
    assert verdict.kind == "communication" and verdict.share == pytest.approx(0.3)
    assert verdict.remedies == (Remedy(LookAtRank("compute")),)


@pytest.mark.parametrize("heads", [APART, ONE, [{}] * 3], ids=["said", "one name on two machines", "not said"])
def test_clocks_of_other_machines_are_not_believed(tmp_path: Path, heads: list[dict[str, Any]]) -> None:
    later = 7_000_000.0
    ranks = [on_device(200, 600), on_device(300, 600, later=later), on_device(600, 600)]
    found = job(tmp_path, ranks, heads)
    counted(found)
    assert [one.offset for one in found.ranks] == [0, int(1000 * later), 0]
    assert found.clocks == (2 if heads is APART else 3) and found.doubt == 0
    assert ComparedClocks(found.clocks, 0) in found.notes


def came(start: np.ndarray, end: np.ndarray, hosts: Sequence[str] = ()) -> tuple[Came, Arrivals]:
    """All ranks as one group: the job, and the group."""
    group = Matched(tuple(range(len(start))), np.zeros(start.shape[1], np.int64), start, end)
    found = arrivals([group], len(start), hosts)
    return found, found.groups[0]


def test_a_clock_that_drifts_is_followed() -> None:
    count, period, drift = 2000, 5_000_000, 50e-6
    true = np.arange(count) * period
    start = np.stack([true, true + 100_000])
    end = np.stack([true + 150_000] * 2)
    for times in (start, end):
        times[1] += (true * drift).astype(np.int64) + 10**12
    found = came(start, end)[1]
    assert np.abs(found.wait[0] - 100_000).max() < 100  # the clock drifts by 500 µs meanwhile
    assert (found.last == 1).all() and found.impossible == 0


def test_ends_that_scatter_are_told_as_doubt_and_hide_what_is_smaller() -> None:
    scatter = np.random.default_rng(1).integers(-20_000, 20_000, (3, 99))
    true = np.arange(99) * 1_000_000
    end = np.stack([true] * 3) + scatter
    start = end - 500_000
    start[2] += 300_000
    clocks, found = came(start, end)
    # The median deviation of differences of two even scatters of 20 µs: (2 - 2**0.5) * 20 = 11.7 µs
    assert 8_000 < clocks.doubt < 16_000
    assert (found.last == 2).all()
    hidden = came(end - 500_000, end)[1]
    assert (hidden.held <= 60_000).all()
    exact = came(np.stack([true] * 3), np.stack([true + 9] * 3))[1]
    assert (exact.last == -1).all() and not exact.held.any()


def test_somebody_who_left_before_the_last_came_is_no_evidence() -> None:
    few = np.zeros((2, 400), np.int64)
    start, end = few + np.arange(400) * 100, few + np.arange(400) * 100 + 10
    start[1, 7] += 50
    end[1, 7] += 50
    clocks, found = came(start, end, ["a", "a"])
    assert (found.impossible, clocks.clocks, found.wait.shape[1]) == (1, 1, 399)
    start[1], end[1] = start[1] + 10**9, end[1] + 10**9
    for hosts in (["a", "a"], ["a", "b"], []):
        clocks, found = came(start, end, hosts)
        assert (found.impossible, clocks.clocks, found.offsets.tolist()) == (1, 2, [0, 10**9])


def test_steps_are_matched_by_number_not_by_order(tmp_path: Path) -> None:
    found = job(tmp_path, [on_device(100, 400, (3, 4, 5)), on_device(400, 400, (4, 5, 6))], ONE[:2])
    assert found.steps == (("ProfilerStep", 4), ("ProfilerStep", 5))
    assert found.collectives == 2
    assert found.notes[:2] == (StepsLeftOut(2), UnmatchedCollectives(2))
    assert job_of(import_files([write(tmp_path / "x.json", on_device(1, 2))], tmp_path / "runs")) is None


def test_collectives_without_a_partner_are_not_guessed(tmp_path: Path) -> None:
    ranks = [on_device(100, 400), on_device(400, 400)]
    ranks[0].append(kernel(REDUCE, 960, 10, stream=20))
    found = job(tmp_path, ranks, ONE[:2])
    # By the moment at which it was launched, or where that is not known began, it lies in the first step.
    assert found.collectives == 1
    assert UnmatchedCollectives(3) in found.notes
    names = ("ncclDevKernel_SendRecv", "ncclDevKernel_Broadcast_RING_LL", "gloo:send", "ncclDevKernel_Reduce_Sum_f32")
    assert not any(map(symmetric, names))
    assert [symmetric(name) for name in (REDUCE, "gloo:barrier", "ncclKernel_ReduceScatter_RING", "all-gather.3")] == [
        "all-reduce", "barrier", "reduce-scatter", "all-gather",
    ]  # fmt: skip


def test_a_host_that_waits_inside_an_annotation_does_not_compute(tmp_path: Path) -> None:
    """Rank 0 computes 100 µs, waits from 100 to 900 and does nothing of its own after that; rank 1 computes through a
    short collective of another thread."""
    first = [step(0, 0, 1000), annotated("train", 0, 1000), op("aten::mm", 0, 100), gloo(100, 800)]
    other = [step(0, 0, 1000), annotated("train", 0, 990), op("aten::mm", 0, 870), gloo(800, 100)]
    found = job(tmp_path, [first, other], ONE[:2])
    parts = [one.parts for one in found.ranks]
    assert [(one["compute"], one["communication"], one["host"], one["idle"]) for one in parts] == [
        (100_000, 800_000, 100_000, 0), (870_000, 30_000, 90_000, 10_000),
    ]  # fmt: skip
    assert [one.wait for one in found.ranks] == [700_000, 0]
    assert slow_ranks(found).operation == "aten::mm"


def test_a_device_computes_while_the_host_communicates(tmp_path: Path) -> None:
    """gloo with tensors of a GPU: the kernel runs from 100 to 300 or 600 µs, the collective of the host until 700."""
    ranks = [
        [step(0, 0, 1000), call("cudaLaunchKernel", 5, 10, 1), kernel("gemm", 100, length, 1),
         op("aten::item", 20, 80 + length), gloo(110 + length, 590 - length)]
        for length in (200, 500)
    ]  # fmt: skip
    found = job(tmp_path, ranks, ONE[:2])
    assert [one.compute for one in found.ranks] == [200_000, 500_000]
    assert [one.parts["communication"] for one in found.ranks] == [390_000, 90_000]
    assert [(one.wait, one.transfer, one.last) for one in found.ranks] == [(300_000, 90_000, 0), (0, 90_000, 1)]


def test_a_rank_that_waits_for_input(tmp_path: Path) -> None:
    loading = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    fast = [step(0, 0, 1000), annotated(loading, 0, 50), op("aten::mm", 50, 100), gloo(150, 800)]
    slow = [step(0, 0, 1000), annotated(loading, 0, 600), op("aten::stack", 10, 90), op("aten::mm", 600, 100),
            gloo(700, 250)]  # fmt: skip
    found = job(tmp_path, [fast, slow, fast], ONE)
    assert [one.parts["input"] for one in found.ranks] == [50_000, 600_000, 50_000]
    slow = slow_ranks(found)
    assert (slow.part, slow.theirs, slow.others) == ("input", 600_000, 50_000)


def test_traces_without_steps_or_collectives(tmp_path: Path) -> None:
    bare = [[event for event in on_device(compute, 600) if event["name"][:4] != "Prof"] for compute in (300, 600)]
    found = job(tmp_path / "a", bare, ONE[:2])
    assert not found.marked and found.steps == (("the whole trace", 0),) and found.collectives == 2
    assert [one.wait for one in found.ranks] == [600_000, 0]
    alone = [[step(0, 0, 10), op("x", 0, length)] for length in (2, 4)]
    found = job(tmp_path / "b", alone, [{}] * 2)
    assert rank_verdict(found).finding == NoCollective(pytest.approx(4 / 3))


def test_ranks_without_a_common_step_are_not_compared(tmp_path: Path) -> None:
    for rank, number in enumerate((3, 4)):
        write(tmp_path / f"{rank}.json", on_device(1, 2, (number,)))
    found = summarise_trace(import_files([tmp_path], tmp_path / "runs"))
    assert found.job is None
    assert NoCommonStep() in found.summary.notes


def test_a_profile_tells_the_model_from_the_framework(tmp_path: Path) -> None:
    packed = (RANKS.parent / "xplane" / "keras_fit.xplane.pb.gz").read_bytes()
    for host in "ab":
        (tmp_path / f"{host}.xplane.pb").write_bytes(gzip.decompress(packed))
    found = summarise_trace(import_files([tmp_path / "a.xplane.pb", tmp_path / "b.xplane.pb"], tmp_path / "runs"))
    assert found.job is not None and found.profile is not None
    steps = found.profile.steps[0]
    for one in found.job.ranks:
        assert one.compute * len(steps.durations) == steps.parts["operations"].value
        assert one.parts["host"] * len(steps.durations) == steps.parts["host"].value


def test_ranks_that_are_even_are_said_to_be(tmp_path: Path) -> None:
    found = job(tmp_path, [on_device(400, 400), on_device(390, 400)], ONE[:2])
    even = rank_verdict(found).finding
    assert isinstance(even, NoSlowRank)
    assert (even.waiting, even.sometimes, even.hidden) == (pytest.approx(0.005), False, False)
    assert (even.latest, even.last, even.collectives) == (0, 2, 2)
    assert even.imbalance == pytest.approx(400 / 395)


def test_several_slow_ranks_are_found_together(tmp_path: Path) -> None:
    """Four ranks compute 100 or 110 µs, two 580 and 600: without both the others would wait 490 µs less."""
    lengths = (100, 600, 110, 580, 100, 100)
    ranks = [on_device(length, 600) for length in lengths]
    heads = [{"host_name": "node7" if length > 500 else "node8"} for length in lengths]
    found = job(tmp_path / "a", ranks, heads)
    assert [one.rank for one in found.late] == [1, 3] and (found.late_last, found.late_held) == (2, 490_000)
    slow = slow_ranks(found)
    assert (slow.ranks, slow.machine, slow.last, slow.collectives) == ((1, 3), "node7", 2, 2)
    assert (slow.held, slow.share) == (490_000, pytest.approx(0.49))
    assert (slow.part, slow.theirs, slow.others, slow.operation) == ("compute", 590_000, 100_000, "gemm")
    nameless = slow_ranks(job(tmp_path / "b", ranks, [{}] * 6))
    assert (nameless.ranks, nameless.machine) == ((1, 3), "")


def test_ranks_that_take_turns_being_late(tmp_path: Path) -> None:
    ranks = [[event for number in range(4) for event in on_device(500 if number == late else 100, 500, (number,),
                                                                 1000.0 * number)] for late in range(4)]  # fmt: skip
    found = job(tmp_path, ranks, [{"host_name": "a"}] * 4)
    assert [one.wait for one in found.ranks] == [300_000] * 4 and [one.last for one in found.ranks] == [1] * 4
    nobody = rank_verdict(found).finding
    assert isinstance(nobody, NoSlowRank) and nobody.sometimes and nobody.waiting == pytest.approx(0.3)


def test_numbers_of_steps() -> None:
    assert step_keys(("train 3", "eval 3", "train 4")) == ((("train", 3), ("eval", 3), ("train", 4)), True)
    assert step_keys(("train", "train")) == ((("train", 0), ("train", 1)), False)
    assert step_keys(("ProfilerStep#1", "ProfilerStep#1"))[1] is False
    assert step_keys(()) == ((), False)


def plain_counts() -> tuple[list[int], float]:
    """Of the recorded ranks, from the files themselves: how often each began its all-reduce last, and how long rank 2
    kept the others waiting a step, ms."""
    events = [json.loads(gzip.decompress((RANKS / f"rank{rank}.json.gz").read_bytes()))["traceEvents"]
              for rank in range(4)]  # fmt: skip
    begins = [sorted(one["ts"] for one in rank if one["name"] == "gloo:all_reduce") for rank in events]
    last, held = [0] * 4, 0.0
    for moments in zip(*begins, strict=True):
        late = max(range(4), key=lambda rank: moments[rank])
        last[late] += 1
        held += sorted(moments)[-1] - sorted(moments)[-2] if late == 2 else 0.0
    return last, held / 1000 / 5


def test_recorded_ranks_on_gloo(tmp_path: Path) -> None:
    run = import_files([RANKS], tmp_path / "runs")
    summary = summarise_trace(run)
    found, (last, held) = summary.job, plain_counts()
    assert found is not None and found.collectives == 10 and found.notes == ()
    assert [one.last for one in found.ranks] == last
    assert found.ranks[2].held / 1e6 == pytest.approx(held, rel=1e-6)
    slow = summary.summary.verdicts[0].finding
    assert isinstance(slow, SlowRanks) and (slow.ranks, slow.operation) == ((2,), "aten::mm")
    assert found.durations.sum() == pytest.approx(sum(one.step for one in found.ranks) * 5)
    assert np.array([sum(one.parts.values()) for one in found.ranks]) == pytest.approx(
        [one.step for one in found.ranks]
    )
    screen = TraceView(summary).text(120, color=False, detail=Detail.ALL)
    assert "keeps others waiting" in screen and "10 collectives" in screen
    page = section_of(TraceView(summary), 0, True)
    (heat,) = charts_of(TraceView(summary).full()).values()
    assert (len(heat.fields[0].y.names), len(heat.x.names)) == (4, 5) and len(boxes_of(heat)[""].places) == 20
    assert "Ranks and steps" in page.html
    document = TraceView(summary).document()["job"]
    assert [one["last"] for one in document["ranks"]] == last
    json.dumps(document, allow_nan=False)
    assert TraceView(summary).text(120, rows=2, color=False, detail=Detail.ALL).count("not above: 2 more ranks") == 1


def test_recorded_ranks_with_a_clock_that_is_wrong(tmp_path: Path) -> None:
    for rank in range(4):
        trace = json.loads(gzip.decompress((RANKS / f"rank{rank}.json.gz").read_bytes()))
        trace["host_name"] = f"node{rank}"
        trace["baseTimeNanoseconds"] += 3_000_000_000 * (rank == 3)
        (tmp_path / f"{rank}.json").write_text(json.dumps(trace))
    found = job_of(import_files([tmp_path], tmp_path / "runs"))
    assert found is not None and found.clocks == 4
    assert abs(found.ranks[3].offset - 3_000_000_000) <= 3 * found.doubt
    assert slow_ranks(found).ranks == (2,)
