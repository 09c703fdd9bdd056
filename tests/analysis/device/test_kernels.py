"""Timelines, kernels, critical paths and comparisons of imported traces, by hand and against second sources."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonda.analysis.comparison.kernels import compare_kernels
from sonda.analysis.comparison.runs import compare
from sonda.analysis.device.critical_path import critical_path
from sonda.analysis.device.kernels import KernelTotals
from sonda.analysis.device.timeline import BusyTime, DeviceTime
from sonda.analysis.run_summary import summarise
from sonda.analysis.traces.summary import device_work, summarise_trace
from sonda.cli.application import main
from sonda.imports.trace import ranks as rank_events
from sonda.imports.trace import spill
from sonda.record.errors import SondaError
from sonda.report.blocks import Detail
from sonda.report.page import page_text
from sonda.report.screen import render
from sonda.report.trace.chrome import write_trace
from sonda.report.views.compare.kernels import kernel_comparison_blocks, kernel_comparison_document
from sonda.report.views.device.kernels import kernel_name
from sonda.report.views.imported import TraceView
from sonda.targets.imported.launcher import import_files
from trace_examples import KINETO, call, imported, kernel, op, step, write

HTA = {
    "mlp": (4028.510, 183.362, 18.337, 4230.209), "resnet18": (48934.966, 4762.859, 95.874, 53793.699),
    "streams": (134.720, 2044.600, 2516.020, 4695.340),
}  # fmt: skip
"""What Holistic Trace Analysis 0.5.0 says with HTA_DISABLE_NS_ROUNDING=1 and include_last_profiler_step=True: idle,
compute, non-compute and kernel time in µs, of times that are doubles."""
HTA_WAITS = {"mlp": (3939.26, 89.25, 0.0), "streams": (1580.18, 7.74, 0.0)}
"""Host wait, kernel wait and other, all streams together. (In resnet18 one launch begins exactly when the kernel before
it ends, 3869231214020.814 µs, which doubles do not resolve: HTA calls that gap of 7.584 µs a host wait.)"""


def only(work: Any) -> DeviceTime:
    assert len(work.devices) == 1
    found: DeviceTime = work.devices[0]
    return found


# ---- timeline ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HTA)
def test_the_breakdown_is_that_of_holistic_trace_analysis(name: str, tmp_path: Path) -> None:
    device = only(device_work(import_files([KINETO / f"{name}.json.gz"], tmp_path)))
    found = (device.idle, device.compute, device.non_compute, device.window)
    assert [time / 1000 for time in found] == pytest.approx(HTA[name], abs=0.001)
    if name in HTA_WAITS:
        assert [time / 1000 for time in device.waits.values()] == pytest.approx(HTA_WAITS[name], abs=0.011)


def test_a_timeline_by_hand(tmp_path: Path) -> None:
    """µs:  gemm 10–30 and 40–50 on stream 7, collective 20–45 on 8, copy 48–60 on 9, gemm 80–90 on 7."""
    work = device_work(
        imported(
            tmp_path,
            [
                call("cudaLaunchKernel", 0, 1, 1), call("cudaLaunchKernel", 2, 1, 2), call("cudaLaunchKernel", 3, 1, 3),
                call("cudaMemcpyAsync", 4, 1, 4), call("cudaLaunchKernel", 70, 1, 5),
                kernel("gemm", 10, 20, 1), kernel("gemm", 40, 10, 2), kernel("ncclDevKernel_A", 20, 25, 3, stream=8),
                kernel("Memcpy DtoH", 48, 12, 4, stream=9, cat="gpu_memcpy"), kernel("gemm", 80, 10, 5),
            ],
        )
    )  # fmt: skip
    device = only(work)
    times = {name: getattr(device, name) / 1000 for name in (
        "window", "busy", "idle", "compute", "non_compute", "communication", "hidden_communication", "copying",
        "hidden_copying", "several")}  # fmt: skip
    assert times == {
        "window": 80, "busy": 60, "idle": 20, "compute": 40, "non_compute": 20, "communication": 25,
        "hidden_communication": 15, "copying": 12, "hidden_copying": 2, "several": 17,
    }  # fmt: skip
    # Stream 7: the gap of 10 µs before the second gemm, launched long before; 30 µs before the third, launched at 70.
    assert device.waits == {"host": 30_000, "kernel": 10_000, "other": 0}
    gemm = next(one for one in work.kernels if one.name == "gemm")
    assert (gemm.launches, gemm.total, gemm.shortest, gemm.longest) == (3, 40_000, 10_000, 20_000)
    assert gemm.latency / gemm.latencies == pytest.approx((10_000 + 38_000 + 10_000) / 3)


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_gap_begins_where_all_before_it_have_ended(cut: int) -> None:
    """0–100, inside it 10–20, then 130–140: one gap of 30, however the activities come."""
    start, end = np.array([0, 10, 130]) * 1000, np.array([100, 20, 140]) * 1000
    coverage = BusyTime(0, "cuda:0")
    for block in np.split(np.arange(3), [cut]):
        nothing = np.zeros(len(block), np.int64)
        coverage.feed(start[block], end[block], nothing, nothing, np.full(len(block), np.nan))
    assert sum(coverage.result().waits.values()) == coverage.result().idle == 30_000


@settings(max_examples=200, deadline=None)
@given(
    activities=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 25), st.integers(0, 2)), min_size=1, max_size=25),
    cuts=st.lists(st.integers(0, 25), max_size=4),
)  # fmt: skip
def test_coverage_is_what_looking_at_every_moment_gives(
    activities: list[tuple[int, int, int]], cuts: list[int]
) -> None:
    rows = np.array(sorted(activities))
    start, end, kinds = rows[:, 0], rows[:, 0] + rows[:, 1], rows[:, 2]
    coverage = BusyTime(0, "cuda:0")
    for block in np.split(np.arange(len(rows)), sorted(cut for cut in cuts if cut < len(rows))):
        nothing = np.zeros(len(block), np.int64)
        coverage.feed(start[block], end[block], kinds[block], nothing, np.full(len(block), np.nan))
    found = coverage.result()
    masks, several = [0] * 8, 0
    for moment in range(int(start.min()), int(end.max())):
        running = [int(kind) for begin, stop, kind in zip(start, end, kinds, strict=True) if begin <= moment < stop]
        masks[sum(1 << kind for kind in set(running))] += 1
        several += len(running) > 1
    assert list(found.masks) == masks and found.several == several
    assert found.window == end.max() - start.min() and found.busy + found.idle == found.window


@pytest.mark.parametrize("name", ["mlp", "streams"])
def test_blocks_do_not_change_the_figures(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = device_work(import_files([KINETO / f"{name}.json.gz"], tmp_path))
    monkeypatch.setattr(spill, "STRIDE", 4)
    monkeypatch.setattr(rank_events, "merge_by_time", lambda spills: spill.merge_by_time(spills, 40))
    cut = device_work(import_files([KINETO / f"{name}.json.gz"], tmp_path))
    assert cut.devices == whole.devices and cut.steps == whole.steps
    assert [replace(one, squares=0.0) for one in cut.kernels] == [replace(one, squares=0.0) for one in whole.kernels]
    assert [one.squares for one in cut.kernels] == pytest.approx([one.squares for one in whole.kernels], rel=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(0, 10**12), min_size=1, max_size=20), min_size=1, max_size=5))
def test_deviations_over_blocks_are_those_of_all_values(blocks: list[list[int]]) -> None:
    totals = KernelTotals("k", "kernel")
    for block in blocks:
        totals.add(np.array(block))
    values = [value for block in blocks for value in block]
    assert totals.mean == pytest.approx(sum(values) / len(values))
    if len(values) > 1:
        assert totals.deviation == pytest.approx(float(np.std(values, ddof=1)), rel=1e-6, abs=1e-3)


# ---- critical path ----------------------------------------------------------------------------------------------


def test_a_path_through_a_queue(tmp_path: Path) -> None:
    """Both launched at once: the second waits for the first, so the host counts only until the first launch."""
    run = imported(
        tmp_path,
        [op("start", 0, 4), call("cudaLaunchKernel", 5, 1, 1), call("cudaLaunchKernel", 7, 1, 2),
         kernel("a", 10, 20, 1), kernel("b", 32, 8, 2)],
    )  # fmt: skip
    path = critical_path(run)
    assert path is not None
    assert (path.total, path.device, path.queue, path.launch, path.host, path.returning) == (
        40_000, 28_000, 2_000, 5_000, 5_000, 0,
    )  # fmt: skip
    assert path.names == {"a": 20_000, "b": 8_000}


def test_a_path_through_a_wait_of_the_host(tmp_path: Path) -> None:
    """The host waits for a until 33, thinks, and launches b at 40."""
    run = imported(
        tmp_path,
        [call("cudaLaunchKernel", 0, 1, 1), kernel("a", 10, 20, 1), call("cudaDeviceSynchronize", 5, 28, 9),
         call("cudaLaunchKernel", 40, 1, 2), kernel("b", 45, 5, 2, stream=8)],
    )  # fmt: skip
    path = critical_path(run)
    assert path is not None
    assert (path.total, path.device, path.launch, path.host, path.returning, path.queue) == (
        50_000, 25_000, 15_000, 7_000, 3_000, 0,
    )  # fmt: skip


# ---- comparison -------------------------------------------------------------------------------------------------


def steps_of(lengths: list[float], extra: str) -> list[dict[str, Any]]:
    events = []
    for number, length in enumerate(lengths):
        at = 1000 * number
        events += [step(number, at, 900), kernel("gemm", at + 10, length), kernel("gemm", at + 300, length),
                   kernel("same", at + 600, 50 + number % 2), kernel(extra, at + 700, 7)]  # fmt: skip
    return events


def test_two_traces_kernel_by_kernel(tmp_path: Path) -> None:
    a = import_files([write(tmp_path / "a.json", steps_of([100, 101, 99, 100], "old"))], tmp_path / "runs")
    b = import_files([write(tmp_path / "b.json", steps_of([150, 151, 149, 150, 150, 150], "new"))], tmp_path / "runs")
    found = compare_kernels([a], [b])
    assert found.per_step
    gemm, same = found.rows
    assert (gemm.name, gemm.launches_a, gemm.launches_b) == ("gemm", 2, 2)
    assert (gemm.a.value, gemm.b.value) == (200_000, 300_000)
    assert gemm.ratio.value == pytest.approx(1.5) and gemm.significant and gemm.text == "1.50x slower"
    assert gemm.ratio.low is not None and 1.4 < gemm.ratio.low < 1.5
    assert same.name == "same" and same.text == "not significant"
    assert [one.name for one in found.only_a] == ["old"] and [one.time.value for one in found.only_b] == [7_000]
    assert {name: (x.value, y.value) for name, x, y in found.totals}["step"] == (900_000, 900_000)
    assert found.slowdown.value == 0 and found.check(0.01).outcome == "within"
    text = render(kernel_comparison_blocks(found, fail_above=0.05), 120, False)
    assert "1.50x slower" in text and "only in A" in text and "Within the limit of 5 %: B takes" in text
    assert json.loads(json.dumps(kernel_comparison_document(found)))["kernels"][0]["ratio"]["value"] == pytest.approx(
        1.5
    )


def test_an_interval_that_says_nothing_is_not_shown(tmp_path: Path) -> None:
    a, b = (imported(tmp_path, [step(0, 0, first), step(1, 1000, 400), kernel("k", 5, 1)]) for first in (100, 300))
    found = compare_kernels([a], [b])
    assert found.slowdown.value == pytest.approx(350 / 250 - 1) and found.check(0.1).exit_code == 3
    assert "No significant difference: B may be more than 10x faster or slower (95 %)" in render(
        kernel_comparison_blocks(found), 120
    )
    said = render(kernel_comparison_blocks(found, fail_above=0.1), 120)
    # Their steps vary by 85 and 20 %: 2.8**2 * (0.85**2 + 0.2**2) / log(1.4 / 1.1)**2 is 103.
    assert "Cannot tell whether B is above the limit of 10 %" in said
    assert "More than 100 steps on each side would be needed" in " ".join(said.split())
    assert said.endswith(f"Page of both: sonda report {a.id} {b.id}")


def test_what_cannot_be_compared_is_one_line(tmp_path: Path) -> None:
    a = imported(tmp_path, [kernel("k", 0, 1)])
    host = imported(tmp_path, [op("x", 0, 1)])
    with pytest.raises(SondaError, match="holds no kernel"):
        compare_kernels([a], [host])
    with pytest.raises(SondaError, match="one by one"):
        compare_kernels([a, a], [a])
    with pytest.raises(SondaError, match="kernel by kernel"):
        compare([a], [a])


# ---- reports ----------------------------------------------------------------------------------------------------


def test_names_with_markup_act_nowhere(tmp_path: Path) -> None:
    name = "<script>alert(1)</script>[bold red]\x1b[31m"
    run = imported(tmp_path, [kernel(name, 0, 5), kernel(name, 7, 5)])
    found = summarise_trace(run)
    text = TraceView(found).text(120, color=False, detail=Detail.ALL)
    assert "\x1b" not in text and "[bold red]" in text
    page = page_text([summarise(run)], [run])
    assert "<script>alert(1)" not in page and "&lt;script&gt;alert(1)" in page
    assert TraceView(found).document()["kernels"][0]["name"] == name
    exported = json.loads(write_trace(tmp_path / "out.json", run).read_text())
    assert [event["name"] for event in exported["traceEvents"] if event["ph"] == "X"] == [name, name]


def test_the_screen_says_what_limits_a_real_trace(tmp_path: Path) -> None:
    run = import_files([KINETO / "resnet18.json.gz"], tmp_path)
    text = TraceView(summarise_trace(run)).text(120, rows=3, color=False, detail=Detail.ALL)
    assert "cuda:0 is idle 91 % of the time: in 97 % of its gaps" in text
    assert "53.8 ms" in text and "47 more" in text and "critical path" in text
    assert summarise(run).verdicts[0].kind == "overhead"


def test_collectives_are_on_the_track_of_their_stream(tmp_path: Path) -> None:
    run = imported(tmp_path, [kernel("gemm", 0, 5), kernel("ncclDevKernel_AllReduce", 2, 9, stream=8)])
    events = json.loads(write_trace(tmp_path / "out.json", run).read_text())["traceEvents"]
    named = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    places = {event["name"]: named[event["tid"]] for event in events if event["ph"] == "X"}
    assert places == {"gemm": "cuda:0 stream 7", "ncclDevKernel_AllReduce": "cuda:0 stream 8"}


def test_counts_of_kernels_are_tracks_of_the_exported_trace(tmp_path: Path) -> None:
    copies = [
        kernel("Memcpy HtoD", start, length, cat="gpu_memcpy", bytes=size)
        for start, length, size in ((10, 4, 4000), (14, 2, 6000), (30, 0, 5))
    ]
    run = imported(tmp_path, [op("before", 0, 1), *copies])
    trace = json.loads(write_trace(tmp_path / "out.json", run).read_text())
    points = [(event["ts"], event["args"]) for event in trace["traceEvents"] if event["ph"] == "C"]
    # 4,000 bytes in 4 µs, then 6,000 in 2 µs at once, then nothing; a copy without a duration has no rate.
    assert points == [(10.0, {"B/s": 1e9}), (14.0, {"B/s": 3e9}), (16.0, {"B/s": 0.0})]
    assert {event["name"] for event in trace["traceEvents"] if event["ph"] == "C"} == {
        "bytes rate cuda:0 stream 7 (counted)"
    }


def test_long_names_lose_first_what_tells_none_from_another() -> None:
    begin = "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::"
    both = [f"{begin}{one}(at::TensorIterator&)>" for one in ("launch_clamp_scalar", "sigmoid_kernel_cuda")]
    shown = [kernel_name(name) for name in both]
    assert shown[0].text.startswith("vectorized_elementwise_kernel<4, launch_clamp_scalar(")
    assert shown[0].text != shown[1].text and [cell.hint for cell in shown] == both
    assert max(len(cell.text) for cell in shown) <= 60 and kernel_name("void f()").text == "void f()"


def test_the_command_line_imports_shows_compares_and_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SONDA_HOME", str(tmp_path / "runs"))

    def sonda(*words: str) -> tuple[object, str, str]:
        """The exit code and both outputs of a command, in this process."""
        monkeypatch.setattr(sys, "argv", ["sonda", *words])
        code: object = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        return (code, *capsys.readouterr())

    code, output, error = sonda("import", str(KINETO / "streams.json.gz"), "--tag", "one", "--json")
    assert code == 0, error
    assert json.loads(output)["devices"][0]["busy_ns"] == 4_695_340 - 134_720
    assert json.loads(output)["verdicts"][0]["kind"] == "transfer"
    assert sonda("import", str(KINETO / "mlp.json.gz"), "--tag", "two")[0] == 0
    assert "copies that no computation hides" in sonda("show", "one")[1]
    assert "against A" in sonda("compare", "one", "two")[1]
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    assert sonda("report", "one", "two", "-o", str(page))[0] == 0
    assert "Memcpy HtoD" in page.read_text()
    assert sonda("export", "one", "--trace", str(trace))[0] == 0
    counters = {event["name"] for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "C"}
    assert "bytes rate cuda:0 stream 46 (counted)" in counters
    (tmp_path / "bad.json").write_text("{")
    code, _, error = sonda("import", str(tmp_path / "bad.json"))
    assert code == 2 and error.count("\n") == 1 and "bad.json" in error
