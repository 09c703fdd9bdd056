"""A whole run of served traffic: trial inferences, a search for the rate where asked for, then the queries that count.

It knows no framework.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from sonda.record.conventions.percentiles import late_allowed, least_queries
from sonda.record.errors import SondaError
from sonda.record.target import RateTrial
from sonda.targets.serving.loop import Clock, FailedQueryError, ServedQueries, serve_closed, serve_open
from sonda.targets.serving.traffic import (
    MOST_QUERIES,
    SECONDS,
    ServingTraffic,
    arrivals,
    format_rate,
    is_enough,
    query_count,
)

# ---- The highest rate at which something holds, found by bisection --------------------------------------------------

PRECISION = 1.03
"""The search ends when the rate that held and the one that did not are this close."""
MOST_HALVINGS = 10
MOST_DOUBLINGS = 6


def find_rate(holds: Callable[[float], bool], guess: float) -> float:
    """The highest rate (queries/s) for which `holds(rate)`, within 3 %, by bisection from `guess`.

    Raises SondaError when no rate down to a thousandth of the guess holds. It tries no rate above 64 times the guess.
    """
    low, high = guess, guess
    if holds(guess):
        for _ in range(MOST_DOUBLINGS):
            high = 2 * low
            if not holds(high):
                break
            low = high
        else:
            return low
    else:
        for _ in range(MOST_HALVINGS):
            low = high / 2
            if holds(low):
                break
            high = low
        else:
            raise SondaError(f"the bound does not hold even at {format_rate(high)}", "give a longer --latency-bound")
    while high / low > PRECISION:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


# ----------------------------------------------------------------------------------------------------------------------

TRIAL_INFERENCES = 5
"""Inferences of each size before the traffic, after warm-up; their times tell which rates and bounds are impossible."""
OVERLOAD = 2.0
"""A rate above this multiple of what the model answered in trials is refused; below, the run shows the result."""
LOWERING = 0.95
MOST_LOWERINGS = 8
"""A rate that held in the search but not in the run that counts is lowered by this factor, at most so many times."""
LEAST_BOUNDS = 20
"""Traffic of a search lasts at least this multiple of the bound, unless the number of queries is given. In shorter
traffic even a queue that only grows would keep the bound."""

Infer = Callable[[int], None]
"""Runs one inference with so many queries, and returns when the answer is there."""


class TrafficFacts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a run keeps of the traffic besides its queries; see `record.target.ServingFacts`."""

    tried: dict[str, int]
    """ns of the shortest inference, by the number of its queries."""
    rate: float | None = None
    """Queries/s that arrived."""
    trials: list[RateTrial] | None = None
    loadgen: dict[str, Any] | None = None
    """What LoadGen itself says, by its own names."""


def run_traffic(
    traffic: ServingTraffic, seed: int, infer: Infer, clock: Clock, warmup: int = 3, directory: Path | None = None
) -> tuple[ServedQueries, TrafficFacts]:
    """Warm up, try, search where asked for, then the run that counts: its queries, and facts about it.

    LoadGen's logs go to `directory`. Raises SondaError for what this model cannot do.
    """
    tried = {size: _shortest_inference(size, infer, clock, warmup) for size in traffic.sizes}
    facts = TrafficFacts(tried={str(size): shortest for size, shortest in tried.items()})
    capacity = max(1e9 * size / max(1, shortest) for size, shortest in tried.items())
    if traffic.scenario == "server":
        _refuse_impossible(traffic, tried, capacity)
        if traffic.qps is None:
            served, facts.rate, facts.trials = _search_rate(traffic, capacity, seed, infer, clock)
            return served, facts
        facts.rate = traffic.qps
    rate = traffic.qps or capacity
    count = _offline_count(traffic, capacity) if traffic.scenario == "offline" else query_count(traffic, rate)
    if traffic.backend == "loadgen":
        from sonda.targets.serving.loadgen import run_loadgen

        assert directory is not None
        served, facts.loadgen = run_loadgen(traffic, count, rate, seed, infer, directory)
        return served, facts
    if traffic.closed:
        return serve_closed(infer, clock, lambda done, elapsed: is_enough(traffic, done, elapsed)), facts
    if traffic.scenario == "offline":
        return serve_open(np.full(count, clock.now()), infer, clock, traffic.sizes), facts
    return _serve_at_rate(traffic, rate, count, seed, infer, clock), facts


