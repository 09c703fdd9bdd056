"""Traffic: how queries come to a served model, in MLPerf Inference's four scenarios."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from sonda.record.conventions.percentiles import least_queries
from sonda.record.errors import SondaError, nearest

SCENARIOS = {
    "single-stream": "one query of one sample at a time, the next when it is answered",
    "multi-stream": "one query of several samples at a time, the next when it is answered",
    "server": "queries arrive at random (Poisson), whether or not earlier ones are answered",
    "offline": "all samples are there from the beginning",
}
PERCENTILES = {"single-stream": 0.90, "multi-stream": 0.99, "server": 0.99, "offline": 0.99}
"""What MLPerf quotes of each; offline has no latency of its own there."""
SAMPLES = {"multi-stream": 8}
"""Samples of a query where the user does not say; 1 elsewhere."""
MAX_BATCH = {"offline": 32}
"""Queries in one inference where the user does not say; 1 elsewhere."""
BACKENDS = ("sonda", "loadgen")
SECONDS = 10.0
"""s of traffic where neither queries nor seconds are given, longer where a percentile needs more queries."""
MOST_QPS, MOST_QUERIES, MOST_BATCH = 1e6, 10_000_000, 65_536


class ServingTraffic(msgspec.Struct, kw_only=True, frozen=True):
    """How queries arrive, and the bound of their latencies. Times are ns unless said otherwise, percentiles 0 to 1."""

    scenario: str
    queries: int | None = None
    seconds: float | None = None
    qps: float | None = None
    """Queries that arrive per second; server only."""
    find: bool = False
    """Search the highest rate at which the bound holds; server only."""
    bound: int | None = None
    percentile: float = 0.0
    """0: the scenario's own."""
    samples: int = 0
    """Samples of one query; 0: the scenario's own."""
    max_batch: int = 0
    """Most queries in one inference, server and offline; 0: the scenario's own."""
    batch_wait: int = 0
    """How long the oldest query may wait for others to share its inference."""
    backend: str = "sonda"
    weights: str = ""
    """File with the weights of the model; '': those of its seed."""

    @property
    def closed(self) -> bool:
        """Whether the next query waits for the answer to the one before."""
        return self.scenario in ("single-stream", "multi-stream")

    @property
    def sizes(self) -> list[int]:
        """Queries that one inference may hold: powers of two, and the most."""
        return sorted({1 << power for power in range(self.max_batch.bit_length())} | {self.max_batch})

    def describe(self) -> dict[str, Any]:
        """The traffic for `run.json`; of the weights, the last two parts of their path, which name the run."""
        return {**msgspec.to_builtins(self), "weights": "/".join(Path(self.weights).parts[-2:])}


def check_traffic(traffic: ServingTraffic) -> ServingTraffic:
    """The traffic with the scenario's own values where none were given. Raises SondaError for what cannot be."""
    name = traffic.scenario
    if name not in SCENARIOS:
        raise SondaError(f"there is no scenario {name!r}", nearest(name, SCENARIOS))
    if traffic.backend not in BACKENDS:
        raise SondaError(f"there is no backend {traffic.backend!r}", nearest(traffic.backend, BACKENDS))
    percentile = traffic.percentile or PERCENTILES[name]
    if not 0.5 <= percentile <= 0.9999:
        raise SondaError(f"--percentile {100 * percentile:g} cannot be", "give 50 to 99.99")
    _check_numbers(traffic)
    if name == "server":
        _check_server(traffic)
    else:
        server_only = {
            "--qps": traffic.qps is not None,
            "--find-qps": traffic.find,
            "--batch-wait": traffic.batch_wait > 0,
            "--latency-bound": traffic.bound is not None,
        }
        for option, is_given in server_only.items():
            if is_given:
                raise SondaError(f"{option} means nothing in the scenario {name}", "leave it out, or use server")
    if traffic.closed and traffic.max_batch > 1:
        raise SondaError(f"--max-batch means nothing in the scenario {name}", "use --samples, server or offline")
    if name == "single-stream" and traffic.samples > 1:
        raise SondaError("a query of single-stream has one sample", "use --scenario multi-stream")
    return msgspec.structs.replace(
        traffic,
        percentile=percentile,
        samples=traffic.samples or SAMPLES.get(name, 1),
        max_batch=traffic.max_batch or MAX_BATCH.get(name, 1),
    )


