"""From a run to its summary: title, parts, verdicts, and everything a reader of the numbers must know."""

from __future__ import annotations

import math
from dataclasses import replace

from msgspec.structs import replace as replace_fields

from sonda.analysis.bounds import CEILINGS
from sonda.analysis.code.run import summarise_code
from sonda.analysis.corun.interference import summarise_corun
from sonda.analysis.counters.callgrind import summarise_modelled
from sonda.analysis.counters.command import summarise_outside
from sonda.analysis.counters.hardware import read_places, summarise_counters
from sonda.analysis.counters.second_sources import summarise_second
from sonda.analysis.counters.system import summarise_system
from sonda.analysis.counters.time_series import summarise_over_time
from sonda.analysis.counters.topdown import summarise_topdown
from sonda.analysis.device.kernel_counters import summarise_kernel_counters
from sonda.analysis.device.kernel_roofline import kernel_roofline
from sonda.analysis.doubts import (
    AboveRoof,
    EndedEarly,
    NoRoof,
    NoStepSeen,
    NoTopDown,
    ObservingCost,
    ObservingCostUnknown,
    OnlyCounted,
    OnlyWarmup,
    PaddingSkipped,
    ProbeSilent,
    RunFailed,
    StolenTime,
    ThreadsAssumed,
    UnevenPhases,
)
from sonda.analysis.energy.run import summarise_energy
from sonda.analysis.findings import Finding, Remark
from sonda.analysis.ranks.phases import summarise_ranks
from sonda.analysis.roofline import Ceilings, ceilings, full_precision, gpu_of, tf32_note, tf32_of
from sonda.analysis.rules.judge import verdicts
from sonda.analysis.serving import summarise_serving
from sonda.analysis.simulated.exploration import summarise_exploration
from sonda.analysis.simulated.run import summarise_simulated
from sonda.analysis.statistics import judge_noise
from sonda.analysis.steps.part_summary import Rates, summarise_part
from sonda.analysis.steps.parts import Part, parts
from sonda.analysis.steps.pipeline import summarise_pipelines
from sonda.analysis.steps.program import summarise_program
from sonda.analysis.steps.training import summarise_training
from sonda.analysis.summary import PartSummary, Summary, Value
from sonda.analysis.titles import describe_steps, title_run
from sonda.analysis.traces.summary import DeviceWork, device_work, summarise_trace
from sonda.analysis.trials import TrialsSummary, summarise_trials
from sonda.record.conventions.topdown import TopDownDefinition
from sonda.record.errors import SondaError
from sonda.record.run import Run, RunInfo
from sonda.record.target import (
    BlockTarget,
    CorunTarget,
    ExplorationTarget,
    ImportedTarget,
    ProgramTarget,
    ServingTarget,
    SimulatedTarget,
)

UNEVEN = 0.10
"""Shares of phases that add up to 100 % within this need no explanation: they tell the same story."""
TOLD = 0.001
"""The share of stolen time from which on it is told; no share is known that disturbs for sure."""


def summarise(run: Run) -> Summary:
    """What a run means, as plain data. Never raises for a run that can be read, however little was seen in it."""
    info = run.info
    match info.target:
        case ExplorationTarget():
            return summarise_exploration(run, title_run(info))
        case CorunTarget():
            return summarise_corun(run, title_run(info))
        case ServingTarget():
            return summarise_serving(run, title_run(info))
        case ImportedTarget():
            return summarise_trace(run, paths=False).summary
        case SimulatedTarget() as target:
            return summarise_simulated(run, target, title_run(info))
    return _summarise_steps(run)


def _summarise_steps(run: Run) -> Summary:
    """The summary of a run that has steps, or was to have some."""
    info = run.info
    run_parts = parts(run)
    threads = info.target.threads
    precision = info.workload.precision or "float32"
    device, tf32 = gpu_of(info), tf32_of(info)
    roofs, no_roofs = ceilings(info.machine, threads or None, precision, device, tf32)
    notes: list[Finding] = [Remark(note) for note in info.notes]
    outside = summarise_outside(run)
    # Of a program without a framework everything was seen that there is: from outside, its stages, and to its end.
    foreign = outside is not None and bool((run.spans.where(kind="run") | run.spans.where(kind="stage")).all())
    warnings: list[Finding] = [] if foreign else _status(info)
    if not run_parts and not foreign:
        warnings.append(NoStepSeen(isinstance(info.target, BlockTarget)))
    rates = Rates(info.workload.samples or None, info.workload.tokens or None, dict(info.workload.phase_tokens or {}))
    summaries = []
    definition, damaged = _definition(info)
    warnings += damaged
    for part in run_parts:
        summary, remarks = summarise_ranks(
            part, info.target, lambda run_part: summarise_part(run_part, roofs, no_roofs, rates)
        )
        summary, doubts = _with_counters(part, summary, definition)
        summary = replace(summary, system=summarise_system(summary, "os" in (info.target.shown or ())))
        warnings += doubts
        summaries.append(summary)
        notes += [*remarks, *_uneven(summary), *_skipped(summary)]
        warnings += _doubts(part, summary, bool(info.target.spec and not info.workload.epochs))
    if run_parts and roofs is None:
        notes.append(NoRoof(no_roofs))
    if roofs is not None:
        notes += _ceiling_notes(info, roofs, full_precision(precision))
    notes += _costs(info)
    work = _device_work(run)
    bare = Summary(
        run=info.id,
        title=title_run(info, summaries),
        subtitle=describe_steps(info, summaries),
        status=info.status,
        parts=tuple(summaries),
        verdicts=(),
        warnings=tuple(dict.fromkeys([*warnings, *(Remark(text) for text in info.disturbed)])),
        ceilings=roofs.as_dict() if roofs else {"reason": no_roofs},
        notes=tuple(dict.fromkeys(notes)),
        workload=info.workload,
        target=info.target,
        machine=replace_fields(info.machine, ceilings=None),
        modelled=summarise_modelled(run, summaries),
        code=summarise_code(run, run_parts),
        program=summarise_program(run),
        pipelines=summarise_pipelines(info.workload),
        outside=outside,
        energy=summarise_energy(run, title_run(info, summaries)),
        training=summarise_training(run),
        device_work=work,
        kernel_roofline=kernel_roofline(work.kernels if work else (), info.machine, device, precision),
        kernel_counters=summarise_kernel_counters(run.spans),
        second=summarise_second(run),
        trials=_trials(run),
    )
    spoken, failures = verdicts(bare)
    return replace(bare, verdicts=spoken, warnings=bare.warnings + failures)


