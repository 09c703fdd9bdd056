"""`sonda serve`: from the command line to the run, its summary, the screen, JSON and the page."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from charts import boxes_of
from command_line import run_command
from fake_energy import Powercap
from serving_run_cases import MS, evenly, here, synthetic
from sonda.analysis.findings import Finding
from sonda.analysis.run_summary import summarise
from sonda.analysis.serving import (
    DependentQueries,
    FewOfflineSamples,
    HigherRate,
    JudgedBound,
    LessWaiting,
    LookInside,
    LowerRate,
    NoMlperfResult,
    OfflineRate,
    Overloaded,
    QuotedPercentile,
    SendMore,
    served,
)
from sonda.record.errors import SondaError
from sonda.record.readings import SensorReadings
from sonda.record.run import ProbeState, new_id
from sonda.record.store import Store
from sonda.report.blocks import Detail
from sonda.report.charts.chart import Guide
from sonda.report.page import page_text
from sonda.report.views.serving import ServingView, histogram_figure
from sonda.report.words import describe
from sonda.targets.instruments.energy import EnergySettings
from sonda.targets.job import Job
from sonda.targets.serving import worker as serving_worker
from sonda.targets.serving.launcher import measure_serving
from sonda.targets.serving.traffic import ServingTraffic, check_traffic, parse_nanoseconds
from sonda.targets.serving.worker import build_served_model, options_with_batch

__all__ = ["here"]

# ---- what it means --------------------------------------------------------------------------------------------------


def test_numbers_of_a_run_by_hand(tmp_path: Path) -> None:
    """100 queries of 2, 3, …, 101 ms, one after another, 30 J."""
    run = synthetic(tmp_path, evenly(np.arange(2, 102) * MS), [ProbeState("energy", "ok")], scenario="single-stream")
    found = served(run)
    assert run.info.kind == "serving"
    assert found.queries == 100
    assert found.time.value == sum(range(2, 102)) * MS
    assert found.throughput.value == pytest.approx(100 / 5.15)
    assert found.mean.value == 51.5 * MS
    assert found.wait.value == MS
    assert found.busy.value == pytest.approx(1 - 100 / 5150)
    assert found.per_query.value == pytest.approx(0.3)
    assert (found.per_query.low, found.per_query.high) == (pytest.approx(0.27), pytest.approx(0.36))
    # floor(100 · 0.9) = 90 values are below it; of 100 queries 3 may be late, so 2 are left out (P(X ≤ 3) = 0.0078,
    # P(X ≤ 4) = 0.0237).
    assert found.asked.latency.value == 92 * MS
    assert found.asked.estimate.value == 99 * MS
    assert found.asked.quotable == "estimate"
    assert found.asked.needed == 24_576
    assert sum(found.counts) == 100
    assert len(found.edges) == len(found.counts) + 1
    by_name = {one.percentile: one for one in found.percentiles}
    assert by_name[0.99].quotable == ""
    assert by_name[0.99].missing == 662 - 100
    assert found.finding == QuotedPercentile(found.asked, 100)


def test_what_probes_read_of_a_served_model_is_shown(tmp_path: Path) -> None:
    run = synthetic(tmp_path, evenly(np.full(60, 5 * MS)), scenario="single-stream")
    readings = SensorReadings(
        probe="fans", sensor="left", unit="1/min", readings=3, mean=900.0, least=800.0, most=950.0
    )
    summary = replace(served(run), probed=(readings,))
    view = ServingView(summary)
    assert view.fields()["probed"][0]["mean"]["value"] == 900.0
    for blocks in (view.tables(), view.full()):
        assert "fans: left" in repr(blocks)


def test_what_to_try_follows_from_the_traffic(tmp_path: Path) -> None:
    """Queries of 2 ms, of which they wait 1."""

    def remedy(count: int, bound: float | None = None, wait: int = 1, **given: Any) -> Finding | None:
        arrived, _, done, batch = evenly(np.full(count, (wait + 1) * MS))
        moments = [arrived, arrived + wait * MS, done, batch]
        found = served(
            synthetic(tmp_path / new_id(), moments, bound=round(bound * MS) if bound else None, rate=400.0, **given)
        )
        assert found.remedy is not None and f"Try: {describe(found.remedy)}" in ServingView(found).text(
            200, detail=Detail.ALL
        )
        assert ServingView(found).document()["remedy"] == describe(found.remedy)
        return found.remedy

    single = {"scenario": "single-stream"}
    server = {"scenario": "server", "qps": 400.0}
    assert remedy(60, **single) == SendMore(64)
    assert remedy(2000, **single) == LookInside("mlp", MS)
    assert remedy(2000, 10, **server) == HigherRate()
    assert remedy(2000, 1.5, **server) == LowerRate()
    assert remedy(2000, 0.5, **server) == LookInside("mlp", MS)
    assert remedy(2000, wait=3, **server) == LessWaiting(3 * MS, MS)


def test_a_percentile_without_enough_queries_is_not_quoted(tmp_path: Path) -> None:
    found = served(synthetic(tmp_path, evenly(np.full(60, 5 * MS)), scenario="single-stream"))
    assert found.finding == QuotedPercentile(found.asked, 60) and (found.asked.quotable, found.asked.missing) == ("", 4)
    assert "no: 4 queries are missing" in ServingView(found).text(140, detail=Detail.ALL)
    assert ServingView(found).document()["percentiles"][1]["quotable"] is None
    assert found.per_query.reason == "not asked for: --probe energy"


def test_a_short_percentile_keeps_its_digits_beside_a_long_one(tmp_path: Path) -> None:
    """99 queries of 1.052 ms and one of 250 ms: the median is not shown as 1.1 ms."""
    latencies = np.append(np.full(99, MS + 52_000), 250 * MS)
    found = served(synthetic(tmp_path, evenly(latencies), scenario="single-stream"))
    rows = [" ".join(line.split()) for line in ServingView(found).text(140, detail=Detail.ALL).splitlines()]
    assert any(row.startswith("50 1.05 ms 1.05 ms to 1.05 ms ") for row in rows)
    assert any(row.startswith("99 250 ms ") for row in rows)


def test_the_full_count_makes_it_quotable_as_counted(tmp_path: Path) -> None:
    latencies = np.random.default_rng(1).permutation(np.arange(24_576)) + 2 * MS
    found = served(synthetic(tmp_path, evenly(latencies), scenario="single-stream"))
    assert found.asked.quotable == "counted"
    assert found.asked.latency.value == 2 * MS + 22_118  # floor(24,576 · 0.9) = 22,118
    assert served(synthetic(tmp_path, evenly(latencies[:-1]), scenario="single-stream")).asked.quotable == "estimate"


@pytest.mark.parametrize(
    ("count", "late", "allowed", "held", "missing"),
    [(662, 1, 1, True, 0), (662, 2, 1, False, 0), (458, 0, -1, False, 1)],
)
def test_a_bound_holds_by_the_binomial_rule(
    tmp_path: Path, count: int, late: int, allowed: int, held: bool, missing: int
) -> None:
    latencies = np.full(count, 10 * MS)
    latencies[: late * 7 : 7] = 30 * MS
    run = synthetic(tmp_path, evenly(latencies), scenario="server", qps=50.0, bound=20 * MS, rate=50.0)
    found = served(run)
    assert found.bound is not None
    bound = found.bound
    assert (bound.late, bound.allowed, bound.held, bound.missing) == (late, allowed, held, missing)
    assert found.finding == JudgedBound(bound, 0.99, found.rate, count, searched=False)


def test_shared_inferences_count_once(tmp_path: Path) -> None:
    """Two inferences of 4 ms, one with three queries, one alone: busy 8 of 10 ms, two queries an inference."""
    moments = [[0, 0, 0, 5 * MS], [MS, MS, MS, 6 * MS], [5 * MS, 5 * MS, 5 * MS, 10 * MS], [3, 3, 3, 1]]
    found = served(synthetic(tmp_path, moments, scenario="offline"))
    assert found.busy.value == pytest.approx(0.8)
    assert found.batch.value == pytest.approx(2.0)
    assert found.sample_rate.value == pytest.approx(400.0)
    assert found.finding == OfflineRate(found.sample_rate, 4)
    assert FewOfflineSamples(4) in found.notes


def test_overload_and_dependence_are_said(tmp_path: Path) -> None:
    """Queries every 10 ms that take 15 ms each: every one waits 5 ms more than the one before."""
    arrived = np.arange(200) * 10 * MS
    done = (np.arange(200) + 1) * 15 * MS
    moments = [arrived, done - 15 * MS, done, np.ones(200)]
    found = served(synthetic(tmp_path, moments, scenario="server", qps=100.0, rate=100.0))
    (overloaded,) = found.warnings
    assert isinstance(overloaded, Overloaded)
    assert (overloaded.arrived, overloaded.answered) == (pytest.approx(100), pytest.approx(66.7, rel=1e-3))
    assert isinstance(found.notes[0], DependentQueries) and found.notes[0].queries == 200
    steady = evenly(np.random.default_rng(2).permutation(np.arange(300) * 1000) + 2 * MS)
    quiet = served(synthetic(tmp_path, steady, scenario="single-stream"))
    assert quiet.warnings == ()
    assert quiet.notes == (NoMlperfResult(),)


def test_a_run_without_queries_is_said_in_one_line(tmp_path: Path) -> None:
    run = synthetic(tmp_path, np.empty((4, 0)), scenario="offline")
    with pytest.raises(SondaError, match="holds no traffic that can be read"):
        served(run)


def test_a_page_draws_the_histogram_and_escapes_names(tmp_path: Path) -> None:
    run = synthetic(
        tmp_path, evenly(np.arange(2, 102) * MS), scenario="single-stream", loadgen={"result_<b>": "<script>x"}
    )
    page = page_text([summarise(run)], [run])
    assert "run0latency" in page
    assert "<script>x" not in page.split("<main")[1].split("</main>")[0]
    assert "90th percentile of latency" in page


def test_bins_that_grow_are_drawn_on_an_axis_that_grows(tmp_path: Path) -> None:
    """Latencies of 2 to 101 ms; 20 to 69 ms need no such axis, for bins of one width have room."""
    wide = histogram_figure(served(synthetic(tmp_path, evenly(np.arange(2, 102) * MS), scenario="single-stream")))
    axis, bars = wide.x, boxes_of(wide)[""].places
    assert axis.log and axis.ends is not None and axis.ends[0] < 2 * MS and axis.ends[1] > 101 * MS
    assert {"2 ms", "10 ms", "100 ms"} <= {text for _, text in axis.ticks}
    assert bars[0][0] == 2 * MS and bars[-1][1] == pytest.approx(101 * MS)
    rules = [mark.at for mark in wide.marks if isinstance(mark, Guide)]
    assert rules[0] == pytest.approx(91 * MS, abs=MS)  # nine of ten take less
    even = histogram_figure(served(synthetic(tmp_path, evenly(np.arange(20, 70) * MS), scenario="single-stream")))
    assert not even.x.log and boxes_of(even)[""].places[0][0] == 20


# ---- running --------------------------------------------------------------------------------------------------------


def test_a_served_model_is_kept_query_by_query(here: Path) -> None:
    store = Store(here / "store")
    asked = ServingTraffic(scenario="multi-stream", samples=3, queries=20)
    run = measure_serving(Job(workload="mlp", threads=1, seed=4), asked, store)
    spans = run.spans
    queries = spans.where(kind="query")
    assert queries.sum() == 20
    assert (spans.number("duration")[queries] > 0).all()
    assert (spans.metric("samples", "nominal")[queries] == 3).all()
    assert (spans.number("parent")[queries] == np.flatnonzero(spans.where(kind="part"))[0]).all()
    # One at a time: every query begins when the one before ended.
    start, duration = spans.number("start")[queries], spans.number("duration")[queries]
    assert (start[1:] == start[:-1] + duration[:-1]).all()
    assert run.info.seed == 4
    assert run.info.target.serving.scenario == "multi-stream"
    assert run.info.workload.batch is None
    assert store.one("last").id == run.id


def test_energy_is_that_of_the_traffic_alone(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every inference costs 2 J of a fake package's counter, also those before the traffic."""
    counter = Powercap(here / "root").zone("0", "package-0", 0)
    wanted = EnergySettings(interval=0.01, idle=0.0, root=here / "root", gpus=False)
    monkeypatch.setattr("sonda.targets.instruments.energy.parse_energy_probes", lambda probes: wanted)

    def model(job: Job, traffic: ServingTraffic) -> tuple[Any, dict[str, Any]]:
        def infer(queries: int) -> None:
            counter.write_text(f"{int(counter.read_text()) + 2_000_000}\n")
            time.sleep(0.02)

        return infer, {"name": "spender"}

    monkeypatch.setattr(serving_worker, "build_served_model", model)
    asked = ServingTraffic(scenario="single-stream", queries=40)
    found = served(measure_serving(Job(workload="mlp", threads=1, probe="energy"), asked, Store(here / "store")))
    assert found.per_query.source == "measured"
    assert found.per_query.low is not None
    assert found.per_query.high is not None
    # The fake spends its 2 J in one moment, which no load does: the first or the last may fall outside the traffic.
    assert found.per_query.low <= 2.0 * 41 / 40 and found.per_query.high >= 2.0 * 39 / 40
    assert found.energy is not None
    whole = found.energy.all["measured"].energy.value
    # 3 inferences to warm up and 5 that were tried are in the run and not in the traffic.
    assert whole is not None
    assert 40 * found.per_query.low < whole <= 2.0 * (40 + 3 + 5) + 1e-6
    assert found.per_query.low > 0


