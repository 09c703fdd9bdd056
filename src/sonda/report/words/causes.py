"""Words for causes of slow steps: what a program does and need not do."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.rules.cause_findings import (
    AllocatesAnew,
    AsksDevice,
    ChannelsFirst,
    CompiledAgain,
    DeviceMemoryReturned,
    DominatingLayer,
    DoublePrecision,
    FewThreads,
    ForwardsAgain,
    GraphBreaks,
    MicroBatch,
    NeedlessCopies,
    PointwiseChain,
    RepeatedForward,
    SavesOften,
    SlowProducts,
    StridedOperands,
    SubnormalNumbers,
    TableUpdated,
    TinyOperations,
    UnevenRanks,
    UnfusedUpdate,
    UnusedGradients,
    UnusedGraph,
    UpdateElsewhere,
    ValidatesOften,
)
from sonda.report.words.describe import describe
from sonda.report.words.numbers import amount, duration, number, share
from sonda.report.words.places import at_place, name_layer

MOST_NAMED = 2
"""Layers that a sentence names at most."""


@describe.register
def _(finding: UnusedGradients) -> str:
    layers = wording.join([name_layer(path) for path in finding.layers[:MOST_NAMED]])
    more = f" and {len(finding.layers) - MOST_NAMED} more" if len(finding.layers) > MOST_NAMED else ""
    thrown = "some of the gradients" if finding.sometimes else "the gradients"
    called = f", called at {finding.place.line}," if finding.place.line else ""
    return (
        f"Unused gradients: {thrown} of {layers}{more}{called} are thrown away; computing them takes "
        f"{share(finding.share)} of the step ({duration(finding.time)})."
    )


@describe.register
def _(finding: UnusedGraph) -> str:
    what = "an evaluation" if finding.evaluates else "a forward"
    cost = f", its graph at least {duration(finding.time)} a step" if finding.time.value else ""
    return (
        f"Unused gradients: {what} runs with gradients on and no backward follows{at_place(finding.place)}. It takes "
        f"{share(finding.forward)} of the steps' time{cost}."
    )


@describe.register
def _(finding: RepeatedForward) -> str:
    both = " with its backward" if finding.backward else ""
    whose = name_layer(finding.place.layer)
    return (
        f"Repeated forward: {whose} is called {finding.calls} times a step with the same input and weights"
        f"{at_place(finding.place, layer=False)}; computing it again{both} takes {share(finding.share)} of the step "
        f"({duration(finding.time)})."
    )


@describe.register
def _(finding: ForwardsAgain) -> str:
    return (
        f"Repeated forward: {finding.times} of {finding.looked} forwards compute again what one before has computed"
        f"{at_place(finding.place, layer=False)}; these take {share(finding.share)} of the time."
    )


@describe.register
def _(finding: TinyOperations) -> str:
    return (
        f"Tiny operations: {number(finding.operations):,.0f} small operations a step take "
        f"{duration(finding.operation_time)} each, {share(finding.share)} of the step is their overhead; "
        f"{finding.here:,} of them are called{at_place(finding.place)}."
    )


@describe.register
def _(finding: MicroBatch) -> str:
    batch = wording.plural(finding.batch, "sample") if finding.batch else "few samples"
    at_line = f" ({finding.place.line})" if finding.place.line else ""
    return (
        f"Micro-batch{at_line}: a step of {batch} makes {number(finding.operations):,.0f} operations that take "
        f"{duration(finding.operation_time)} each, however small; {share(finding.share)} of the step is overhead."
    )


@describe.register
def _(finding: TableUpdated) -> str:
    return (
        f"Optimizer-bound: all {finding.rows:,} rows of {name_layer(finding.place.layer)} are updated although "
        f"{share(finding.untouched)} of them have no gradient in a step; that takes {share(finding.share)} of the step "
        f"({duration(finding.time)})."
    )


@describe.register
def _(finding: UnfusedUpdate) -> str:
    if not finding.optimizer:
        return (
            f"Optimizer-bound: updating the weights takes {share(finding.whole)} of the step in "
            f"{number(finding.operations):,.0f} operations{at_place(finding.place)}; one for all weights in place of "
            f"one for each would save {share(finding.share)}."
        )
    return (
        f"Optimizer-bound: {finding.optimizer} takes {share(finding.whole)} of the step to update "
        f"{wording.plural(finding.tensors, 'tensor')} in {number(finding.operations):,.0f} operations"
        f"{at_place(finding.place)}; one pass would save {share(finding.share)}."
    )


@describe.register
def _(finding: UnevenRanks) -> str:
    at_line = f" ({finding.place.line})" if finding.place.line else ""
    return (
        f"Imbalance{at_line}: rank {finding.rank} works {duration(finding.work)} a step, another one "
        f"{duration(finding.least)} and waits; with equal work the step would take {share(finding.share)} less."
    )


@describe.register
def _(finding: UpdateElsewhere) -> str:
    return (
        f"Optimizer-bound: {finding.optimizer} updates weights on another device than the model computes on"
        f"{at_place(finding.place)}, {share(finding.share)} of the step."
    )


@describe.register
def _(finding: FewThreads) -> str:
    return (
        f"Single thread: the step computes on {wording.plural(finding.threads, 'thread')}"
        f"{at_place(finding.place)} where there are "
        f"{finding.cores} cores; all of them would save up to {share(finding.share)} of it."
    )


@describe.register
def _(finding: AsksDevice) -> str:
    waited = f", and waits {duration(finding.waited)}" if finding.waited.value else ""
    return (
        f"Synchronisation: the program asks the GPU {number(finding.times):,.0f} times a step{waited}, most of it"
        f"{at_place(finding.place)}; meanwhile the GPU runs out of work, {share(finding.share)} of the step."
    )


@describe.register
def _(finding: DeviceMemoryReturned) -> str:
    calls = f" {number(finding.calls):,.0f} calls of its driver a step" if finding.calls.value else ""
    return (
        f"Allocation: memory of the GPU is given back and asked for anew{at_place(finding.place)};{calls} take "
        f"{share(finding.share)} of the step."
        if calls
        else f"Allocation: memory of the GPU is given back and asked for anew{at_place(finding.place)}, "
        f"{share(finding.share)} of the step."
    )


@describe.register
def _(finding: SlowProducts) -> str:
    return (
        f"Slow products: float32 products take {share(finding.whole)} of the step, most of it"
        f"{at_place(finding.place)}; this GPU multiplies {number(finding.times):.1f} times as fast in TF32, which "
        f"would save {share(finding.share)}."
    )


@describe.register
def _(finding: DoublePrecision) -> str:
    where = (
        f"; they are chosen{at_place(finding.place)}" if finding.chosen else f", most of it{at_place(finding.place)}"
    )
    return (
        f"Double precision: operations on 64-bit numbers take {share(finding.whole)} of the step{where}; 32 bits would "
        f"save {share(finding.share)}."
    )


@describe.register
def _(finding: DominatingLayer) -> str:
    size = f"a kernel of {finding.kernel}" if finding.kernel else f"{share(finding.weights)} of all weights"
    return (
        f"Dominating layer: {name_layer(finding.place.layer)} ({finding.name}, with {size}) and its "
        f"update take {share(finding.share)} of the step."
    )


@describe.register
def _(finding: PointwiseChain) -> str:
    return (
        f"Memory-bound: {finding.operations} element-wise operations follow each other{at_place(finding.place)} and "
        f"move {amount(finding.moved)} a step, {share(finding.whole)} of it; one pass would save "
        f"{share(finding.share)}."
    )


@describe.register
def _(finding: NeedlessCopies) -> str:
    return (
        f"Copies: tensors are copied {wording.plural(finding.copies, 'time')} a step, {amount(finding.moved)} and "
        f"{share(finding.share)} of it, most of them{at_place(finding.place)}."
    )


@describe.register
def _(finding: StridedOperands) -> str:
    return (
        f"Memory format: operations{at_place(finding.place)} read {amount(finding.moved)} a step that lies in memory "
        f"with gaps or in another order, which costs {share(finding.share)} of the step."
    )


@describe.register
def _(finding: ChannelsFirst) -> str:
    return (
        f"Memory format: images are stored with channels first; what reads them{at_place(finding.place)} takes "
        f"{wording.times(number(finding.times))} as long as with channels last; with these the step would take "
        f"{share(finding.share)} less."
    )


@describe.register
def _(finding: SubnormalNumbers) -> str:
    times = wording.times(number(finding.times))
    whose = {"state": "the optimizer's state"}.get(
        finding.what, f"the {finding.what} of {name_layer(finding.place.layer)}"
    )
    if finding.what.startswith("aten."):
        whose = f"the numbers of {finding.what.removeprefix('aten.')}{at_place(finding.place)}"
    return (
        f"Denormals: {share(finding.part)} of {whose} are subnormal numbers, with which work takes {times} as long "
        f"here; without them the step would take {share(finding.share)} less."
    )


@describe.register
def _(finding: ValidatesOften) -> str:
    return (
        f"Validation: {finding.times} validations, one in {number(finding.steps):,.0f} training steps, take "
        f"{share(finding.share)} of the time of all steps ({duration(finding.time)}){at_place(finding.place)}."
    )


@describe.register
def _(finding: SavesOften) -> str:
    return (
        f"Checkpointing: {finding.files:,} files of weights, one in {number(finding.steps):,.0f} steps, take "
        f"{share(finding.share)} of the time from the first step on ({duration(finding.time)})"
        f"{at_place(finding.place)}."
    )


@describe.register
def _(finding: AllocatesAnew) -> str:
    return (
        f"Allocation: {number(finding.faults):,.0f} page faults a step take {duration(finding.fault_time)} each, "
        f"{share(finding.share)} of the step, most of them in {finding.place.phase or 'the step'}"
        f"{at_place(finding.place)}: memory is given back and asked for anew."
    )


@describe.register
def _(finding: CompiledAgain) -> str:
    reason = f": {finding.reason}" if finding.reason else ""
    return (
        f"Recompilation: {finding.function} was compiled {finding.times} times{at_place(finding.place)}, "
        f"{share(finding.share)} of the time ({duration(finding.time)}){reason}."
    )


@describe.register
def _(finding: GraphBreaks) -> str:
    reason = f" ({finding.reason})" if finding.reason else ""
    return (
        f"Graph breaks: compiled code falls apart at {wording.plural(finding.breaks, 'place')}, first"
        f"{at_place(finding.place)}{reason}; its phases take {share(finding.share)} of the step."
    )