def _trials(run: Run) -> TrialsSummary | None:
    """Remedies that were tried on a program; None where none were to be tried."""
    trials = run.info.target.trials if isinstance(run.info.target, ProgramTarget) else None
    return summarise_trials(trials, str(run.directory)) if trials is not None else None


def _ceiling_notes(info: RunInfo, roofs: Ceilings, precision: str) -> list[Finding]:
    """What was assumed when ceilings were chosen."""
    notes: list[Finding] = [] if info.target.threads or gpu_of(info) else [ThreadsAssumed(roofs.threads)]
    held = tf32_note(info, precision) if "tf32" in roofs.peaks else None
    return [*notes, held] if held is not None else notes


def _device_work(run: Run) -> DeviceWork | None:
    """Timeline and kernels of the steps whose kernels were recorded; None where there are none."""
    work = device_work(run) if run.info.target.devices else None
    return work if work is not None and work.kernels else None


def _definition(info: RunInfo) -> tuple[TopDownDefinition | None, list[Finding]]:
    """The Top-Down definition that the run was counted with, or a warning about one that cannot be read."""
    definition = info.target.topdown
    if definition is None:
        return None, []
    try:
        definition.parsed()
        return definition, []
    except SondaError as error:
        return None, [NoTopDown(error.cause, error.remedy)]


def _with_counters(
    part: Part, summary: PartSummary, definition: TopDownDefinition | None
) -> tuple[PartSummary, list[Finding]]:
    """The same with what counters say of it, and warnings about them."""
    places = read_places(part)
    counted = summarise_counters(part, places)
    topdown = summarise_topdown(definition, part, places) if definition is not None else None
    over_time = summarise_over_time(part, places, topdown)
    summary = replace(summary, counted=counted, topdown=topdown, over_time=over_time)
    return summary, list(counted.warnings) if counted is not None else []


def _status(info: RunInfo) -> list[Finding]:
    if info.status == "complete":
        return []
    return [RunFailed(info.exit_code) if info.status == "failed" else EndedEarly(info.exit_code)]


def _doubts(part: Part, summary: PartSummary, repeatable: bool) -> list[Finding]:
    """Warnings about one part."""
    doubts: list[Finding] = []
    if part.only_warmup:
        doubts.append(OnlyWarmup(part.name))
    elif not part.measured.any():
        doubts.append(OnlyCounted(part.name))
    doubts += judge_noise(part.durations[part.measured], repeatable, part.name)
    above = tuple(row.name for row in summary.phases if row.cost.above in ("compute", "memory"))
    if above:
        doubts.append(AboveRoof(part.name, above))
    return doubts


def _uneven(summary: PartSummary) -> list[Finding]:
    """A note where the shares of the phases do not add up: medians of parts are not parts of the median."""
    shares = [row.cost.share for row in summary.phases if row.cost.share == row.cost.share]
    total = sum(shares)
    if len(shares) < 2 or abs(total - 1) <= UNEVEN:
        return []
    return [UnevenPhases(summary.name, Value(total, "1", "derived"))]


def _skipped(summary: PartSummary) -> list[Finding]:
    """A note where counted products that libraries skip are more than what ceilings may be off by."""
    costs = [row.cost for row in summary.phases if row.cost.flops.value]
    whole = sum(cost.flops.value or 0.0 for cost in costs)
    executed = sum((cost.executed or cost.flops).value or 0.0 for cost in costs)
    if executed >= (1 - CEILINGS) * whole:
        return []
    return [PaddingSkipped(summary.name, Value(1 - executed / whole, "1", "nominal"))]


def _costs(info: RunInfo) -> list[Finding]:
    """What observing cost, what the hypervisor took, and what could not be observed."""
    costs: list[Finding] = []
    share = info.overhead.get("step_share", math.nan)
    if share < 1:
        costs.append(ObservingCost(Value(share, "1", "derived")))
    elif share >= 1:
        costs.append(ObservingCostUnknown())
    stolen = info.machine.conditions.steal if info.machine.conditions is not None else None
    if stolen is not None and stolen >= TOLD:
        costs.append(StolenTime(Value(stolen, "1", "measured")))
    for probe in info.probes:
        if probe.state in ("missing", "dead"):
            costs.append(ProbeSilent(probe.name, probe.reason or probe.state, probe.remedy))
    return costs
