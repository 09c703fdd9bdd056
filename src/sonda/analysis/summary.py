"""The summary of a run: what every report shows, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sonda.analysis import reasons
from sonda.analysis.findings import Finding
from sonda.record.machine import Machine
from sonda.record.run import Run
from sonda.record.target import AnyTarget, WorkloadTarget
from sonda.record.workload import Workload

if TYPE_CHECKING:
    from sonda.analysis.code.summary import CodeSummary
    from sonda.analysis.corun.interference import Interference
    from sonda.analysis.counters.callgrind import ModelledSummary
    from sonda.analysis.counters.summary import CounterSummary, Outside, OverTime, SecondSources, SystemSummary, TopDown
    from sonda.analysis.device.kernel_counters import KernelCounters
    from sonda.analysis.device.kernel_roofline import KernelRoofline
    from sonda.analysis.energy.summary import EnergySummary
    from sonda.analysis.serving import ServingSummary
    from sonda.analysis.steps.pipeline import Pipeline
    from sonda.analysis.steps.program import Program
    from sonda.analysis.steps.training import Training
    from sonda.analysis.traces.summary import DeviceWork
    from sonda.analysis.trials import TrialsSummary


TABLES = "bounds of the tables it comes from"
"""Of energies and areas of an accelerator: each entry of a table has its own bounds."""
SAMPLES = "95 % interval of its samples"
"""Of a share of samples that were told right: what so many samples leave open."""
MODEL, READINGS = "bounds of the power model", "bounds of the readings"
"""Of energies: what a guess of the power allows, and what two readings of a counter leave open."""


@dataclass(frozen=True)
class Value:
    """A number with its unit and source, and its interval where it has one. Missing is None, with a reason."""

    value: float | None
    unit: str
    source: str
    low: float | None = None
    high: float | None = None
    reason: str = ""
    few: int = 0
    """Where the interval is least to most of so many values, too few for a 95 % interval; else it is one."""
    bounds: str = ""
    """Where its ends come from no repeated measurement: what bounds they are, `TABLES` or another."""


def arithmetic_intensity(flops: Value, moved: Value) -> Value:
    """FLOP for each byte moved; missing, with the reason, where one of them is not known or no byte is moved."""
    if flops.value is None or moved.value is None:
        missing = flops if flops.value is None else moved
        return Value(None, "FLOP/B", "derived", reason=missing.reason)
    if not moved.value:
        return Value(None, "FLOP/B", "derived", reason=reasons.NO_BYTE_MOVED)
    return Value(flops.value / moved.value, "FLOP/B", "derived")


@dataclass(frozen=True)
class Cost:
    """What a phase or layer did per step and how that compares with the machine. `report/cost_quantities.py` says where
    each of its numbers shows."""

    time: Value
    """ns per step, median over timed steps."""
    share: float
    """Part of the step's median time, 0 to 1; NaN where there is no time."""
    flops: Value
    bytes: Value
    achieved: Value
    """FLOP/s."""
    bandwidth: Value
    """B/s achieved."""
    roof: Value
    """1 = at the roofline: time the measured ceilings allow, divided by the time taken."""
    bound: str
    """compute, memory, overhead, or '' where nothing explains half of the time."""
    operations: Value
    """Framework operations dispatched per step."""
    limits: dict[str, float] = field(default_factory=dict)
    """ns per step that each limit alone accounts for: compute, memory, overhead; empty where that is not known."""
    cached: float = 0.0
    """Part of the bytes, 0 to 1, that are moved by operations whose data fit in the last-level cache."""
    above: str = ""
    """The limit that it beat beyond all uncertainty, where no other explains it: compute, memory or overhead. What
    was measured of the machine, or counted in it, is then wrong, and nothing is said to bound it."""
    executed: Value | None = None
    """FLOP without products with padding, which libraries skip, where they are fewer: the roof is held against them."""

    @property
    def intensity(self) -> Value:
        """FLOP/B, of what is executed."""
        return arithmetic_intensity(self.executed or self.flops, self.bytes)

    @property
    def executed_rate(self) -> Value:
        """FLOP/s of what is executed: its place under the roofs."""
        achieved, flops = self.achieved, self.flops.value
        if self.executed is None or achieved.value is None or not flops:
            return achieved
        part = (self.executed.value or 0.0) / flops
        low, high = (None if end is None else part * end for end in (achieved.low, achieved.high))
        return replace(achieved, value=part * achieved.value, low=low, high=high)