def test_every_size_of_inference_uses_one_model(here: Path) -> None:
    seen: list[tuple[int, int]] = []
    traffic = check_traffic(ServingTraffic(scenario="offline", max_batch=3, queries=6, samples=2))
    with pytest.MonkeyPatch.context() as patch:
        real = torch.nn.Module.__call__

        def watched(module: Any, *inputs: Any, **words: Any) -> Any:
            if isinstance(module, torch.nn.Sequential) or type(module).__name__ == "Perceptron":
                seen.append((id(module), len(inputs[0])))
            return real(module, *inputs, **words)

        patch.setattr(torch.nn.Module, "__call__", watched)
        infer, about = build_served_model(Job(workload="mlp", threads=1), traffic)
        for size in (1, 2, 3):
            infer(size)
    assert {rows for _, rows in seen} == {2, 4, 6}
    assert len({identity for identity, rows in seen if rows == 2} & {one for one, rows in seen if rows == 6}) == 1
    assert about["samples"] == 2


def test_inputs_of_ones_own_model_are_resized(here: Path) -> None:
    job = Job(workload=f"{here / 'own.py'}:build", options={"input": "8x4,8x2:int64<9,3x3"})
    assert options_with_batch(job, 2)["input"] == "2x4,2x2:int64<9,3x3"
    with pytest.raises(SondaError, match="set by the traffic"):
        options_with_batch(Job(workload="mlp", options={"batch": "4"}), 1)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (Job(workload="mlp", on="sim:maeri-256"), "sim:maeri-256 cannot be served"),
        (Job(workload="mlp", train=True), "training cannot be served"),
        (
            Job(workload="mlp", probe="energy-modell:cpu=20..95"),
            "there is no probe 'energy-modell'",
        ),
        (Job(workload="mlp", probe="pmu"), "--probe pmu cannot be read of a serving run"),
        (Job(workload="mlp", on="cpu/2", threads=1), "do not agree"),
    ],
)
def test_what_cannot_be_served_is_refused(here: Path, job: Job, said: str) -> None:
    with pytest.raises(SondaError, match=said):
        measure_serving(job, ServingTraffic(scenario="single-stream", queries=1), Store(here / "store"))
    assert not (here / "store").exists() or not list((here / "store").glob("2*"))


