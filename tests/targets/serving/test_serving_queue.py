"""The loop that serves queries, on a clock that only moves when somebody waits or computes, against queueing theory."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from sonda.record.errors import SondaError
from sonda.targets.serving.loop import FailedQueryError, HostClock, serve_closed, serve_open
from sonda.targets.serving.scenarios import find_rate, run_traffic
from sonda.targets.serving.traffic import ServingTraffic, arrivals, check_traffic, query_count

MS = 1_000_000


class FakeClock:
    def __init__(self) -> None:
        self.time = 0

    def now(self) -> int:
        return self.time

    def wait_until(self, moment: int) -> None:
        self.time = max(self.time, moment)

    def model(self, cost: Callable[[int], int]) -> Callable[[int], None]:
        """An inference that takes `cost(queries)` ns."""

        def infer(queries: int) -> None:
            self.time += cost(queries)

        return infer


# ---- theory ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("load", [0.3, 0.5, 0.8])
def test_waits_of_a_simulated_queue_are_pollaczek_and_khinchines(load: float) -> None:
    """M/D/1: mean wait = load · service / (2 (1 - load)), and a query waits at all with probability `load`."""
    clock, service, count = FakeClock(), MS, 60_000
    moments = arrivals(load * 1e9 / service, count, seed=7)
    served = serve_open(moments, clock.model(lambda queries: service), clock, [1])
    waits = (served.begun - served.arrived) / service
    theory = load / (2 * (1 - load))
    # Batch means: sixty batches are far longer than the queue's memory, so they are independent.
    batches = waits.reshape(60, -1).mean(axis=1)
    error = batches.std(ddof=1) / math.sqrt(60)
    assert error < 0.05 * theory
    assert abs(waits.mean() - theory) < 3 * error
    assert np.mean(waits > 0) == pytest.approx(load, abs=0.02)
    assert (served.latency == served.begun - served.arrived + service).all()


def test_every_wait_is_lindleys() -> None:
    """The same queue without a loop: wait[n+1] = max(0, wait[n] + service - gap)."""
    clock, service = FakeClock(), 700_000
    moments = arrivals(1000.0, 5_000, seed=3)
    served = serve_open(moments, clock.model(lambda queries: service), clock, [1])
    wait, expected = 0, []
    for gap in np.diff(moments, append=moments[-1]):
        expected.append(wait)
        wait = max(0, wait + service - int(gap))
    assert (served.begun - served.arrived).tolist() == expected


def test_arrivals_are_poisson_and_the_same_for_the_same_seed() -> None:
    moments = arrivals(250.0, 40_000, seed=11)
    assert (arrivals(250.0, 40_000, seed=11) == moments).all()
    assert (arrivals(250.0, 40_000, seed=12) != moments).any()
    gaps = np.diff(moments)
    # Exponential gaps: mean and standard deviation are both 4 ms, to 1/sqrt(n) and sqrt(2/n) each, at three sigma.
    assert gaps.mean() == pytest.approx(4e6, rel=3 / math.sqrt(40_000))
    assert gaps.std() == pytest.approx(4e6, rel=3 * math.sqrt(2 / 40_000))
    counts = np.bincount(moments // 100_000_000)[:-1]
    assert counts.var() / counts.mean() == pytest.approx(1, rel=3 * math.sqrt(2 / len(counts)))


# ---- the loop -------------------------------------------------------------------------------------------------------


def test_one_stall_is_in_the_latency_of_everybody_who_waited_for_it() -> None:
    """Queries every 10 ms, 1 ms each; one takes 100 ms. A loop that waits to issue would report one slow query."""
    clock = FakeClock()
    costs = iter([1, 1, 100, *[1] * 27])
    served = serve_open(np.arange(30) * 10 * MS, clock.model(lambda queries: next(costs) * MS), clock, [1])
    late = (served.latency > 5 * MS).sum()
    # The stall's own, then 91, 82, …, 10 ms: each arrives 10 ms later and adds 1 ms; the last above 5 ms is 10.
    assert served.latency[2] == 100 * MS
    assert served.latency[3:13].tolist() == [(91 - 9 * one) * MS for one in range(10)]
    assert late == 11


def test_inferences_take_as_many_as_wait_in_the_sizes_there_are() -> None:
    clock = FakeClock()
    # The first is alone; while it takes 10 ms seven arrive: four of them go together, then two, then one.
    moments = np.array([0, 1, 2, 3, 4, 5, 6, 7]) * MS
    served = serve_open(moments, clock.model(lambda queries: 10 * MS), clock, [1, 2, 4])
    assert served.batch.tolist() == [1, 4, 4, 4, 4, 2, 2, 1]
    assert served.done.tolist() == [10 * MS, *[20 * MS] * 4, *[30 * MS] * 2, 40 * MS]


def test_the_oldest_waits_for_others_only_so_long() -> None:
    clock = FakeClock()
    moments = np.array([0, 2, 9, 30, 31, 32, 33]) * MS
    served = serve_open(moments, clock.model(lambda queries: MS), clock, [1, 2, 4], batch_wait=5 * MS)
    # Two until 5 ms; one alone from 9 to 14 ms; four are there at 33 ms, before 35.
    assert served.begun.tolist() == [5 * MS, 5 * MS, 14 * MS, *[33 * MS] * 4]
    assert served.batch.tolist() == [2, 2, 1, 4, 4, 4, 4]


def test_closed_loops_issue_when_the_answer_is_there() -> None:
    clock = FakeClock()
    costs = iter([3, 1, 2])
    served = serve_closed(clock.model(lambda queries: next(costs) * MS), clock, lambda done, elapsed: done >= 3)
    assert served.arrived.tolist() == [0, 3 * MS, 4 * MS]
    assert served.latency.tolist() == [3 * MS, MS, 2 * MS]
    assert len(serve_closed(clock.model(lambda queries: MS), clock, lambda done, elapsed: True)) == 0


def test_a_model_that_fails_is_told_by_its_query() -> None:
    clock, calls = FakeClock(), iter(range(1, 200))

    def infer(queries: int) -> None:
        if next(calls) == 100:
            raise RuntimeError("boom")

    with pytest.raises(FailedQueryError, match=r"^query 100$") as failed:
        serve_closed(infer, clock, lambda done, elapsed: done >= 150)
    assert isinstance(failed.value.__cause__, RuntimeError)


def test_the_hosts_clock_never_returns_early() -> None:
    clock = HostClock()
    for ahead in (0, 50_000, 700_000, -5):
        moment = clock.now() + ahead
        clock.wait_until(moment)
        assert clock.now() >= moment


# ---- whole runs -----------------------------------------------------------------------------------------------------


def traffic(**given: object) -> ServingTraffic:
    return check_traffic(ServingTraffic(**given))  # type: ignore[arg-type]


def test_the_rate_under_a_bound_is_found() -> None:
    """One query takes 1 ms; with a bound of 1.5 ms the 99th percentile of the wait may be 0.5 ms.

    M/D/1: below one service time, P(wait ≤ t) = (1 - load) · e^(load·t/service) (Erlang 1909), so with t = service/2
    the bound holds for 99 % up to the load where (1 - load) · e^(load/2) = 0.99.
    """
    low, high = 0.0, 0.5
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if (1 - middle) * math.exp(middle / 2) > 0.99 else (low, middle)
    clock = FakeClock()
    asked = traffic(scenario="server", find=True, bound=1_500_000, queries=40_000)
    served, facts = run_traffic(asked, 5, clock.model(lambda queries: MS), clock)
    late = (served.latency > 1_500_000).mean()
    assert late <= 0.01
    assert facts.trials[-1].queries == len(served) == 40_000
    assert facts.trials[-1].held
    # 400 - 2.326·sqrt(396) = 354 of 40,000 may be late: 0.885 of theory, where late queries grow in proportion to the
    # rate; their number is known to one in sqrt(354), the search to 3 %, and a step backwards is 5 %.
    assert 0.885 - 3 / math.sqrt(354) - 0.03 - 0.05 < facts.rate / 1000 / low < 1


def test_a_queue_that_only_grows_holds_no_bound_because_the_traffic_ends() -> None:
    """1 ms a query and a bound of 1 s: 500 queries could come at once and none be late.

    20 s of traffic at a rate r are late by 20 (1 - 1000 / r) s in the end: 1 s at 1,053/s, where 21,053 arrivals vary
    by 0.7 %.
    """
    clock = FakeClock()
    asked = traffic(scenario="server", find=True, bound=1_000_000_000, seconds=0.5)
    served, facts = run_traffic(asked, 5, clock.model(lambda queries: MS), clock)
    assert 900 < facts.rate < 1053 * 1.03
    assert len(served) == math.ceil(20 * facts.rate)


@pytest.mark.parametrize(
    ("capacity", "guess"), [(100.0, 50.0), (100.0, 400.0), (100.0, 99.0), (1.0, 900.0), (7.7, 7.0)]
)
def test_the_search_ends_within_its_precision(capacity: float, guess: float) -> None:
    assert capacity / 1.03 <= find_rate(lambda rate: rate <= capacity, guess) <= capacity


def test_a_bound_that_never_holds_is_said() -> None:
    with pytest.raises(SondaError, match="does not hold even at"):
        find_rate(lambda rate: False, 100.0)


def test_offline_answers_everything_in_full_inferences() -> None:
    clock = FakeClock()
    asked = traffic(scenario="offline", max_batch=8, queries=20)
    served, _ = run_traffic(asked, 0, clock.model(lambda queries: MS), clock)
    assert served.batch.tolist() == [8] * 16 + [4] * 4
    assert served.done[-1] - served.arrived[0] == 3 * MS


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"scenario": "server", "qps": 5_000.0}, "the model answers at most 1,000 queries/s"),
        ({"scenario": "server", "qps": 10.0, "bound": 999_999}, "shorter than one inference, 1 ms at least"),
        ({"scenario": "server", "find": True, "bound": 5 * MS, "queries": 458}, "give 459 or more"),
    ],
)
def test_what_this_model_cannot_do_is_refused_before_the_traffic(given: dict[str, object], said: str) -> None:
    clock = FakeClock()
    with pytest.raises(SondaError, match=said):
        run_traffic(traffic(**given), 0, clock.model(lambda queries: MS), clock)


def test_a_rate_a_little_above_capacity_runs_and_its_queue_grows() -> None:
    clock = FakeClock()
    asked = traffic(scenario="server", qps=1_500.0, queries=3_000)
    served, facts = run_traffic(asked, 0, clock.model(lambda queries: MS), clock)
    assert facts.rate == 1_500.0
    # 3,000 queries arrive in about 2 s and take 3 s: the last waits about 1 s.
    assert served.latency[-1] == pytest.approx(1e9, rel=0.1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"scenario": "burst"}, "there is no scenario 'burst'"),
        ({"scenario": "server"}, "needs either --qps or --find-qps"),
        ({"scenario": "server", "qps": 1.0, "find": True}, "needs either --qps or --find-qps"),
        ({"scenario": "server", "qps": 0.0}, "--qps 0 cannot be"),
        ({"scenario": "server", "qps": math.nan}, "--qps nan cannot be"),
        ({"scenario": "server", "qps": math.inf}, "--qps inf cannot be"),
        ({"scenario": "server", "find": True}, "--find-qps needs --latency-bound"),
        ({"scenario": "server", "qps": 1.0, "bound": 0}, "--latency-bound 0 cannot be"),
        ({"scenario": "offline", "bound": 5}, "--latency-bound means nothing"),
        ({"scenario": "multi-stream", "max_batch": 4}, "--max-batch means nothing"),
        ({"scenario": "single-stream", "samples": 2}, "has one sample"),
        ({"scenario": "single-stream", "queries": 0}, "--queries 0 cannot be"),
        ({"scenario": "single-stream", "queries": 5, "seconds": 1.0}, "both given"),
        ({"scenario": "single-stream", "percentile": 1.0}, "--percentile 100 cannot be"),
        ({"scenario": "single-stream", "backend": "other"}, "no backend 'other'"),
    ],
)
def test_traffic_that_cannot_be_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(SondaError, match=said):
        traffic(**given)


def test_counts_of_queries_follow_what_was_asked_for() -> None:
    assert query_count(traffic(scenario="server", qps=20.0, queries=33), 20.0) == 33
    assert query_count(traffic(scenario="server", qps=20.0, seconds=3.0), 20.0) == 60
    # Neither: 10 s, and at least what early stopping needs for the 99th percentile.
    assert query_count(traffic(scenario="server", qps=20.0), 20.0) == 662
    assert query_count(traffic(scenario="server", qps=200.0), 200.0) == 2000
    assert traffic(scenario="multi-stream").samples == 8
    assert traffic(scenario="offline").sizes == [1, 2, 4, 8, 16, 32]
    assert traffic(scenario="offline", max_batch=6).sizes == [1, 2, 4, 6]
