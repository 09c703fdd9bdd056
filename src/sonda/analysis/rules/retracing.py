"""Re-tracing: a compiled function is traced again and again, and each time costs more than many runs of it."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.bounds import BoundedRatio
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
    where = f" ({worst.where})" if worst.where else ""
    verb, done = ("Re-compiled", "compiled by XLA") if worst.xla else ("Re-traced", "traced")
    spent = BoundedRatio(Value(lost(worst) / worst.call_s if worst.call_s else None, "1", "derived")).value("")
    most = "up to " if _unknown(worst) else ""
    of_time = "" if spent.value is None else f", {most}{wording.percent(spent.value)} of their time"
    return Verdict(
        kind="retracing",
        sentence=f"{verb}: {worst.function}{where} was {done} {worst.traces} times in {worst.calls} "
        f"calls{of_time}: {_cause(worst)}.",
        evidence={
            "share": Value(share, "1", "derived"),
            "traces": Value(float(worst.traces), "1", "counted"),
            "calls": Value(float(worst.calls), "1", "counted"),
            "tracing": Value(1e9 * lost(worst), "ns", "measured"),
        },
        remedies=(Remedy(_remedy(worst, summary.workload.framework or "")),),
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


def _cause(function: TracedFunction) -> str:
    argument = f"argument {function.argument}" if function.argument else "an argument"
    values = ", ".join(function.examples)
    seen = f": {values}" if values else ""
    return {
        "shape": f"{argument} changes its shape{seen}",
        "type": f"{argument} changes its type{seen}",
        "python": f"{argument} is a value of Python that changes{seen}",
        "object": f"{argument} is another object each time",
        "structure": f"{argument} is there only at times",
        "new": "the function is made anew each time",
    }.get(function.cause, "its arguments do not tell why")


def _remedy(function: TracedFunction, framework: str) -> str:
    in_jax = framework == "jax"
    argument = function.argument or "it"
    name = function.function
    if function.cause == "shape":
        how = (
            "pad to few shapes, or drop the last batch" if in_jax or function.xla
            else f"pad to one, drop the last batch, or tf.function(reduce_retracing=True) on {name}"
        )  # fmt: skip
        return f"give {argument} one shape: {how}"
    if function.cause == "type":
        return f"give {argument} one type: {'astype' if in_jax else 'tf.cast'} before the call"
    if function.cause == "python":
        how = "leave it out of static_argnums" if in_jax else f"tf.constant({argument})"
        return f"pass {argument} as an array, not as a value of Python: {how}"
    if function.cause == "object":
        return f"pass the same {argument} each time, or its tensors"
    if function.cause == "structure":
        return f"pass {argument} always, or never"
    if function.cause == "new":
        maker = "jax.jit" if in_jax else "tf.function"
        return f"make {name} once: {maker} outside of the loop" if function.where else "compile the model once"
    return f"look at what {name} is called with"