def _check_numbers(traffic: ServingTraffic) -> None:
    if traffic.queries is not None and traffic.seconds is not None:
        raise SondaError("--queries and --seconds are both given", "give one of them")
    if traffic.queries is not None and not 1 <= traffic.queries <= MOST_QUERIES:
        raise SondaError(f"--queries {traffic.queries} cannot be", f"give 1 to {MOST_QUERIES:,}")
    if traffic.seconds is not None and not 0 < traffic.seconds <= 1e6:
        raise SondaError(f"--seconds {traffic.seconds:g} is not a time", "give more than 0")
    for option, value in (("samples", traffic.samples), ("max-batch", traffic.max_batch)):
        if not 0 <= value <= MOST_BATCH:
            raise SondaError(f"--{option} {value} cannot be", f"give 1 to {MOST_BATCH:,}")


def _check_server(traffic: ServingTraffic) -> None:
    if traffic.find == (traffic.qps is not None):
        raise SondaError(
            "the scenario server needs either --qps or --find-qps", "give the rate, or have it found under a bound"
        )
    if traffic.qps is not None and not 0 < traffic.qps <= MOST_QPS:  # NaN is not in there either
        raise SondaError(f"--qps {traffic.qps:g} cannot be", f"give more than 0, at most {MOST_QPS:,.0f}")
    if traffic.find and traffic.bound is None:
        raise SondaError("--find-qps needs --latency-bound", "say how long a query may take, such as 50ms")
    if traffic.find and traffic.backend != "sonda":
        raise SondaError("--find-qps is there without --backend only", "find the rate, then give it with --qps")
    if traffic.backend != "sonda" and traffic.bound is None:
        raise SondaError("LoadGen's server needs --latency-bound", "say how long a query may take, such as 50ms")
    if traffic.bound is not None and traffic.bound <= 0:
        raise SondaError("--latency-bound 0 cannot be", "say how long a query may take, such as 50ms")


def arrivals(rate: float, count: int, seed: int) -> np.ndarray:
    """Moments (ns) at which queries of a Poisson process with `rate` queries/s arrive, the same for the same seed."""
    gaps = np.random.default_rng(seed).exponential(1e9 / rate, count)
    return np.cumsum(gaps).astype(np.int64)


def query_count(traffic: ServingTraffic, rate: float) -> int:
    """Queries of one run at a rate (queries/s): as asked for, or as many as 10 s bring and the percentile needs."""
    if traffic.queries is not None:
        return traffic.queries
    if traffic.seconds is not None:
        return min(MOST_QUERIES, max(1, math.floor(traffic.seconds * rate)))
    return min(MOST_QUERIES, max(least_queries(1, traffic.percentile), math.ceil(SECONDS * rate)))


def is_enough(traffic: ServingTraffic, done: int, elapsed: int) -> bool:
    """Whether a closed loop that answered so many queries in so many ns may end."""
    if traffic.queries is not None:
        return done >= traffic.queries
    if traffic.seconds is not None:
        return done >= MOST_QUERIES or (done >= 1 and elapsed >= traffic.seconds * 1e9)
    return done >= MOST_QUERIES or (done >= least_queries(1, traffic.percentile) and elapsed >= SECONDS * 1e9)


def format_rate(rate: float) -> str:
    """A rate as errors write it: `10,500 queries/s`."""
    return f"{rate:,.0f} queries/s" if rate >= 100 else f"{rate:.3g} queries/s"


def parse_nanoseconds(option: str, text: str) -> int:
    """`50ms`, `200us`, `1.5s` in ns. Raises SondaError naming the option for anything else."""
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*(us|µs|ms|s)", text.strip())
    if not match:
        raise SondaError(f"{option} {text!r} is not a time", "write it like 50ms, 200us or 1.5s")
    return round(float(match[1]) * {"us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}[match[2]])
