"""Contamination: whether other programs disturbed a measurement.

Two readings of the machine, before and after, and a judgement in sentences. The rules and their calibration: a spinning
OpenMP thread that is not disturbed uses 0.95 to 1.00 of a CPU, a disturbed one 0.90 or less; more runnable tasks than
CPUs disturbs even where that rule just misses it. Threads that sleep while they wait (OMP_WAIT_POLICY=PASSIVE) use 0.66
undisturbed, so the first rule is for the spinning policy only. Steal has no tested threshold: it is told, not judged.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from sonda.probes.energy.thermal import read_throttle_count
from sonda.probes.kernel_files import read_text

LEAST_USE = 0.9
"""CPU time per thread and wall time below which a spinning program was held up."""
SPARE = 0.1
"""CPUs that others may use beyond the idle ones before it counts: the housekeeping of a quiet machine stays below."""
SAMPLE_S = 0.2
SHORTEST_S = 0.05
"""Seconds. The kernel counts CPU time in ticks of 10 ms; over less than five of them nothing can be said."""


@dataclass(frozen=True)
class Conditions:
    """What the machine and the calling process had done at a moment. Times are seconds, None where not readable."""

    time: float
    """Monotonic clock."""
    cpu_time: float
    """User and system time of the calling process and its children that have ended."""
    cores: int | None
    busy: float | None
    """CPU time of all programs since boot: user, nice, system, interrupts."""
    steal: float | None
    """CPU time that the hypervisor gave to others since boot."""
    load: float | None
    """Load average over a minute."""
    runnable: int | None
    """Tasks ready to run, the reader itself not counted."""
    throttled: int | None = None
    """Times that the processor was slowed because it was too hot, since boot."""
    sampled: tuple[int, ...] = ()
    """Of a watch's second reading: tasks ready to run at every sample since the first."""


@dataclass(frozen=True)
class Flag:
    """One sign of disturbance. `contaminated` is False for what is only told."""

    name: str
    value: float
    sentence: str
    contaminated: bool


class Watch:
    """Readings before and after a block, and the runnable tasks every 0.2 s in between.

    It samples from a thread of the calling process: use it in the process that waits, not in the one that is measured.
    """

    def __init__(self, root: Path = Path("/"), interval: float = SAMPLE_S) -> None:
        self.root = root
        self.interval = interval
        self.runnable: list[int] = []

    def __enter__(self) -> Watch:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True, name="sonda-watch")
        self.before = read_conditions(self.root)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self.after = replace(read_conditions(self.root), sampled=tuple(self.runnable))

    def _sample(self) -> None:
        while not self._stop.wait(self.interval):
            runnable = read_conditions(self.root, throttling=False).runnable
            if runnable is not None:
                self.runnable.append(runnable)


def parse_stat(text: str, ticks_per_second: int) -> dict[str, float]:
    """`busy` and `steal` in seconds, `runnable` tasks and `cores` out of `/proc/stat`; what is missing is left out."""
    found: dict[str, float] = {}
    cores = 0
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        words = rest.split()
        if name == "cpu" and len(words) >= 4 and all(word.isdigit() for word in words):
            ticks = [int(word) for word in words] + [0] * 8
            # Steal is another machine's work; guests are in user already.
            user, nice, system, _idle, _iowait, irq, softirq, steal = ticks[:8]
            found["busy"] = (user + nice + system + irq + softirq) / ticks_per_second
            if len(words) >= 8:
                found["steal"] = steal / ticks_per_second
        elif name.startswith("cpu") and name[3:].isdigit():
            cores += 1
        elif name == "procs_running" and len(words) == 1 and words[0].isdigit():
            found["runnable"] = int(words[0])
    if cores:
        found["cores"] = cores
    return found


