"""Constructed runs with counters. No number here was counted: each is written down, and its shares follow by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from builders import RunBuilder
from sonda.probes.counters.topdown_tables import load_tables
from sonda.record.run import Run

SKYLAKE = {
    "cycles": 1000, "instructions": 1200,
    "idq_uops_not_delivered_core": 800, "uops_issued_any": 2000, "uops_retired_retire_slots": 1600,
    "int_misc_recovery_cycles": 50,
    "idq_uops_not_delivered_cycles_0": 100, "br_misp_retired_all_branches": 35, "machine_clears_count": 15,
    "uops_retired_macro_fused": 100,
    "cycle_activity_stalls_mem_any": 300, "cycle_activity_stalls_total": 500, "exe_activity_bound_on_stores": 50,
    "exe_activity_1_ports_util": 100, "exe_activity_2_ports_util": 200,
    "longest_lat_cache_miss": 6, "longest_lat_cache_reference": 60,
}  # fmt: skip
"""4 slots x 1,000 cycles. Frontend 800/4000 = 0.2; bad (2000-1600+4*50)/4000 = 0.15; retiring 1600/4000 = 0.4;
backend 1-0.2-(2000+4*50)/4000 = 0.25. Latency 4*100/4000 = 0.1, bandwidth 0.1; mispredictions 0.15*35/50 = 0.105,
clears 0.045; memory 0.25*(300+50)/(500+100+0.4*200+50) = 0.25*350/730, core the rest; heavy (1600+100-1200)/4000 =
0.125, light 0.275. IPC 1.2; 6 misses in 1,200 instructions are 5 per 1,000."""

ZEN4 = {
    "cycles": 1000, "instructions": 2000,
    "de_no_dispatch_no_ops_from_frontend": 900, "de_no_dispatch_backend_stalls": 2400,
    "de_no_dispatch_smt_contention": 300, "ex_ret_ops": 2100, "de_src_op_disp_all": 2340,
    "ex_ret_brn_misp": 30, "resyncs_or_nc_redirects": 10, "de_no_dispatch_no_ops_cycles": 100,
    "ex_no_retire_load_not_complete": 300, "ex_no_retire_not_complete": 400, "ex_ret_ucode_ops": 42,
}  # fmt: skip
"""6 slots x 1,000 cycles. Frontend 900/6000 = 0.15, backend 0.4, contention 0.05, retiring 0.35, bad
(2340-2100)/6000 = 0.04: together 0.99. Latency 6*100/6000 = 0.1; memory 0.4*300/400 = 0.3; microcode 0.35*42/2100."""


def definition(table: str) -> dict[str, Any]:
    """As `run.json` keeps it."""
    document: dict[str, Any] = msgspec.to_builtins(load_tables()[table].counted_definition())
    return document


def groups(table: str) -> tuple[tuple[str, ...], ...]:
    return load_tables()[table].groups


Scale = Callable[[int, str], float]


def counted_run(
    table: str, events: dict[str, float], steps: int = 16, *, scale: Scale = lambda step, phase: 1.0,
    length: Callable[[int], float] = lambda step: 10.0, estimated: bool = False, running: float = 1.0,
    layers: bool = True, taking_turns: Sequence[Sequence[str]] = (), **info: Any,
) -> Run:  # fmt: skip
    """Steps of forward (60 %) and backward (40 %), each with the events of one group times `scale(step, phase)`.

    `running` is the part of the time that counters counted; where it is below 1, counts are `estimated` or left as they
    are. A layer takes half of what its phase counts, and its child half of that.
    """
    builder = RunBuilder()
    part = builder.part("train")
    turns = taking_turns or groups(table)
    for step in range(steps):
        duration = length(step)
        rows = builder.step(part, duration, {"forward": 0.6 * duration, "backward": 0.4 * duration})

        def counts(phase: str, factor: float, at: int = step, took: float = duration) -> dict[str, float]:
            source = "estimated" if estimated else "counted"
            chosen = {name: events[name] * factor * scale(at, phase) for name in turns[at % len(turns)]}
            times = {"counter_enabled:counted": took * 1e6, "counter_running:counted": took * 1e6 * running}
            return {**{f"{name}:{source}": value for name, value in chosen.items()}, **times}

        for phase, share in (("forward", 0.6), ("backward", 0.4)):
            builder.rows[rows[phase]]["metrics"] = counts(phase, share)
            if layers:
                outer = builder.layer(rows[phase], "", "Net", 0.3 * duration * share, phase,
                                      metrics=counts(phase, share / 2))  # fmt: skip
                # Backward has no nesting: what runs there belongs to the layer itself.
                holder = outer if phase == "forward" else rows[phase]
                builder.layer(holder, "conv", "Conv2d", 0.2 * duration * share, phase,
                              metrics=counts(phase, share / 4))  # fmt: skip
    target = {"spec": "cpu", "device": "cpu", "threads": 1, "topdown": definition(table)}
    return builder.run(**{"target": target, **info})