@dataclass(frozen=True)
class Traffic:
    """To and from the memory behind the finite global buffer of a simulated accelerator."""

    reads: Value
    """Bytes."""
    writes: Value
    row_hits: Value
    """Accesses that find their row open, 0 to 1."""
    cold_misses: Value
    """Rows of embedding tables that come into the buffer for the first time."""
    capacity_misses: Value
    """Rows of embedding tables that had to leave the buffer and come again."""


@dataclass(frozen=True)
class SimulatedCost:
    """What a step, phase or layer took on a simulated accelerator."""

    cycles: Value
    """With those in which an engine waits for memory."""
    share: float
    """Part of the step's cycles, 0 to 1."""
    utilisation: Value
    """Products that the operations ask for over multipliers x cycles, 0 to 1."""
    reads: Value
    """Elements read from the global buffer."""
    writes: Value
    multiplications: Value
    stack: dict[str, Value]
    """Cycles by what they were spent on; they add up. `memory` is there only where the buffer is finite."""
    bound: str
    """The largest part of the stack."""
    energy: Value
    """J; `low` and `high` are the bounds of the energy table's entries, which do not come from measuring."""
    traffic: Traffic | None = None
    """None where the buffer is unlimited."""
    mapping: tuple[str, ...] = ()
    """What was chosen for its operations, each once: `T_M=1 T_N=64 T_K=4`."""
    possible: float = 0.0
    """Multipliers x cycles: the products that could have been computed."""


@dataclass(frozen=True)
class DeviceSide:
    """What a GPU did in a step. What it worked is known from steps of their own, whose kernels were recorded."""

    busy: Value
    """ns per step in which it did something; of several GPUs the mean."""
    idle: Value
    """ns per timed step in which it did nothing."""
    share: float
    """Busy time over the time of a timed step, 0 to 1."""
    host: Value
    """ns of a timed step on the host's clock: the program may run ahead of the device."""
    overlapped: Value
    """ns per step of activities beyond the first at one moment."""
    launches: Value
    """Calls per step that launched kernels and copies; a CUDA graph is one."""
    latency: Value
    """ns from a launch to the beginning of its first activity, median."""
    copies: Value
    """ns per step, each copy for itself."""
    collectives: Value
    phases: dict[str, Value]
    """Busy ns per step of each phase."""
    steps: int
    """How many steps had their kernels recorded."""
    devices: float = 1.0
    """GPUs that a process works on."""


@dataclass(frozen=True)
class PhaseRow:
    name: str
    cost: Cost
    peak_memory: Value
    counters: dict[str, Value] = field(default_factory=dict)
    """Other metrics per step by column name (`page_faults:counted`)."""
    simulated: SimulatedCost | None = None
    """On a simulated accelerator, where anything ran on an engine."""
    host: Value | None = None
    """ns per step on the host's clock, where the phase's own time is the GPU's."""
    busy: Value | None = None
    """ns per step in which a GPU worked on it."""


@dataclass(frozen=True)
class LayerRow:
    path: str
    """Module path; '' is the model itself."""
    name: str
    """Class of the module."""
    depth: int
    leaf: bool
    calls: int
    """Calls per step."""
    forward: Value
    """ns per step, children included."""
    backward: Value
    own: Value
    """ns per step, forward and backward, without what its children took: these add up to the model's time."""
    cost: Cost
    """Forward and backward together, children included."""
    activations: Value
    own_cost: Cost | None = None
    """Forward and backward together, without the modules inside: what the module does itself."""
    simulated: SimulatedCost | None = None
    """On a simulated accelerator, modules inside included."""
    own_simulated: SimulatedCost | None = None
    """Without the modules inside, with its mapping."""
    host: Value | None = None
    """ns per step on the host's clock, forward and backward, modules inside included, where its own time is a GPU's."""


