"""What ran: a built-in network, a program, or the file of another tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sonda.record.evidence import Compilations, DenormalFacts, DeviceCall, ForwardRepeats, StepEvidence, WorkDivision
from sonda.record.stored import Number, Scalar, Stored, plain


class TracedFunction(Stored, frozen=True, kw_only=True, omit_defaults=False):
    """A function that a framework traced (TensorFlow's `tf.function`, JAX's `jit`), and how often; times in s."""

    function: str
    where: str = ""
    calls: int = 0
    traces: int = 0
    call_s: Number = 0
    trace_s: Number = 0
    first_s: Number = 0
    """Of tracing for the first time."""
    run_s: Number = 0
    cause: str = ""
    """Why it was traced again most often."""
    argument: str = ""
    times: int = 0
    examples: list[str] = []
    xla: bool = False


class StepWaits(Stored, frozen=True, kw_only=True, omit_defaults=False):
    """How long a step of a program waits on average, how many were looked at, and how many of these waited."""

    step_ns: int = 0
    steps: int = 0
    waited: int = 0


class InputStage(Stored, frozen=True, kw_only=True):
    """A stage of a tf.data pipeline: elements that it gave, and ns that its calls took."""

    name: str
    elements: Number = 0
    ns: Number = 0
    parallel: Number = 1
    """Calls that it makes at once."""
    buffer: Number | None = None
    """Elements that it makes ahead."""


class InputPipeline(Stored, frozen=True, kw_only=True):
    """The stages of tf.data that fed a part of a program; the consumer's end comes first."""

    part: str
    stages: list[InputStage] = []


class TrainingFacts(Stored, frozen=True, kw_only=True):
    """A whole training, beside its walks, which are spans; see `record.training`."""

    loading_ns: int | None = None
    initialisation_ns: int | None = None
    resumed: int | None = None
    restarts: int | None = None
    images: dict[str, int] | None = None
    batches: dict[str, int] | None = None
    classes: list[str] | None = None
    data: str | None = None
    digest: str | None = None
    split: str | None = None
    transfer: str | None = None
    weights: str | None = None
    """The file beside `run.json` that holds the final weights."""


class JobGroup(Stored, frozen=True, kw_only=True):
    """Ranks of an imported job that communicate with each other."""

    name: str
    description: str = ""
    ranks: list[int] = []


class TracedCalls(Stored, frozen=True, kw_only=True):
    """How often a function was called in a profile, how often it was traced, and in which ranks only."""

    calls: int
    traced: int
    ranks: list[int] = []


class ProfileFacts(Stored, frozen=True, kw_only=True):
    """What an imported profile says of itself."""

    steps: str | None = None
    """What is taken for a step, in words."""
    traced: dict[str, TracedCalls] | None = None


class Workload(Stored, frozen=True, kw_only=True):
    """What ran. A field is None where it is not known."""

    parameters: dict[str, Scalar] = {}
    """What fixes what is computed, by the workload's own names (`batch`, `layers`), and options of programs that have
    no field here."""
    name: str = ""
    command: list[str] | None = None
    """Of a program."""
    imported: str | None = None
    """The tool whose files were imported: kineto, nsys, xplane, ncu, ncu-rep or perf."""
    files: list[str] | None = None
    ranks: int | None = None
    """Of imported files: how many ranks they hold."""
    hosts: list[str] | None = None
    """The name of each rank's machine."""
    world: int | None = None
    """How many ranks the job had."""
    smallest_group: int | None = None
    groups: list[JobGroup] | None = None
    profile: ProfileFacts | None = None
    block: bool | None = None
    """True for `sonda.profile()`."""
    samples: Number | None = None
    """That one step processes, as are `tokens`."""
    tokens: Number | None = None
    phase_tokens: dict[str, int] | None = None
    framework: str | None = None
    traced: list[TracedFunction] | None = None
    pipelines: list[InputPipeline] | None = None
    train: bool | None = None
    precision: str | None = None
    compile: bool | str | None = None
    compile_part: bool | None = None
    channels_last: bool | None = None
    matmul_precision: str | None = None
    autocast: str | bool | None = None
    cuda_graphs: bool | int | None = None
    threads_line: str | None = None
    """Where a program chose its number of threads: `train.py:41`."""
    double_line: str | None = None
    """Where a program chose 64 bits for its numbers or weights."""
    cores: int | None = None
    """To which a program has bound itself."""
    loader: str | None = None
    """Whose data loader a program uses."""
    loader_line: str | None = None
    """Where the program makes it: `train.py:20`."""
    workers: int | None = None
    """Processes that load data."""
    prefetch: int | None = None
    pin: bool | None = None
    persistent_workers: bool | None = None
    cache: bool | str | None = None
    waits: StepWaits | None = None
    evidence: list[StepEvidence] | None = None
    """Of a program: what its counted steps showed beside costs."""
    device_calls: list[DeviceCall] | None = None
    """Of a program on a GPU: calls for which its host waited."""
    denormals: DenormalFacts | None = None
    compilations: Compilations | None = None
    fault_ns: Number | None = None
    """What a page fault cost in a program, ns."""
    repeated_forwards: ForwardRepeats | None = None
    division: WorkDivision | None = None
    """Of a program of several processes."""
    step_faults: Number | None = None
    """Page faults of a program in a training step, wherever in it."""
    epochs: int | None = None
    images: int | None = None
    data: str | None = None
    training: TrainingFacts | None = None

    @property
    def batch(self) -> int | None:
        """Samples of a step, where the workload has such a parameter."""
        size = self.parameters.get("batch")
        return size if isinstance(size, int) else None

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Workload:
        """The workload of these facts; those without a field are parameters. Raises ValueError for what cannot be."""
        return msgspec.convert(workload_document(facts), cls)

    def plain(self) -> dict[str, Any]:
        """As documents show it: the parameters among the rest, without the evidence, from which verdicts are made."""
        document = plain(self)
        for name in OF_EVIDENCE:
            document.pop(name, None)
        return {**document.pop("parameters", {}), **document}


def workload_document(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of a workload as schema 2 has them: what has no field of its own is a parameter."""
    known = KNOWN if "imported" in facts else KNOWN - OF_FILES
    fields = {key: value for key, value in facts.items() if key in known}
    parameters = {key: value for key, value in facts.items() if key not in known}
    if isinstance(given := fields.pop("parameters", None), Mapping):
        parameters = {**given, **parameters}
    return {**({"parameters": parameters} if parameters else {}), **fields}


OF_EVIDENCE = (
    "evidence",
    "threads_line",
    "double_line",
    "loader_line",
    "device_calls",
    "denormals",
    "repeated_forwards",
    "division",
    "compilations",
    "fault_ns",
    "step_faults",
)
KNOWN = frozenset(Workload.__struct_fields__)
OF_FILES = frozenset({"files", "ranks", "hosts", "world", "smallest_group", "groups", "profile"})
"""Fields of imported files: a network may have parameters of these names."""