def _search_rate(
    traffic: ServingTraffic, capacity: float, seed: int, infer: Infer, clock: Clock
) -> tuple[ServedQueries, float, list[RateTrial]]:
    """Search the highest rate under the bound by bisection, then serve the run that counts, slower until it holds.

    Returns the queries of the run that counts, its rate in queries/s, and all trials. Trials are as long as that run,
    because with fewer queries a smaller share is allowed to be late, and the search would find a lower rate. A trial
    that has failed already ends at once.
    """
    percentile, bound = traffic.percentile, traffic.bound
    assert bound is not None
    if traffic.queries is not None and late_allowed(traffic.queries, percentile) < 0:
        raise SondaError(
            f"--queries {traffic.queries} cannot show the {100 * percentile:g}th percentile below a bound",
            f"give {least_queries(0, percentile)} or more",
        )
    trials: list[RateTrial] = []

    def attempt(rate: float, seed: int, whole: bool) -> ServedQueries:
        lasting = min(MOST_QUERIES, math.ceil(LEAST_BOUNDS * bound / 1e9 * rate))
        count = traffic.queries or max(query_count(traffic, rate), least_queries(1, percentile), lasting)
        allowed = late_allowed(count, percentile)
        served = _serve_at_rate(traffic, rate, count, seed, infer, clock, None if whole else allowed)
        late = int((served.latency > bound).sum())
        trials.append(RateTrial(rate=rate, queries=len(served), late=late, held=late <= allowed))
        return served

    def trial(rate: float) -> bool:
        # Another seed for the run that counts: it must not be chosen by the arrivals it is judged by.
        attempt(rate, seed + 1, False)
        return trials[-1].held

    rate = find_rate(trial, capacity / 2)
    for _ in range(MOST_LOWERINGS):
        served = attempt(rate, seed, True)
        if trials[-1].held:
            return served, rate, trials
        rate *= LOWERING
    raise SondaError(
        f"no rate holds the bound: {format_rate(trials[-1].rate)} had {trials[-1].late} late ones of {len(served)}",
        "stop other programs, or give a longer --latency-bound",
    )


def _serve_at_rate(
    traffic: ServingTraffic, rate: float, count: int, seed: int, infer: Infer, clock: Clock, allowed: int | None = None
) -> ServedQueries:
    """Serve queries with Poisson arrivals at a rate; with `allowed`, only until more than so many were late."""
    late = 0

    def hopeless(latency: int) -> bool:
        nonlocal late
        late += traffic.bound is not None and latency > traffic.bound
        return allowed is not None and late > allowed

    moments = arrivals(rate, count, seed) + clock.now()
    return serve_open(moments, infer, clock, traffic.sizes, traffic.batch_wait, hopeless)


def _shortest_inference(size: int, infer: Infer, clock: Clock, warmup: int) -> int:
    """ns of the shortest of a few inferences with so many queries, after warm-up."""
    shortest = None
    for number in range(warmup + TRIAL_INFERENCES):
        begin = clock.now()
        try:
            infer(size)
        except Exception as error:
            raise FailedQueryError(f"inference {number + 1} before the traffic") from error
        lasted = clock.now() - begin
        if number >= warmup:
            shortest = lasted if shortest is None else min(shortest, lasted)
    assert shortest is not None
    return shortest


def _refuse_impossible(traffic: ServingTraffic, tried: Mapping[int, int], capacity: float) -> None:
    """Raise SondaError for a rate or a bound that this model cannot reach, before the traffic starts."""
    alone = tried[1]
    if traffic.bound is not None and traffic.bound < alone:
        raise SondaError(
            f"--latency-bound {traffic.bound / 1e6:g} ms is shorter than one inference, {alone / 1e6:.3g} ms at least",
            "give a longer bound, or make the model faster",
        )
    if traffic.qps is not None and traffic.qps > OVERLOAD * capacity:
        raise SondaError(
            f"--qps {traffic.qps:g}: the model answers at most {format_rate(capacity)}, so the queue would only grow",
            "give a lower rate, a larger --max-batch, or --find-qps",
        )


def _offline_count(traffic: ServingTraffic, capacity: float) -> int:
    """Queries of an offline run: as asked for, else as many as probably fit into the seconds, in whole inferences."""
    if traffic.queries is not None:
        return traffic.queries
    expected = capacity * (traffic.seconds or SECONDS)
    return min(MOST_QUERIES, math.ceil(expected / traffic.max_batch) * traffic.max_batch)
