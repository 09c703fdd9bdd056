"""Helpers of `test_study_table.py` that other tests use too."""

from __future__ import annotations

from sonda.analysis.summary import Cost, PartSummary, PhaseRow, Summary, Value

MISSING = Value(None, "1", "measured", reason="not looked at")


def phase(name: str, ns: float, flops: float | None, memory: float | None, roof: float | None) -> PhaseRow:
    cost = Cost(
        time=Value(ns, "ns", "measured"),
        share=1.0,
        flops=Value(flops, "FLOP", "nominal", reason="" if flops else "no formula"),
        bytes=Value(flops and flops / 2, "B", "nominal"),
        achieved=MISSING,
        bandwidth=MISSING,
        roof=Value(roof, "1", "derived", reason="" if roof else "no ceilings"),
        bound="",
        operations=MISSING,
    )
    return PhaseRow(name, cost, Value(memory, "B", "counted"))


def summary(step_ms: float, phases: tuple[PhaseRow, ...] = (), peak: float | None = None) -> Summary:
    part = PartSummary(
        name="train",
        step=Value(step_ms * 1e6, "ns", "measured"),
        steps=5,
        warmup=1,
        durations=(),
        noise=0.0,
        samples_per_second=Value(1000 * 8 / step_ms, "1/s", "derived"),
        tokens_per_second=Value(None, "1/s", "derived", reason="it has no tokens"),
        phases=phases,
        layers=(),
        phase_steps={},
    )
    ceilings = {"flops": Value(peak, "FLOP/s", "measured")} if peak else {"reason": "ceilings were not measured"}
    return Summary("id", "", "", "complete", (part,), (), (), ceilings, ())
