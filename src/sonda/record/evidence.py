"""Evidence: what one counted step of a program shows beside the costs of its operations.

Layers are named by their paths, lines as `train.py:41`; '' where there is none. Times are those of the counted step,
which counting disturbs: only their ratios are used.
"""

from __future__ import annotations

from sonda.record.stored import Number, Stored


class OperationGroup(Stored, frozen=True, kw_only=True):
    """Operations of one phase, layer, line, family and precision."""

    phase: str = ""
    """'' outside of all phases."""
    layer: str | None = None
    """None outside of all layers."""
    line: str = ""
    family: str = "other"
    """product, pointwise, copy, creation (memory asked for by name), update or other; with a GPU also ask (the host
    waits for an answer), to_device and to_host."""
    bits: int = 0
    """Of the first operand that holds floating-point numbers; 0 for none."""
    operations: int
    ns: int
    flops: Number = 0
    bytes: Number = 0
    strided: Number = 0
    """Bytes of operands that lie in memory with gaps, or in another order than that of their dimensions."""
    mapped: Number = 0
    """Bytes of results that the C library takes from the system for them alone, as it does from 32 MiB on."""


class DeviceCall(Stored, frozen=True, kw_only=True):
    """Calls of a GPU's library by one name, in the steps whose kernels were recorded."""

    name: str
    """Without the library: `StreamSynchronize` of `cudaStreamSynchronize`."""
    count: Number
    """A step."""
    ns: Number
    """Of the host, a step."""


class RepeatedCall(Stored, frozen=True, kw_only=True):
    """A module that is called again with what it was called with before."""

    layer: str
    calls: int
    repeated: int
    line: str = ""
    """Where it is called again."""


class ThrownGradients(Stored, frozen=True, kw_only=True):
    """A module whose weights get gradients that nobody uses."""

    layer: str
    part: Number
    """Of its gradients that are thrown away, 0 to 1."""
    first: bool = False
    """Whether the weights of all modules that were called before it get none that is used: their backward is for
    nothing too."""


class UnreachedGraph(Stored, frozen=True, kw_only=True):
    """A module called with gradients on, whose result no backward reaches."""

    layer: str
    calls: int
    unused: int
    line: str = ""
    """Where it is called."""


class UpdatedTable(Stored, frozen=True, kw_only=True):
    """A matrix of weights that is updated as a whole although most of its rows have no gradient."""

    layer: str
    rows: int
    elements: int
    untouched: Number
    """Part of its rows, 0 to 1."""


class WeightUpdate(Stored, frozen=True, kw_only=True):
    """A step of an optimizer."""

    optimizer: str
    tensors: int = 0
    small: int = 0
    """Tensors of so few elements that an operation on them costs its overhead."""
    elements: int = 0
    states: int = 0
    """Elements of the optimizer's state."""
    bits: int = 0
    """Of the numbers of the state; 0 where there is none yet."""
    weight_bits: int = 0
    fused: bool = False
    foreach: bool = False
    can_fuse: bool = False
    own: bool = False
    """Whether the optimizer is a class of the program or of a library, not one of the framework."""
    elsewhere: bool = False
    """Whether the weights lie on another device than the model computes on."""
    tables: list[UpdatedTable] = []


class DenormalTensor(Stored, frozen=True, kw_only=True):
    """A tensor with subnormal numbers."""

    layer: str
    what: str
    """weights, gradients or result of a layer, or an optimizer's state."""
    part: Number
    """Of a sample of its elements, 0 to 1."""


class DenormalFacts(Stored, frozen=True, kw_only=True):
    """Where subnormal numbers were seen in a program, and what they cost on its processor."""

    places: list[DenormalTensor] = []
    product_times: Number = 1
    """How many times longer a product of matrices takes with them."""
    element_times: Number = 1
    """The same of an operation on each element."""
    root_times: Number = 1
    """The same of a square root."""


class ForwardRepeat(Stored, frozen=True, kw_only=True):
    """Evaluating forwards of a module that compute what one just before has computed."""

    layer: str
    times: int
    ns: int
    line: str = ""


class ForwardRepeats(Stored, frozen=True, kw_only=True):
    """The first evaluating forwards of a program, and those of them that repeat others."""

    looked: int
    lasted: int
    """ns from the begin of the first to the end of the last."""
    forwards: list[ForwardRepeat] = []


class WorkDivision(Stored, frozen=True, kw_only=True):
    """The line in which processes of a job choose their part of the work by their number."""

    file: str
    line: int
    function: str = ""


class SubnormalOperation(Stored, frozen=True, kw_only=True):
    """Operations of one name and place that read or give subnormal numbers."""

    phase: str = ""
    layer: str | None = None
    line: str = ""
    name: str
    ns: int
    part: Number
    """Of the elements of an operand or of the result that are subnormal, 0 to 1."""
    times: Number
    """How many times longer such an operation takes with them than with usual numbers."""


class TriedFormat(Stored, frozen=True, kw_only=True):
    """Operations of one place whose operands have channels first, and that were tried with channels last."""

    phase: str = ""
    layer: str | None = None
    line: str = ""
    ns: int
    times: Number
    """How many times longer that is than with channels last."""


class CompiledFunction(Stored, frozen=True, kw_only=True):
    """A function that was compiled."""

    function: str
    line: str = ""
    times: int = 0
    seconds: Number = 0
    again: Number = 0
    """s of compiling it again."""
    reason: str = ""
    """Why again, in the compiler's words."""


class GraphBreak(Stored, frozen=True, kw_only=True):
    """A line at which a compiled graph ends too early."""

    line: str = ""
    reason: str = ""
    times: int = 0


class Compilations(Stored, frozen=True, kw_only=True):
    """What `torch.compile` did in a program."""

    functions: list[CompiledFunction] = []
    breaks: list[GraphBreak] = []


class LayerSize(Stored, frozen=True, kw_only=True):
    """A layer that ran and has weights of its own; 0 for what it does not have."""

    layer: str
    weights: int
    inputs: int = 0
    """Columns of its matrix."""
    outputs: int = 0
    kernel: int = 0
    """The longest side of a convolution's kernel."""


class StepEvidence(Stored, frozen=True, kw_only=True):
    """One counted step."""

    part: str
    start: int
    """ns since the run began."""
    line: str = ""
    """Where its first forward is called."""
    functions: dict[str, str] = {}
    """Qualified names of the functions around these lines."""
    batch: int = 0
    """The first dimension of the first input of its first forward."""
    groups: list[OperationGroup] = []
    subnormal: list[SubnormalOperation] = []
    formats: list[TriedFormat] = []
    repeated: list[RepeatedCall] = []
    thrown: list[ThrownGradients] = []
    call_lines: dict[str, str] = {}
    """By layer: where it is called first; of a step that throws gradients away."""
    graphs: list[UnreachedGraph] = []
    updates: list[WeightUpdate] = []
    sizes: list[LayerSize] = []