def read_conditions(root: Path = Path("/"), throttling: bool = True) -> Conditions:
    """Read the machine now; costs about 0.1 ms, with `throttling` some ms on many cores, and never raises."""
    stat = parse_stat(read_text(root / "proc/stat") or "", os.sysconf("SC_CLK_TCK"))
    load = (read_text(root / "proc/loadavg") or "").split()
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    runnable = stat.get("runnable")
    try:
        load_average = float(load[0]) if load else None
    except ValueError:
        load_average = None
    return Conditions(
        time=time.monotonic(),
        cpu_time=sum(usage.ru_utime + usage.ru_stime for usage in usages),
        cores=int(stat["cores"]) if "cores" in stat else None,
        busy=stat.get("busy"),
        steal=stat.get("steal"),
        load=load_average,
        runnable=max(0, int(runnable) - 1) if runnable is not None else None,
        throttled=read_throttle_count(root) if throttling else None,
    )


def contamination(before: Conditions, after: Conditions, threads: int, policy: str = "active") -> list[Flag]:
    """Signs that others disturbed what the calling process and its children did between two readings.

    `threads` is the number the program computed with; `policy` is `active` (spinning) or `passive`, as
    `environment.wait_policy()` says.
    """
    wall = after.time - before.time
    if wall < SHORTEST_S:
        return []
    flags: list[Flag] = []
    own = (after.cpu_time - before.cpu_time) / wall
    cores = after.cores
    others: float | None = None
    if before.busy is not None and after.busy is not None:
        others = max(0.0, (after.busy - before.busy) / wall - own)
    if cores and others is not None and others > max(0, cores - threads) + SPARE:
        flags.append(Flag("others", others,
            f"other programs used {others:.1f} of {cores} CPUs while this one wanted {threads}: "
            "stop them, or use fewer threads", True))  # fmt: skip
    ready = _ready(after)
    if cores and ready is not None and ready > cores:
        flags.append(Flag("runnable", ready,
            f"{ready:.1f} tasks were ready to run on {cores} CPUs: stop other programs, or use fewer threads",
            True))  # fmt: skip
    use = own / min(threads, cores or threads)  # more threads than processors hold each other up, not others them
    if policy == "active" and use < LEAST_USE:
        disturbed = any(flag.contaminated for flag in flags)
        alone = threads == 1
        waited = "it waited" if alone else "they waited for input or had no parallel work"
        reason = f"others held {'it' if alone else 'them'} up, or {waited}" if disturbed else waited
        who = "1 thread" if alone else f"{threads} threads"
        flags.append(Flag("use", use, f"{who} kept {own:.2f} CPUs busy: {reason}", disturbed))
    if before.steal is not None and after.steal is not None and cores:
        stolen = (after.steal - before.steal) / (wall * cores)
        if stolen > 0:
            flags.append(Flag("steal", stolen, f"the hypervisor gave {stolen:.1%} of the CPU time to others", False))
    if before.throttled is not None and after.throttled is not None and after.throttled > before.throttled:
        times = after.throttled - before.throttled
        sentence = f"the processor was too hot and slowed down {times} time{'s' if times > 1 else ''}: cool it"
        flags.append(Flag("throttled", times, sentence, True))
    return flags


def _ready(after: Conditions) -> float | None:
    """Tasks ready to run, on average over the samples."""
    return sum(after.sampled) / len(after.sampled) if after.sampled else None


def conditions_record(before: Conditions, after: Conditions, flags: list[Flag]) -> dict[str, Any]:
    """For `run.json`: the load when it began and ended, CPU time against wall time (s), tasks ready to run where they
    were sampled, and what every sign measured.

    `signs` are the names of those that mean a disturbance.
    """
    return {
        "load": [before.load, after.load],
        "wall_s": after.time - before.time,
        "cpu_s": after.cpu_time - before.cpu_time,
        **({"runnable": ready} if (ready := _ready(after)) is not None else {}),
        **{flag.name: flag.value for flag in flags},
        "signs": [flag.name for flag in flags if flag.contaminated],
    }
