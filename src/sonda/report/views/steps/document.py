"""Documents: summaries, comparisons and listings as plain JSON values, for `--json`.

Every number stands under its metric's name, `quantity:source`, with unit and source; a missing one has `value` null and
its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sonda.analysis.bounds import part_of_step
from sonda.analysis.counters.summary import Outside
from sonda.analysis.rules.advice import advice_kind
from sonda.analysis.summary import (
    LayerRow,
    PartSummary,
    PhaseRow,
    RankPhases,
    Remedy,
    SimulatedCost,
    Summary,
    Value,
    Verdict,
)
from sonda.record.target import SimulatedTarget
from sonda.report.cost_quantities import cost_values
from sonda.report.values import (
    Document,
    finite,
    metrics,
    number_document,
    plain_data,
    value_document,
)
from sonda.report.views.counters.modelled import modelled_fields
from sonda.report.views.counters.sensors import probed_fields
from sonda.report.views.counters.system import second_fields
from sonda.report.views.counters.topdown import counters_fields, topdown_fields
from sonda.report.views.device.overview import device_fields
from sonda.report.views.energy import energy_fields
from sonda.report.views.steps.code import code_fields, part_code_fields
from sonda.report.views.steps.pipeline import pipelines_fields
from sonda.report.views.steps.program import program_fields
from sonda.report.views.steps.ranks import nodes_fields, ranks_fields
from sonda.report.views.steps.series import over_time_fields, series_fields
from sonda.report.views.steps.training import training_fields
from sonda.report.views.steps.tries import trials_fields
from sonda.report.words import describe, in_words, verdict_sentences


def summary_fields(summary: Summary) -> Document:
    """What the document of a run of steps says of it."""
    return {
        "subtitle": summary.subtitle,
        "status": summary.status,
        "verdicts": verdicts_fields(summary),
        "parts": [
            _part(part) | part_code_fields(summary.code.part(part.name) if summary.code is not None else None)
            for part in summary.parts
        ],
        "ceilings": plain_data(summary.ceilings),
        **_simulation(summary),
        **training_fields(summary.training),
        **trials_fields(summary.trials),
        **nodes_fields(summary.target),
        **ranks_fields(summary.target),
        **modelled_fields(summary.modelled),
        **program_fields(summary.program),
        **code_fields(summary.code),
        **pipelines_fields(summary.pipelines),
        **_outside(summary.outside),
        **({"energy": energy_fields(summary.energy)} if summary.energy is not None else {}),
        **device_fields(summary),
        **second_fields(summary.second),
        **probed_fields(summary.target.probed),
        "warnings": in_words(summary.warnings),
        "notes": in_words(summary.notes),
    }


def _part(part: PartSummary) -> Document:
    return {
        "name": part.name,
        "steps": part.steps,
        "warmup": part.warmup,
        "warmup_steps": sorted(part.set_apart),
        "noise": finite(part.noise),
        "metrics": metrics(
            {
                "step_time": part.step,
                "samples_per_second": part.samples_per_second,
                "tokens_per_second": part.tokens_per_second,
            }
        )
        | {column: value_document(value) for column, value in part.counters.items()}
        | metrics({f"{name}_tokens_per_second": value for name, value in part.phase_tokens.items()})
        | _simulated(part.simulated),
        "phases": [_phase(row) for row in part.phases],
        "layers": [_layer(row) for row in part.layers],
        **({"outside_layers": _values(part.outside)} if part.outside else {}),
        "step_durations": _durations(part, plain_data(part.durations)),
        "phase_durations": _durations(part, plain_data(part.phase_steps)),
        **({"ranks": [_rank(row) for row in part.ranks]} if part.ranks else {}),
        **counters_fields(part.counted),
        **topdown_fields(part.topdown),
        **over_time_fields(part.over_time),
        **(
            {"remarks": list(map(describe, part.system.remarks))}
            if part.system is not None and part.system.remarks
            else {}
        ),
    }


def _values(values: Mapping[str, Value]) -> Document:
    return {name: value_document(value) for name, value in values.items()}


def _durations(part: PartSummary, values: Any) -> Document:
    """ns of every step, warm-up included; empty, with the reason, where a simulated machine has no clock."""
    document = {"unit": "ns", "source": part.step.source, "values": values}
    return document if values or not part.step.reason else {**document, "reason": part.step.reason}


def _rank(row: RankPhases) -> Document:
    """One of several ranks; times per step."""
    return {
        "rank": row.rank,
        "device": row.device,
        "node": row.node,
        "critical": row.critical,
        "steps": row.steps,
        "metrics": metrics({"step_time": row.step, "work": row.work, "flops": row.flops}),
        "phases": _values(row.phases),
        "layers": [_layer(layer) for layer in row.layers],
    }


def _phase(row: PhaseRow) -> Document:
    found = {**cost_values(row.cost), "peak_memory": row.peak_memory}
    found |= {name: value for name, value in (("host_time", row.host), ("device_busy", row.busy)) if value is not None}
    counters = {column: value_document(value) for column, value in row.counters.items()}
    return {
        "name": row.name,
        **_share(row.cost.share),
        "bound": row.cost.bound or None,
        "metrics": metrics(found) | counters | _simulated(row.simulated),
    }


def _layer(row: LayerRow) -> Document:
    found = {
        "forward_time": row.forward,
        "backward_time": row.backward,
        "own_time": row.own,
        **cost_values(row.cost),
        "activations": row.activations,
        **({"host_time": row.host} if row.host is not None else {}),
    }
    return {
        "path": row.path,
        "name": row.name,
        "depth": row.depth,
        "leaf": row.leaf,
        "calls": row.calls,
        **_share(row.cost.share),
        "bound": row.cost.bound or None,
        "metrics": metrics(found) | _simulated(row.simulated),
        **({"mapping": list(row.own_simulated.mapping)} if row.own_simulated else {}),
    }


def _share(share: float) -> Document:
    """Part of the step; null where it is not known, or more than all of it, which has its reason."""
    part = part_of_step(share)
    return {"share": part.value} | ({"share_reason": part.reason} if part.reason else {})


def _simulated(simulated: SimulatedCost | None) -> Document:
    """What a simulated accelerator adds to the metrics of a step, a phase or a layer."""
    if simulated is None:
        return {}
    traffic = simulated.traffic
    moved = {} if traffic is None else {
        "dram_read_bytes": traffic.reads, "dram_write_bytes": traffic.writes, "row_hit_share": traffic.row_hits,
        "cold_misses": traffic.cold_misses, "capacity_misses": traffic.capacity_misses,
    }  # fmt: skip
    return metrics(
        {
            "cycles": simulated.cycles,
            "utilisation": simulated.utilisation,
            "buffer_reads": simulated.reads,
            "buffer_writes": simulated.writes,
            "multiplications": simulated.multiplications,
            "energy": simulated.energy,
            **{f"{part}_cycles": value for part, value in simulated.stack.items()},
            **moved,
        }
    )


def _simulation(summary: Summary) -> Document:
    """How a simulated run was made and where its energy comes from; energies and areas with the table's bounds."""
    target = summary.target
    if not isinstance(target, SimulatedTarget):
        return {}
    document = target.plain()
    kept = ("options", "description", "energy", "area", "what_if", "host")
    return {"simulation": {name: document[name] for name in kept if name in document}}