@dataclass(frozen=True)
class Remedy:
    """Something to try. `options` are the command-line words that try it, empty when it is not a flag away."""

    advice: Finding
    """What to do: a kind of `rules.advice`, or a `Remark`."""
    options: tuple[str, ...] = ()
    speedup: Value | None = None
    """Filled once it was tried."""


@dataclass(frozen=True)
class CausePlace:
    """Where a cause is: a line of the user's code, or a layer. What is not known is '' or 0."""

    file: str = ""
    """As the program names it; shown without its folders."""
    line: int = 0
    function: str = ""
    """Its qualified name."""
    text: str = ""
    """The source of the expression that runs there."""
    layer: str = ""
    """Path of the module."""


@dataclass(frozen=True)
class Verdict:
    """What limits the run, with the numbers that fired it."""

    kind: str
    """compute, memory, overhead, host, input, communication, transfer, code, compile, retracing, contention or
    oversubscription. Where no limit is named, why: none (no limit explains half of the step), unknown (nothing to hold
    it against), noisy (too noisy to tell), nothing (no step was seen), above_ceiling, untimed (counts without times),
    balanced (no rank is slow). Of a program whose steps are a minor part of it the stage that takes most, of lost slots
    a category of Top-Down, of a simulated run a part of the cycle stack. Causes in the program are named after their
    rules (`rules.CAUSES`); good where there is none."""
    finding: Finding
    """What was found: a kind of `rules.limits`, or a `Remark`."""
    evidence: dict[str, Value]
    remedies: tuple[Remedy, ...] = ()
    share: float = 0.0
    """Part of the step that it explains, 0 to 1."""
    place: CausePlace | None = None
    """Where the cause is, where one place is."""


@dataclass(frozen=True)
class RankPhases:
    """One of several ranks that did a part together; times are ns per step, medians over its own steps."""

    rank: int
    device: str
    node: str
    """'' where all ranks are of one."""
    step: Value
    work: Value
    """Of a step, without what the rank exchanged with others or waited for them."""
    phases: dict[str, Value]
    """By name; `communicate` is all of that, wherever in the step."""
    flops: Value
    """Of its step."""
    steps: int
    critical: bool
    """It works longest, so the others wait for it."""
    lag: Value = Value(None, "1", "derived")
    """Part of its step that it works longer than all ranks do on average in the same step."""
    layers: tuple[LayerRow, ...] = ()
    """Those that the critical rank does not have: stages of a pipeline run at once, so they are never added up."""


@dataclass(frozen=True)
class CoreTimes:
    """How threads of the process and the cores came together in a step, as parts of its time; medians over the steps in
    which both were read."""

    ran: float
    waited: float
    """Ready to run, without a core."""


@dataclass(frozen=True)
class PartSummary:
    """One part of a run: train, validate or test. Where several ranks did it together, by the critical one."""

    name: str
    step: Value
    """ns, median over timed steps with its bootstrap interval."""
    steps: int
    warmup: int
    """Steps set apart, planned and found."""
    durations: tuple[float, ...]
    """ns of every step in order, warm-up included."""
    noise: float
    """Half-width of the interval over the median; NaN where there is no interval."""
    samples_per_second: Value
    tokens_per_second: Value
    phases: tuple[PhaseRow, ...]
    layers: tuple[LayerRow, ...]
    phase_steps: dict[str, tuple[float, ...]]
    """ns of each phase in every step, for phases over steps."""
    total: Value | None = None
    """ns of all steps together, warm-up included."""
    phase_tokens: dict[str, Value] = field(default_factory=dict)
    """Tokens a second by phase, for prefill and decode."""
    counters: dict[str, Value] = field(default_factory=dict)
    """Metrics of the whole step by column name: sums over its phases, or the highest for a level such as memory."""
    core_times: CoreTimes | None = None
    """None where nobody counted, or in too few steps."""
    backwards: int = 0
    """Of a step, the median: several where gradients are gathered over several batches."""
    simulated: SimulatedCost | None = None
    """Of the whole step on a simulated accelerator."""
    counted: CounterSummary | None = None
    """Hardware counters, where they were read."""
    system: SystemSummary | None = None
    """What the operating system counted, by phase."""
    topdown: TopDown | None = None
    """Where the slots of the pipeline went, where the counters for it were read."""
    over_time: OverTime | None = None
    """Quantities step by step, and where they change."""
    device: DeviceSide | None = None
    """What a GPU did, where its kernels were recorded."""
    ranks: tuple[RankPhases, ...] = ()
    """Every rank, where there are several."""
    inside: dict[str, float] = field(default_factory=dict)
    """Phases of a step that is one function, by steps in which they can be told apart: their parts of it, 0 to 1;
    `other` is what none of them covers."""
    outside: dict[str, Value] = field(default_factory=dict)
    """ns of each phase with layers that are in none of these: with them they are the phase's time."""
    walks: int = 1
    """How often the program came to this part: validations, for one."""
    apart: tuple[int, ...] | None = None
    """Places of the steps set apart, from 0; None: they are the first."""

    @property
    def timed(self) -> tuple[float, ...]:
        """ns of every step that counts, in order."""
        apart = self.set_apart
        return tuple(duration for at, duration in enumerate(self.durations) if at not in apart)

    @property
    def set_apart(self) -> frozenset[int]:
        """Places of the warm-up among all steps: a function that is compiled again in the middle is warm-up there."""
        return frozenset(range(self.warmup) if self.apart is None else self.apart)


