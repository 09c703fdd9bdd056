"""LoadGen as the source of traffic: its log read, and, where it is installed, its numbers against ours."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import pytest

from sonda.record.conventions.percentiles import at_percentile, early_estimate, late_allowed
from sonda.record.errors import MissingExtraError
from sonda.targets.serving.loadgen import read_detail
from sonda.targets.serving.loop import FailedQueryError, HostClock
from sonda.targets.serving.scenarios import run_traffic
from sonda.targets.serving.traffic import ServingTraffic, check_traffic

try:
    import mlperf_loadgen
except ImportError:
    mlperf_loadgen = None

needs_loadgen = pytest.mark.skipif(mlperf_loadgen is None, reason="mlcommons-loadgen is not installed")

DETAIL = """\
:::MLLOG {"key": "loadgen_version", "value": "6.0.17 @ d6147c7eb7", "time_ms": 0.01, "namespace": "mlperf::logging", "event_type": "POINT_IN_TIME", "metadata": {"is_error": false, "is_warning": false, "file": "version.cc", "line_no": 52, "pid": 1, "tid": 2}}
:::MLLOG {"key": "requested_scenario", "value": "SingleStream", "time_ms": 1.0, "metadata": {"is_error": false}}
:::MLLOG {"key": "result_validity", "value": "VALID", "time_ms": 2.0, "metadata": {"is_error": false}}
:::MLLOG {"key": "result_90.00_percentile_latency_ns", "value": 796670, "time_ms": 3.0, "metadata": {"is_error": false}}
:::MLLOG {"key": "error_runtime", "value": "Ending early", "time_ms": 4.0, "metadata": {"is_error": true}}
:::MLLOG {"key": "result_cut
something else
"""  # noqa: E501


def test_a_detail_log_is_read_with_its_errors() -> None:
    assert read_detail(DETAIL) == {
        "loadgen_version": "6.0.17 @ d6147c7eb7",
        "result_validity": "VALID",
        "result_90.00_percentile_latency_ns": 796670,
        "errors": ["error_runtime: Ending early"],
    }
    assert read_detail("") == {"errors": []}
    assert read_detail(':::MLLOG [1]\n:::MLLOG {"key": "result_x", "value": {}}') == {"errors": []}


@pytest.mark.skipif(mlperf_loadgen is not None, reason="mlcommons-loadgen is installed")
def test_where_it_is_absent_the_extra_is_named(tmp_path: Path) -> None:
    asked = check_traffic(ServingTraffic(scenario="single-stream", queries=5, backend="loadgen"))
    with pytest.raises(MissingExtraError, match=r"pip install 'sonda-profiler\[serving\]'"):
        run_traffic(asked, 0, lambda queries: None, HostClock(), 0, tmp_path)


def working(queries: int) -> None:
    """0.3 ms of inference."""
    end = time.perf_counter_ns() + 300_000
    while time.perf_counter_ns() < end:
        pass


@needs_loadgen
def test_loadgen_measures_the_same_queries_around_ours(tmp_path: Path) -> None:
    asked = check_traffic(ServingTraffic(scenario="single-stream", queries=1000, backend="loadgen"))
    served, facts = run_traffic(asked, 0, working, HostClock(), 1, tmp_path)
    said, ordered = facts.loadgen, np.sort(served.latency)
    assert len(served) == said["result_query_count"] == 1000
    assert said["result_validity"] == "VALID"
    assert said["errors"] == []
    for percentile in (0.5, 0.9, 0.95, 0.99):
        # LoadGen's clock starts before a query is handed over and stops after the answer: never less than ours.
        theirs = said[f"result_{100 * percentile:.2f}_percentile_latency_ns"]
        assert theirs >= at_percentile(ordered, percentile) >= 300_000
    discarded = re.search(r"Would discard (\d+) highest", said["early_stopping_result"])
    assert discarded is not None
    assert int(discarded[1]) == late_allowed(1000, 0.9) - 1
    estimate = early_estimate(ordered, 0.9)
    assert estimate is not None
    assert said["early_stopping_latency_ss"] >= estimate


@needs_loadgen
@pytest.mark.parametrize(
    ("given", "inferences"),
    [
        ({"scenario": "multi-stream", "samples": 4, "queries": 30}, 30),
        ({"scenario": "offline", "max_batch": 8, "queries": 60}, 8),  # seven of 8 and one of 4
        ({"scenario": "server", "qps": 500.0, "bound": 10**9, "queries": 60, "max_batch": 2}, None),
    ],
)
def test_the_other_scenarios_answer_every_query(
    tmp_path: Path, given: dict[str, object], inferences: int | None
) -> None:
    asked = check_traffic(ServingTraffic(**given, backend="loadgen"))  # type: ignore[arg-type]
    served, facts = run_traffic(asked, 0, working, HostClock(), 1, tmp_path)
    assert len(served) == given["queries"]
    assert (served.begun >= served.arrived).all()
    assert (served.done > served.begun).all()
    assert inferences is None or (1 / served.batch).sum() == pytest.approx(inferences)
    assert facts.loadgen["errors"] == []


@needs_loadgen
def test_a_failing_model_ends_loadgen_too(tmp_path: Path) -> None:
    calls = iter(range(10_000))

    def infer(queries: int) -> None:
        if next(calls) == 50:
            raise RuntimeError("boom")

    asked = check_traffic(ServingTraffic(scenario="single-stream", queries=100, backend="loadgen"))
    with pytest.raises(FailedQueryError, match="query 46"):  # 5 inferences are tried before
        run_traffic(asked, 0, infer, HostClock(), 0, tmp_path)
