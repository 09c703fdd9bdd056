"""What a study can show of a served model: latencies, whether they may be quoted, rates, energy per query.

`latency_ms` is the percentile that the scenario quotes, `latency_ms@99` any other, as counted;
`quotable_latency_ms` is what MLPerf's counts allow to be quoted, and missing where they allow nothing.
`loadgen_latency_ms` is what LoadGen says of the same queries, where it made the traffic.
"""

from __future__ import annotations

from collections.abc import Callable

from sonda.analysis import reasons
from sonda.analysis.serving import Percentile, ServingSummary
from sonda.analysis.summary import Summary, Value

LOADGEN_RATES = ("completed_samples_per_sec", "samples_per_second", "qps_with_loadgen_overhead")
"""Ends of the keys under which LoadGen's detail log has the rate, by scenario: server, offline, streams."""


def serving_value(summary: Summary, metric: str, path: str = "") -> Value:
    """A figure in the unit in which Sonda keeps it; missing with a reason where the run does not have it."""
    unit, read = SERVING[metric]
    if summary.serving is None:
        return Value(None, unit, "measured", reason=reasons.NOT_SERVED)
    value = read(summary.serving, path)
    if isinstance(value, str):
        return Value(None, unit, "measured", reason=value)
    return value


Read = Callable[[ServingSummary, str], Value | str]


def _percentile(serving: ServingSummary, path: str) -> Percentile | str:
    """The one that is asked for; a reason where it is not kept."""
    if not path:
        return serving.asked
    for percentile in serving.percentiles:
        if f"{100 * percentile.percentile:g}" == path:
            return percentile
    known = ", ".join(f"{100 * percentile.percentile:g}" for percentile in serving.percentiles)
    return reasons.NO_PERCENTILE.format(path, known)


def _latency(serving: ServingSummary, path: str) -> Value | str:
    percentile = _percentile(serving, path)
    return percentile if isinstance(percentile, str) else percentile.latency


def _quotable(serving: ServingSummary, path: str) -> Value | str:
    percentile = _percentile(serving, path)
    if isinstance(percentile, str):
        return percentile
    if not percentile.quotable:
        return reasons.QUERIES_NEEDED.format(percentile.missing)
    return percentile.latency if percentile.quotable == "counted" else percentile.estimate


def _bound_held(serving: ServingSummary, path: str) -> Value | str:
    """1 where the bound was shown to hold, 0 where not."""
    if serving.bound is None:
        return reasons.NO_LATENCY_BOUND
    if serving.bound.allowed < 0:
        return reasons.FEW_QUERIES.format(serving.bound.missing)
    return Value(float(serving.bound.held), "1", "derived")


def _late(serving: ServingSummary, path: str) -> Value | str:
    if serving.bound is None:
        return reasons.NO_LATENCY_BOUND
    return Value(serving.bound.late / serving.queries, "1", "counted")


def _rate_under_bound(serving: ServingSummary, path: str) -> Value | str:
    """The rate, where it was shown to hold its bound."""
    held_share = _bound_held(serving, path)
    if isinstance(held_share, str):
        return held_share
    return serving.rate if held_share.value else reasons.BOUND_NOT_HELD


def _loadgen_latency(serving: ServingSummary, path: str) -> Value | str:
    if not serving.loadgen:
        return reasons.NO_LOADGEN
    try:
        wanted = f"{float(path) if path else 100 * serving.asked.percentile:.2f}_percentile_"
    except ValueError:
        return reasons.IS_NO_PERCENTILE.format(path)
    for key, value in serving.loadgen.items():
        if key.startswith(f"result_{wanted}") and key.endswith("latency_ns") and isinstance(value, int | float):
            return Value(float(value), "ns", "measured")
    return reasons.NO_LOADGEN_PERCENTILE.format(wanted.partition("_")[0])


def _loadgen_rate(serving: ServingSummary, path: str) -> Value | str:
    if not serving.loadgen:
        return reasons.NO_LOADGEN
    for key in LOADGEN_RATES:
        rate = serving.loadgen.get(f"result_{key}")
        if isinstance(rate, int | float):
            return Value(float(rate), "1/s", "measured")
    return reasons.NO_LOADGEN_RATE


def _loadgen_valid(serving: ServingSummary, path: str) -> Value | str:
    """1 where LoadGen calls the run VALID."""
    if "result_validity" not in serving.loadgen:
        return reasons.NO_LOADGEN
    return Value(float(serving.loadgen["result_validity"] == "VALID"), "1", "measured")


def _plain(read: Callable[[ServingSummary], Value], unit: str) -> tuple[str, Read]:
    def value(serving: ServingSummary, path: str) -> Value | str:
        if path:
            return reasons.OF_ALL_QUERIES.format(path)
        return read(serving)

    return unit, value


SERVING: dict[str, tuple[str, Read]] = {
    "latency": ("ns", _latency),
    "quotable_latency": ("ns", _quotable),
    "mean_latency": _plain(lambda served: served.mean, "ns"),
    "queue_wait": _plain(lambda served: served.wait, "ns"),
    "queries": _plain(lambda served: Value(float(served.queries), "1", "counted"), "1"),
    "queries_per_second": _plain(lambda served: served.throughput, "1/s"),
    "samples_served_per_second": _plain(lambda served: served.sample_rate, "1/s"),
    "arrivals_per_second": _plain(lambda served: served.rate, "1/s"),
    "rate_under_bound_per_second": ("1/s", _rate_under_bound),
    "busy": _plain(lambda served: served.busy, "1"),
    "queries_per_inference": _plain(lambda served: served.batch, "1"),
    "bound_held": ("1", _bound_held),
    "late": ("1", _late),
    "energy_per_query": _plain(lambda served: served.per_query, "J"),
    "loadgen_latency": ("ns", _loadgen_latency),
    "loadgen_rate_per_second": ("1/s", _loadgen_rate),
    "loadgen_valid": ("1", _loadgen_valid),
}
"""Figures of served traffic: the unit in which each is kept, and how it is read."""
RATES = {
    "queries_per_second": "queries/s",
    "samples_served_per_second": "samples/s",
    "arrivals_per_second": "arrivals/s",
    "rate_under_bound_per_second": "queries/s under bound",
    "loadgen_rate_per_second": "LoadGen's queries/s",
}
"""Rates, and the unit under which a table shows each."""
WHOLE_NAMES = {name: (name, shown, "1/s", 1.0) for name, shown in RATES.items()}
"""Those whose name does not end in a unit that `figure.py` knows."""
