"""Where and how something ran. Its type is the kind of the run: each kind has facts of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import msgspec

from sonda.record.machine import Machine
from sonda.record.readings import (
    CommandCounts,
    CountedTopDown,
    ModelledFacts,
    NcuFacts,
    ProbeState,
    SensorReadings,
    StoredEnergy,
    UsedDevice,
)
from sonda.record.simulated import (
    AreaTaken,
    DescribedAccelerator,
    EnergySpent,
    ExplorationFacts,
    MappedOperation,
    SimulationOptions,
    WhatIf,
)
from sonda.record.stored import Number, Scalar, Stored, plain, without_unknown
from sonda.record.trials import Trials
from sonda.record.workload import Workload

Kind = Literal[
    "workload", "program", "block", "ranks", "corun", "serving", "energy", "simulated", "exploration", "imported"
]
"""What kind of run it is: decides how it is summarised and shown."""


class Target(Stored, frozen=True, kw_only=True, tag_field="kind", tag="target"):
    """Where something ran, and what instruments read of it."""

    kind: ClassVar[Kind]
    spec: str
    """As the user wrote it; '' for programs, which choose for themselves."""
    device: str
    """cpu, cuda, sim; for a co-run and an exploration that word."""
    threads: int | None = None
    devices: dict[str, UsedDevice] | None = None
    """GPUs, by the program's own names."""
    tf32: dict[str, bool] | None = None
    """Whether float32 may be computed as TF32: in `matmul` and in `convolution`."""
    no_kernels: str | None = None
    """Why the kernels of GPUs were not recorded, where they were not."""
    outside: CommandCounts | None = None
    ncu: NcuFacts | None = None
    modelled: ModelledFacts | None = None
    topdown: CountedTopDown | None = None
    metered: StoredEnergy | None = None
    shown: list[str] | None = None
    """Probes whose numbers are shown though they are nothing remarkable."""
    second: dict[str, CommandCounts] | None = None
    """What other tools counted, each in a run of its own."""
    probed: list[SensorReadings] | None = None
    added: dict[str, object] | None = None
    """What instruments of other packages say, by their own names."""

    @classmethod
    def of(cls, **facts: Any) -> Self:
        """The target that these facts tell of, as plain values or as structs; those without a field are `added`.

        Raises ValueError for a value that cannot be.
        """
        known = {name: value for name, value in facts.items() if name in cls.__struct_fields__}
        added = {name: value for name, value in facts.items() if name not in cls.__struct_fields__}
        if added:
            known["added"] = {**(known.get("added") or {}), **added}
        return msgspec.convert(without_unknown(msgspec.to_builtins({**known, "kind": cls.kind})), cls)

    def plain(self) -> dict[str, Any]:
        """As documents show it: what was added among the rest."""
        document = plain(self)
        return {**document, **document.pop("added", {})}

    def extended(self, facts: Mapping[str, Any]) -> Self:
        """The same with further facts, as `of` takes them; sensors that were probed join those before them."""
        if not facts:
            return self
        known = plain(self)
        probed = [*known.get("probed", ()), *facts.get("probed", ())]
        return self.of(**{**known, **facts, **({"probed": probed} if probed else {})})


class WorkloadTarget(Target, frozen=True, kw_only=True, tag="workload"):
    """A workload of Sonda's on one device."""

    kind: ClassVar[Kind] = "workload"


class ProgramTarget(Target, frozen=True, kw_only=True, tag="program"):
    """A program of the user's."""

    kind: ClassVar[Kind] = "program"
    processes: int | None = None
    """How many of its processes computed at the same time, where several did."""
    trials: Trials | None = None
    """Remedies that were tried on it."""


NO_STEP_OF_BLOCK = (
    "sonda.profile() saw no step: the block called no module, no layer and no compiled function that can be seen, and "
    "stepped no optimizer; the whole program is observed by: sonda run -- python PROGRAM"
)


class BlockTarget(Target, frozen=True, kw_only=True, tag="block"):
    """A part of a program: `sonda.profile()`."""

    kind: ClassVar[Kind] = "block"


class EnergyTarget(Target, frozen=True, kw_only=True, tag="energy"):
    """A command of which energy is all that was measured: `sonda energy`."""

    kind: ClassVar[Kind] = "energy"
    alone: str = ""