def test_the_command_line_shows_keeps_and_reports(here: Path) -> None:
    words = ("serve", "own.py:build", "--input", "1x4", "--scenario", "server", "--qps", "400", "--threads", "1")
    done = run_command(
        here, *words, "--queries", "80", "--latency-bound", "10s", "--max-batch", "2", "--percentile", "90"
    )
    assert done.returncode == 0, done.stderr
    assert "400 queries/s hold 10.0 s at the 90th percentile" in done.stdout
    assert "90 of 100 within" in done.stdout and "up to" in run_command(here, "show", "last", "-v").stdout
    shown = run_command(here, "show", "last", "--json")
    document = json.loads(shown.stdout)
    assert document["kind"] == "serving"
    assert document["queries"] == sum(document["histogram"]["counts"]) == 80
    assert document["bound"]["held"] is True
    assert "own.py:build" in run_command(here, "ls").stdout
    assert run_command(here, "report", "last", "-o", "page.html").returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--fails", "109", "--queries", "200"),  # called once when built, 3 times to warm up, 5 to be tried
            "query 100: the workload failed: RuntimeError: no memory of that (own.py",
        ),
        (("--fails", "3"), "inference 2 before the traffic: the workload failed"),
        (("--scenario", "serve"), "there is no scenario 'serve'"),
        (("--scenario", "server", "--qps", "1000000"), "so the queue would only grow"),
        (("--scenario", "server", "--qps", "5", "--latency-bound", "1us"), "is shorter than one inference"),
        (("--scenario", "server", "--qps", "5", "--latency-bound", "5"), "--latency-bound '5' is not a time"),
    ],
)
def test_mistakes_are_one_line(here: Path, words: tuple[str, ...], said: str) -> None:
    done = run_command(here, "serve", "own.py:build", "--input", "1x4", "--threads", "1", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert not list((here / "store").glob("2*"))


def test_times_are_read_with_their_unit() -> None:
    assert parse_nanoseconds("--x", "50ms") == 50 * MS
    assert parse_nanoseconds("--x", "1.5 s") == 1500 * MS
    assert parse_nanoseconds("--x", ".5us") == parse_nanoseconds("--x", "0.5µs") == 500
    for wrong in ("", "5", "-1ms", "1h", "ms"):
        with pytest.raises(SondaError, match="is not a time"):
            parse_nanoseconds("--x", wrong)
