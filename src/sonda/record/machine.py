"""The machine of a run: its processor, caches and memory, what it reached at most, and what else went on meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sonda.record.stored import Number, Stored, without_unknown


class CacheLevel(Stored, frozen=True, kw_only=True):
    """A cache as the kernel shows it."""

    level: int
    type: str
    """Data, Instruction or Unified."""
    bytes: int
    shared_by: int
    """Logical cores that share one of them."""
    instances: int


class ThreadTimes(Stored, frozen=True, kw_only=True):
    """How the scheduler treated the threads of the process with the most steps, while it was observed."""

    ran_ns: Number
    """Processor time of all its threads."""
    waited_ns: Number
    """In which they were ready to run and had no processor."""
    lasted_ns: Number
    ran_before_ns: Number = 0
    """Processor time before, since the program began."""


class Conditions(Stored, frozen=True, kw_only=True):
    """What the machine did beside the run."""

    load: list[Number | None] = []
    """Load averages at the beginning and at the end."""
    wall_s: Number | None = None
    cpu_s: Number | None = None
    runnable: Number | None = None
    """Tasks ready to run, where they were sampled."""
    steal: Number | None = None
    """The share of the processors' time that the hypervisor gave to others."""
    others: Number | None = None
    """CPUs that other programs used, where these were too many."""
    other_cpus: Number | None = None
    """CPUs that other programs used, of those that the run may use."""
    thread_times: ThreadTimes | None = None
    use: Number | None = None
    """CPU seconds per thread and second, where that was too little."""
    throttled: Number | None = None
    """Times that the processor slowed down because it was too hot."""
    signs: list[str] | None = None
    """The names of the signs that meant a disturbance."""


class PublishedPeak(Stored, frozen=True, kw_only=True):
    """A figure from outside: FLOP/s, B/s or bytes, how it comes about, and where that is printed."""

    value: Number
    words: str = ""
    source: str = ""
    clock_mhz: Number | None = None


class CardTheory(Stored, frozen=True, kw_only=True):
    """What a card can do at most; `card` is '' where no table has it."""

    card: str = ""
    flops: dict[str, PublishedPeak] = {}
    dram_bandwidth: PublishedPeak | None = None
    cache_bytes: PublishedPeak | None = None
    missing: dict[str, str] = {}


class ReachedCeilings(Stored, frozen=True, kw_only=True):
    """What was reached at most: by a number of threads, or on a GPU. A rate is 0 where it was not measured."""

    flops: dict[str, Number] = {}
    """FLOP/s by precision."""
    dram_bandwidth: Number = 0
    """B/s, as are the other bandwidths."""
    dram_stream: Number = 0
    cache_bandwidth: Number = 0
    cache_stream: Number = 0
    bandwidth_curve: list[tuple[Number, Number]] = []
    """Bytes of footprint, B/s."""
    cache_bytes: Number = 0
    operation_ns: Number = 0
    """What a framework needs for an operation that does nothing."""
    training_operation_ns: Number = 0
    clocks: dict[str, Number] = {}
    """Hz by precision, of a GPU."""
    spread: dict[str, Number] = {}
    kernels: dict[str, str] = {}
    """What reached each peak, by precision."""
    missing: dict[str, str] = {}
    disturbed: list[str] = []
    """What other programs did while it was measured."""
    measured: str = ""
    """UTC, ISO 8601."""
    library: str = ""
    schema: int | None = None
    device: GpuFacts | None = None
    """Of a GPU."""
    theory: CardTheory | None = None


class GpuFacts(Stored, frozen=True, kw_only=True):
    """A GPU whose ceilings were measured. Zero or '' where something is not known; `missing` says why."""

    name: str = ""
    index: int = 0
    capability: str = ""
    sms: int = 0
    memory_bytes: int = 0
    l2_bytes: int = 0
    sm_mhz: Number = 0
    memory_mhz: Number = 0
    memory_bits: int = 0
    power_limit_w: Number = 0
    driver: str = ""
    library: str = ""
    cuda: str = ""
    mig: bool = False
    missing: dict[str, str] = {}


class MeasuredCeilings(Stored, frozen=True, kw_only=True):
    """What the machine reached: by the number of threads as text, and by device (`cuda:0`)."""

    schema: int | None = None
    measured: str = ""
    library: str = ""
    fingerprint: str = ""
    processor: str = ""
    threads: dict[str, ReachedCeilings] = {}
    cache_bytes: Number = 0
    """Of the last level."""
    devices: dict[str, ReachedCeilings] = {}


class Machine(Stored, frozen=True, kw_only=True):
    """The machine record. What could not be found is None, and `missing` says why."""

    processor: str | None = None
    vendor: str | None = None
    family: int | None = None
    model: int | None = None
    stepping: int | str | None = None
    """A number; on Arm variant and revision (`r1p1`)."""
    architecture: str | None = None
    instruction_sets: list[str] | None = None
    logical_cores: int | None = None
    physical_cores: int | None = None
    sockets: int | None = None
    smt: bool | None = None
    numa_nodes: int | None = None
    base_mhz: Number | None = None
    max_mhz: Number | None = None
    governor: str | None = None
    turbo: bool | None = None
    caches: list[CacheLevel] | None = None
    memory_bytes: int | None = None
    virtual_machine: bool | None = None
    container: bool | None = None
    affinity: int | None = None
    """Logical cores that the process may use."""
    cpu_quota: Number | None = None
    """Cores that a cgroup allows."""
    memory_limit_bytes: int | None = None
    effective_cores: Number | None = None
    """Cores that the process can really use: by affinity and quota."""
    kernel: str | None = None
    os: str | None = None
    host: str | None = None
    """A hash of the host's name."""
    missing: dict[str, str] | None = None
    fingerprint: str | None = None
    """Changes when something changes that determines speed, and with nothing else."""
    ceilings: MeasuredCeilings | None = None
    environment: dict[str, str] | None = None
    """Variables that set numbers of threads."""
    conditions: Conditions | None = None

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Machine:
        """The machine of these plain values; raises ValueError for what cannot be."""
        return msgspec.convert(without_unknown(facts), cls)

    @property
    def cores(self) -> Number | None:
        """Cores that the process can use, as far as that is known."""
        return self.effective_cores or self.logical_cores
