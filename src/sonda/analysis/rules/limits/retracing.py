"""Re-tracing: a compiled function is traced again and again, and each time costs more than many runs of it."""

from __future__ import annotations

from sonda.analysis.bounds import BoundedRatio
from sonda.analysis.rules.advice import TraceOnce
from sonda.analysis.rules.limit_findings import Retraced
from sonda.analysis.summary import Remedy, Summary, Value, Verdict
from sonda.record.workload import TracedFunction

WORTH = 0.10
"""Share of the time of all functions from which tracing again is worth a sentence; removing less brings 1.1x at
most."""
FEWEST = 3
"""Traces. Two shapes, full batches and the last one, are two traces, and no habit."""


def rule(summary: Summary) -> Verdict | None:
    """Fires where tracing again took a tenth or more of the time of all compiled functions, and names the worst: one
    that is seldom called may be traced each time, and nobody waits for it."""
    traced = summary.workload.traced or []
    total = sum(function.call_s for function in traced)
    guilty = [function for function in traced if function.traces >= FEWEST]
    share = min(sum(map(lost, guilty)) / total, 1.0) if total else 0.0
    if share < WORTH:
        return None
    worst = max(guilty, key=lost)
    spent = BoundedRatio(Value(lost(worst) / worst.call_s if worst.call_s else None, "1", "derived")).value("")
    framework = summary.workload.framework or ""
    return Verdict(
        kind="retracing",
        finding=Retraced(
            function=worst.function,
            where=worst.where,
            by_xla=worst.xla,
            traces=worst.traces,
            calls=worst.calls,
            share=spent,
            at_most=_unknown(worst),
            cause=worst.cause,
            argument=worst.argument,
            examples=tuple(worst.examples),
        ),
        evidence={
            "share": Value(share, "1", "derived"),
            "traces": Value(float(worst.traces), "1", "counted"),
            "calls": Value(float(worst.calls), "1", "counted"),
            "tracing": Value(1e9 * lost(worst), "ns", "measured"),
        },
        remedies=(Remedy(TraceOnce(worst.function, worst.where, worst.cause, worst.argument, framework, worst.xla)),),
        share=share,
    )


def lost(function: TracedFunction) -> float:
    """s that tracing a function again took, the first time left out: that one cannot be avoided.

    The first run of a graph optimises or compiles it. What it took beyond a usual run is lost too, where there were
    usual runs to compare with. Where XLA compiled in every call there were none: compiling takes most of such a call,
    and the whole of it is counted, so that it is the most that can be lost.
    """
    traces, calls = function.traces, function.calls
    again = max(function.trace_s - function.first_s, 0.0)
    usual = calls - traces
    if _unknown(function):
        return again + function.run_s * (traces - 1) / traces
    if usual < 1:
        return again
    usual_run = (function.call_s - function.trace_s - function.run_s) / usual
    return again + max(function.run_s / traces - usual_run, 0.0) * (traces - 1)


def _unknown(function: TracedFunction) -> bool:
    """Whether XLA compiled in every call, so that nothing tells how long a run takes by itself."""
    return function.xla and function.calls <= function.traces