@dataclass(frozen=True)
class Summary:
    run: str
    title: str
    subtitle: str
    status: str
    parts: tuple[PartSummary, ...]
    """The first is the one that the verdict speaks of."""
    verdicts: tuple[Verdict, ...]
    """Most important first; never empty."""
    warnings: tuple[Finding, ...]
    """Noise, an incomplete run, ceilings that were exceeded: each with its remedy."""
    ceilings: dict[str, Any]
    """The ceilings that applied, for the roofline (`Ceilings.as_dict`), or the `reason` why there are none."""
    notes: tuple[Finding, ...]
    """How the numbers came about, and what could not be observed."""
    workload: Workload = field(default_factory=Workload)
    """As in the run's `info`."""
    target: AnyTarget = field(default_factory=lambda: WorkloadTarget(spec="", device=""))
    machine: Machine = field(default_factory=Machine)
    """The machine record without its ceilings."""
    modelled: ModelledSummary | None = None
    """Counters of one step under callgrind, where they were asked for."""
    energy: EnergySummary | None = None
    """Where it was read while the run lasted."""
    training: Training | None = None
    """Epoch by epoch, where a whole training was run."""
    code: CodeSummary | None = None
    """Functions and lines of the program, where its stacks were sampled."""
    program: Program | None = None
    """Of a command: where its time went, from its start to its end."""
    pipelines: tuple[Pipeline, ...] = ()
    """Of a command: the stages of tf.data that feed its parts."""
    outside: Outside | None = None
    """Of a command: the whole of it, counted from outside."""
    second: SecondSources | None = None
    """The whole program as second sources counted it, where they were asked."""
    trials: TrialsSummary | None = None
    """Of a command: remedies that were tried on it."""
    corun: Interference | None = None
    """How programs slowed each other, where several ran at once."""
    serving: ServingSummary | None = None
    """Latencies and rates, where a model was served."""
    device_work: DeviceWork | None = None
    """Timeline and kernels of GPUs, where they were recorded."""
    kernel_roofline: KernelRoofline | None = None
    """Kernels against the GPU's ceilings, where something was counted in them."""
    kernel_counters: KernelCounters | None = None
    """What Nsight Compute counted in kernels, where it was asked."""


# ---- Experiments that are not steps of one program, as listings show them -------------------------------------------


def list_experiment(run: Run, experiment: Any, subtitle: str, no_roofline: str, **own: Any) -> Summary:
    """The `experiment` (its title, finding and notes, what to try where that is known) as a summary without parts;
    `own` are further fields of it."""
    remedy = getattr(experiment, "remedy", None)
    return Summary(
        run=run.id,
        title=experiment.title,
        subtitle=subtitle,
        status=run.info.status,
        parts=(),
        verdicts=(Verdict("none", experiment.finding, {}, (Remedy(remedy),) if remedy else ()),),
        warnings=getattr(experiment, "warnings", ()),
        ceilings={"reason": no_roofline},
        notes=experiment.notes,
        workload=run.info.workload,
        target=run.info.target,
        machine=run.info.machine,
        **own,
    )