def _outside(outside: Outside | None) -> Document:
    """The whole of a command as it was counted from outside, and its series where there is one."""
    if outside is None:
        return {}
    ipc = {"ipc": outside.ipc} if outside.ipc.value is not None else {}
    whole = {"duration": outside.duration, "busy_processors": outside.busy, **outside.totals, **ipc}
    series: Document = {
        "interval": number_document(outside.interval, "ns", "nominal"),
        "starts": list(outside.starts),
        "ends": list(outside.ends),
        "series": [series_fields(one, "interval") for one in outside.series],
        "phases": plain_data(outside.phases),
        "sentences": list(map(describe, outside.findings)),
    }
    return {"outside": {"metrics": metrics(whole), **(series if outside.starts else {})}}


def verdicts_fields(summary: Summary) -> list[Document]:
    """What limits a run, with the numbers that say so and what to try."""
    return [_verdict(*pair) for pair in zip(summary.verdicts, verdict_sentences(summary), strict=True)]


def _verdict(verdict: Verdict, sentence: str) -> Document:
    return {
        "kind": verdict.kind,
        "sentence": sentence,
        "share": finite(verdict.share),
        "evidence": {name: value_document(value) for name, value in verdict.evidence.items()},
        "remedies": [_remedy(remedy) for remedy in verdict.remedies],
        **({"place": plain_data(verdict.place)} if verdict.place is not None else {}),
    }


def _remedy(remedy: Remedy) -> Document:
    speedup = None if remedy.speedup is None else value_document(remedy.speedup)
    return {
        "kind": advice_kind(remedy.advice),
        "text": describe(remedy.advice),
        "options": list(remedy.options),
        "speedup": speedup,
    }