class ImportedTarget(Target, frozen=True, kw_only=True, tag="imported"):
    """Files of another tool."""

    kind: ClassVar[Kind] = "imported"


# ---- Ranks ----------------------------------------------------------------------------------------------------------


class ShareChange(Stored, frozen=True, kw_only=True):
    """Samples of every rank from a step on."""

    step: int
    shares: list[int]


class RankFacts(Stored, frozen=True, kw_only=True):
    """A rank: medians over its timed steps, and the shares that it had."""

    rank: int
    device: str = ""
    threads: int | None = None
    left_out: bool | None = None
    """True where it would not have paid."""
    samples: int | None = None
    """Of its last step."""
    shares: list[ShareChange] | None = None
    worked_ns: Number | None = None
    waited_ns: Number | None = None
    modules: list[str] | None = None
    """Of a stage of a pipeline."""
    devices: list[str] | None = None
    """Of a rank that has several."""
    node: str | None = None


class OutlookFacts(Stored, frozen=True, kw_only=True):
    """What was foretold before the first step; times in ns. Of a pipeline: `cut`, `work_ns` and `bytes`."""

    cut: list[int] | None = None
    work_ns: list[Number] | None = None
    bytes: int | None = None
    batch: int | None = None
    alone_ns: list[Number | None] | None = None
    """A step with the whole batch, by rank."""
    shares: list[int] | None = None
    compute_ns: Number | None = None
    communication_ns: Number | None = None
    bound: float | None = None
    """The speed-up without communication."""
    speedup: float | None = None
    chosen: list[int] | None = None
    """Ranks that train."""
    chosen_shares: list[int] | None = None
    gradient_bytes: int | None = None
    all_reduce_ns: Number | None = None
    norm_exchange_ns: Number | None = None
    norms: int | None = None
    fixed_ns: list[Number] | None = None
    each_ns: list[Number] | None = None
    """Of a sample more, by rank."""


class NodeFacts(Stored, frozen=True, kw_only=True):
    """What a node of several says of itself."""

    node: str
    ranks: list[int] | None = None
    duration_ns: int | None = None
    """By its own clock."""
    machine: Machine | None = None
    versions: dict[str, str] | None = None
    probes: list[ProbeState] | None = None
    devices: dict[str, UsedDevice] | None = None
    metered: StoredEnergy | None = None


class RanksTarget(Target, frozen=True, kw_only=True, tag="ranks"):
    """A workload on several devices."""

    kind: ClassVar[Kind] = "ranks"
    mode: str = ""
    """ddp, hybrid, localsgd, pipeline, dp, mirrored and so on."""
    backend: str = ""
    servers: int | None = None
    """Parameter servers."""
    h: int | None = None
    """Steps between two exchanges."""
    microbatches: int | None = None
    replicas: int | None = None
    """Pipelines side by side."""
    batch: str | None = None
    """`all`: the ranks share the batch, `each`: each has one."""
    ranks: list[RankFacts] = []
    outlook: OutlookFacts | None = None
    nodes: list[NodeFacts] | None = None
    lost_nodes: list[str] | None = None
    """Of which nothing came."""
    same_machine: dict[str, str] | None = None
    """Of nodes that are processes of one machine, the first of them."""


# ---- Programs side by side ------------------------------------------------------------------------------------------


class ParticipantFacts(Stored, frozen=True, kw_only=True):
    """One of several programs side by side."""

    name: str
    workload: Workload = msgspec.field(default_factory=Workload)
    cores: list[int] = []
    threads: int | None = None
    region: str | None = None
    """What is measured: `steps`, whole `runs` of a command, or a `window` of one that runs on."""
    observed: int | None = None
    """Of so many steps one is observed."""
    train: bool | None = None
    precision: str | None = None
    compile: bool | None = None
    channels_last: bool | None = None
    workers: int | None = None
    command: list[str] | None = None
    options: dict[str, Scalar] | None = None
    """Further settings of its job."""

    def plain(self) -> dict[str, Any]:
        """As documents show it: its options among the rest."""
        document = plain(self)
        return {**document, **document.pop("options", {}), "workload": self.workload.plain()}


