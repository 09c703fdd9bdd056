"""What an imported trace has to tell: what its devices and steps spend their time on, and what it does not show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from sonda.analysis.findings import Finding

# ---- Devices --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HostOnly(Finding):
    """No activity of a device is in the trace."""

    kind: ClassVar[str] = "host only"

    operations: float
    """ns in operations that do not communicate."""
    longest: tuple[tuple[str, float], ...]
    """Operations that take most of it, with their shares, 0 to 1."""
    communication: float
    """ns."""


@dataclass(frozen=True)
class LaunchesCounted(Finding):
    """Launches were counted, without their times on a timeline."""

    kind: ClassVar[str] = "launches counted"

    launches: int
    kernels: int


@dataclass(frozen=True)
class ProgramCounted(Finding):
    """Counts of a whole program."""

    kind: ClassVar[str] = "program counted"

    counts: int


@dataclass(frozen=True)
class TracedDevice:
    """A device, and its rank where there are several devices."""

    name: str
    rank: int | None


@dataclass(frozen=True)
class TimelessDevice(Finding):
    """A device did nothing that took time."""

    kind: ClassVar[str] = "timeless device"

    device: TracedDevice


@dataclass(frozen=True)
class IdleDevice(Finding):
    """A device does nothing most of the time."""

    kind: ClassVar[str] = "idle device"

    device: TracedDevice
    idle: float
    """Share of the time, 0 to 1."""
    host: float
    """Share of its gaps in which the next launch had not been made, 0 to 1."""
    host_limits: bool


@dataclass(frozen=True)
class ExposedDevice(Finding):
    """A device spends more time on exchanging than on computing."""

    kind: ClassVar[str] = "exposed device"

    device: TracedDevice
    activity: str
    """`communication` or `copies`."""
    share: float
    """Of the time that no computation hides, 0 to 1."""


@dataclass(frozen=True)
class ComputingDevice(Finding):
    """A device computes most of the time."""

    kind: ClassVar[str] = "computing device"

    device: TracedDevice
    compute: float
    idle: float


# ---- Steps of a profile ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OfRank(Finding):
    """A finding about the steps of one of several ranks."""

    kind: ClassVar[str] = "of a rank"

    finding: Finding
    rank: int


@dataclass(frozen=True)
class LargestPart(Finding):
    """Nothing takes most of the step."""

    kind: ClassVar[str] = "largest part"

    part: str
    share: float


@dataclass(frozen=True)
class LongPart(Finding):
    """A part of the step that takes much of it: input, communication, transfer or launch."""

    kind: ClassVar[str] = "long part"

    part: str
    share: float
    time: float
    """ns a step."""


@dataclass(frozen=True)
class FunctionTraceCount:
    """A function that was traced in some of its calls."""

    name: str
    traced: int
    calls: int
    ranks: tuple[int, ...]
    """Where there are several."""


@dataclass(frozen=True)
class LongCompiling(Finding):
    """Tracing and compiling takes much of the steps."""

    kind: ClassVar[str] = "long compiling"

    share: float
    functions: tuple[FunctionTraceCount, ...]


@dataclass(frozen=True)
class LongHost(Finding):
    """The framework's own work takes most of the step."""

    kind: ClassVar[str] = "long host"

    share: float
    time: float
    """ns a step."""
    operations: float
    """Share of the step."""


@dataclass(frozen=True)
class LongOperations(Finding):
    """Operations of the host take most of the step."""

    kind: ClassVar[str] = "long operations"

    share: float
    time: float
    """ns a step."""
    operation: str
    """The one that takes most."""
    of_operations: float
    """Its share in the time of all of them, 0 to 1."""


@dataclass(frozen=True)
class LongIdle(Finding):
    """For most of the step nothing was recorded."""

    kind: ClassVar[str] = "long idle"

    share: float


@dataclass(frozen=True)
class TraceRemedy(Finding):
    """To try, against what a trace shows."""

    kind: ClassVar[str] = "trace remedy"

    action: Literal["prefetch", "same shapes", "communicate less", "copy less", "profile later", "fewer calls",
                    "fewer launches"]  # fmt: skip


# ---- What it does not show ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TruncatedTrace(Finding):
    """The file ends in the middle."""

    kind: ClassVar[str] = "truncated trace"


@dataclass(frozen=True)
class UnseenWaits(Finding):
    """Calls that made a stream wait for another, of which the trace does not say which."""

    kind: ClassVar[str] = "unseen waits"

    calls: int


@dataclass(frozen=True)
class NoCommonStep(Finding):
    """No step is in the traces of all ranks."""

    kind: ClassVar[str] = "no common step"
