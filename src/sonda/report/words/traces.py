"""Words for imported traces."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.traces.findings import (
    ComputingDevice,
    ExposedDevice,
    FunctionTraceCount,
    HostOnly,
    IdleDevice,
    LargestPart,
    LaunchesCounted,
    LongCompiling,
    LongHost,
    LongIdle,
    LongOperations,
    LongPart,
    NoCommonStep,
    OfRank,
    ProgramCounted,
    TimelessDevice,
    TracedDevice,
    TraceRemedy,
    TruncatedTrace,
    UnseenWaits,
)
from sonda.report.words.describe import describe

MOST_FUNCTIONS = 3
REMEDIES = {
    "prefetch": "prefetch, map with num_parallel_calls, or cache the data set: what is loaded ahead is not waited for",
    "same shapes": "call it with the same shapes and types, and with tensors instead of Python numbers: then it is "
    "traced once",
    "communicate less": "larger batches: a step exchanges as much, and computes more",
    "copy less": "keep tensors on one device, or copy the next batch while this one is computed",
    "profile later": "begin the profile after the first steps",
    "fewer calls": "larger batches, one tf.function or jit around the whole step, or steps_per_execution in Keras: "
    "fewer calls for the same work",
    "fewer launches": "larger batches, torch.compile or CUDA graphs: fewer launches for the same work",
}


# ---- Devices --------------------------------------------------------------------------------------------------------


@describe.register
def _(finding: HostOnly) -> str:
    sentence = "No activity of a device is in the trace: it shows the host only."
    if finding.operations:
        longest = wording.join([f"{name} {wording.percent(share)}" for name, share in finding.longest])
        sentence += f" Of {wording.duration(finding.operations)} in operations, {longest}."
    if finding.communication:
        communication = wording.duration(finding.communication)
        sentence += f" Communication, which may run beside them, takes {communication}."
    return sentence


@describe.register
def _(finding: LaunchesCounted) -> str:
    launches = f"{finding.launches:,} launch{'' if finding.launches == 1 else 'es'}"
    return f"{launches} of {wording.plural(finding.kernels, 'kernel')} were counted."


@describe.register
def _(finding: ProgramCounted) -> str:
    return f"{wording.plural(finding.counts, 'count')} of a whole program."


def _device(device: TracedDevice) -> str:
    return device.name if device.rank is None else f"{device.name} of rank {device.rank}"


@describe.register
def _(finding: TimelessDevice) -> str:
    return f"{_device(finding.device)} did nothing that took time."


@describe.register
def _(finding: IdleDevice) -> str:
    why = (
        f": in {wording.percent(finding.host)} of its gaps the next launch had not been made, so the host limits"
        if finding.host_limits
        else ", and its next work was mostly launched by then"
    )
    return f"{_device(finding.device)} is idle {wording.percent(finding.idle)} of the time{why}."


@describe.register
def _(finding: ExposedDevice) -> str:
    share = wording.percent(finding.share)
    return f"{_device(finding.device)} spends {share} of the time on {finding.activity} that no computation hides."


@describe.register
def _(finding: ComputingDevice) -> str:
    computing, idle = wording.percent(finding.compute), wording.percent(finding.idle)
    return f"{_device(finding.device)} computes {computing} of the time and is idle {idle}."


# ---- Steps of a profile ---------------------------------------------------------------------------------------------


@describe.register
def _(finding: OfRank) -> str:
    return f"{describe(finding.finding).removesuffix('.')} (rank {finding.rank})."


@describe.register
def _(finding: LargestPart) -> str:
    return f"Nothing takes most of the step: {finding.part} takes {wording.percent(finding.share)}."


PARTS = {
    "input": "Input-bound: waiting for data takes {share} of the step ({time}).",
    "communication": "Communication-bound: exchanging with other ranks, or waiting for them, takes {share} of the "
    "step ({time}).",
    "transfer": "Transfer-bound: copying between devices takes {share} of the step ({time}), in which nothing is "
    "computed.",
    "launch": "Overhead-bound: launching work on a device takes {share} of the step ({time}), in which no device "
    "works.",
}


@describe.register
def _(finding: LongPart) -> str:
    share, time = wording.percent(finding.share), wording.duration(finding.time)
    return PARTS[finding.part].format(share=share, time=time)


@describe.register
def _(finding: LongCompiling) -> str:
    functions = wording.join([_function(function) for function in finding.functions[:MOST_FUNCTIONS]])
    which = f": {functions}" if functions else ""
    return f"Compile-bound: tracing and compiling takes {wording.percent(finding.share)} of the steps{which}."


def _function(function: FunctionTraceCount) -> str:
    ranks = wording.join([str(rank) for rank in function.ranks])
    on = f" on {'ranks' if len(function.ranks) > 1 else 'rank'} {ranks}" if function.ranks else ""
    return f"{function.name} in {function.traced} of {wording.plural(function.calls, 'call')}{on}"


@describe.register
def _(finding: LongHost) -> str:
    return (
        f"Overhead-bound: the framework's own work takes {wording.percent(finding.share)} of the step "
        f"({wording.duration(finding.time)}), operations take {wording.percent(finding.operations)}."
    )


@describe.register
def _(finding: LongOperations) -> str:
    return (
        f"Compute-bound on the host: operations take {wording.percent(finding.share)} of the step "
        f"({wording.duration(finding.time)}), {wording.percent(finding.of_operations)} of it {finding.operation}."
    )


@describe.register
def _(finding: LongIdle) -> str:
    return (
        f"For {wording.percent(finding.share)} of the step nothing was recorded: Python between the calls, or what the "
        "profiler does not see."
    )


@describe.register
def _(finding: TraceRemedy) -> str:
    return REMEDIES[finding.action]


# ---- What it does not show ------------------------------------------------------------------------------------------


@describe.register
def _(finding: TruncatedTrace) -> str:
    return "the file ends in the middle: only what stands before that is shown; record it again"


@describe.register
def _(finding: UnseenWaits) -> str:
    return (
        f"{wording.plural(finding.calls, 'call')} made a stream wait for another, and the trace does not say which: "
        "the critical path does not see that; torch.profiler records it with enable_cuda_sync_events"
    )


@describe.register
def _(finding: NoCommonStep) -> str:
    return "no step is in the traces of all ranks: they are not compared with each other"