class WindowPart(Stored, frozen=True, kw_only=True):
    """What a participant did in a window; times in ns since the run began."""

    slot: int
    begin: int = 0
    end: int = 0
    slices: list[tuple[Number, Number, Number, Number]]
    """Beginning, duration, steps and CPU time of the pieces that were measured."""
    counters: dict[str, float]
    occupancy: Number | None = msgspec.field(default=None, name="llc_occupancy_B")
    """B of the last-level cache that it occupied in the end."""
    traffic: Number | None = msgspec.field(default=None, name="memory_B_per_s")
    reasons: dict[str, str] | None = None
    """Why resctrl says nothing."""


class CorunWindow(Stored, frozen=True, kw_only=True):
    """A stretch of time in which some of the programs ran side by side."""

    members: list[int]
    partition: str
    repetition: int
    measured: list[WindowPart]


class CorunCache(Stored, frozen=True, kw_only=True):
    """How the last-level cache was divided, and why not."""

    partitions: dict[str, dict[str, int | str]] | None = None
    """Masks of every participant, by partition."""
    ways: int | None
    reason: str | None = None
    monitor_reason: str | None = None


class CorunPmu(Stored, frozen=True, kw_only=True):
    """What the PMU counted, and why not: on this machine, or of a participant."""

    events: list[str] | None = None
    reason: str | None = None
    remedy: str | None = None
    refused: dict[str, str] | None = None


class CorunFacts(Stored, frozen=True, kw_only=True):
    """Programs side by side."""

    participants: list[ParticipantFacts]
    seconds: Number
    """Of a window."""
    repeat: int
    timeout: Number | None = None
    windows: list[CorunWindow]
    cache: CorunCache
    pmu: CorunPmu | None = None


class CorunTarget(Target, frozen=True, kw_only=True, tag="corun"):
    """Several programs side by side."""

    kind: ClassVar[Kind] = "corun"
    corun: CorunFacts


# ---- Served traffic -------------------------------------------------------------------------------------------------


class RateTrial(Stored, frozen=True, kw_only=True):
    """A rate of queries that was tried, and whether the latency bound was kept."""

    rate: float
    queries: int
    late: int
    held: bool


LoadgenFacts = dict[str, bool | int | float | str | list[str] | None]
"""What MLPerf's LoadGen says, by its own names; `errors` are a list."""


class ServingFacts(Stored, frozen=True, kw_only=True):
    """The traffic that a model was given; times in ns."""

    scenario: str
    queries: int | None
    seconds: Number | None
    qps: Number | None
    find: bool | None = None
    bound: Number | None
    percentile: float
    samples: int
    """Of a query."""
    max_batch: int | None = None
    batch_wait: int | None = None
    backend: str | None = None
    weights: str | None = None
    """The run whose weights were served."""
    tried: dict[str, Number] | None = None
    """ns of an inference by its queries, the shortest."""
    rate: float | None = None
    """Queries/s that arrived."""
    trials: list[RateTrial] | None = None
    loadgen: LoadgenFacts | None = None


class ServingTarget(Target, frozen=True, kw_only=True, tag="serving"):
    """A model that answered queries."""

    kind: ClassVar[Kind] = "serving"
    serving: ServingFacts


# ---- Simulated accelerators -----------------------------------------------------------------------------------------


class SimulatedTarget(Target, frozen=True, kw_only=True, tag="simulated"):
    """A simulated accelerator."""

    kind: ClassVar[Kind] = "simulated"
    options: SimulationOptions | None = None
    description: DescribedAccelerator | None = None
    mapping: list[MappedOperation] | None = None
    host: dict[str, int] | None = None
    """How many operations of each name run on the host."""
    energy: EnergySpent | None = None
    area: AreaTaken | None = None
    what_if: list[WhatIf] | None = None


class ExplorationTarget(Target, frozen=True, kw_only=True, tag="exploration"):
    """Many simulated accelerators, as points of a table."""

    kind: ClassVar[Kind] = "exploration"
    options: SimulationOptions | None = None
    descriptions: dict[str, DescribedAccelerator] | None = None
    exploration: ExplorationFacts


# ---------------------------------------------------------------------------------------------------------------------

AnyTarget = (
    WorkloadTarget | ProgramTarget | BlockTarget | RanksTarget | CorunTarget | ServingTarget | EnergyTarget
    | SimulatedTarget | ExplorationTarget | ImportedTarget
)  # fmt: skip
