"""Contamination: whether other programs disturbed a measurement.

The machine is read before and after a measurement, and the two readings are judged. The rules and their calibration: an
undisturbed OpenMP thread that spins uses 0.95 to 1.00 of a CPU, a disturbed one 0.90 or less. Where that rule just
misses it, more runnable tasks than CPUs mean a disturbance too. Threads that sleep while they wait
(OMP_WAIT_POLICY=PASSIVE) use 0.66 undisturbed, so the first rule is for the spinning policy only. Steal has no tested
threshold: the user is told of it, and it counts as no disturbance.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from sonda.probes.energy.thermal import read_throttle_count
from sonda.probes.kernel_files import read_text
from sonda.record.machine import Conditions

LEAST_USE = 0.9
"""CPU seconds per thread and second below which a spinning program was disturbed."""
SPARE = 0.1
"""CPUs that others may use beyond those that the program leaves idle; the housekeeping of a quiet machine uses less."""
SAMPLE_S = 0.2
SHORTEST_S = 0.05
"""Seconds. The kernel counts CPU time in ticks of 10 ms; over less than five of them nothing can be said."""


@dataclass(frozen=True)
class MachineConditions:
    """What the machine and the calling process had done at a moment. Times are seconds, None where not readable."""

    time: float
    """Monotonic clock."""
    cpu_time: float
    """User and system time of the calling process and its children that have ended."""
    cores: int | None
    """Those that the calling process may use."""
    busy: float | None
    """CPU time of all programs on these cores since boot: user, nice, system, interrupts."""
    steal: float | None
    """CPU time that the hypervisor gave to others since boot."""
    load: float | None
    """Load average over a minute."""
    runnable: int | None
    """Tasks ready to run, the reader itself not counted."""
    throttled: int | None = None
    """Times that the processor was slowed because it was too hot, since boot."""
    sampled: tuple[int, ...] = ()
    """Of the second reading of a `ContaminationWatch`: tasks ready to run, at every sample since the first reading."""
    processors: int | None = None
    """All of the machine, which share the tasks that are ready to run; None: `cores`."""


@dataclass(frozen=True)
class DisturbanceSign:
    """One sign of disturbance. `contaminated` is False where the user is told of it and it counts as none."""

    name: str
    value: float
    sentence: str
    contaminated: bool


class ContaminationWatch:
    """Reads the machine before and after a block, and the number of runnable tasks every 0.2 s in between.

    A thread of the calling process does that: use it in a process that waits, not in the one that is measured.
    """

    def __init__(self, root: Path = Path("/"), interval: float = SAMPLE_S) -> None:
        self.root = root
        self.interval = interval
        self.runnable: list[int] = []

    def __enter__(self) -> ContaminationWatch:
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


def parse_stat(text: str, ticks_per_second: int, allowed: Collection[int] | None = None) -> dict[str, float]:
    """`busy` and `steal` in seconds, `runnable` tasks, `processors` and `cores` out of `/proc/stat`; what is missing is
    left out. `allowed` are the numbers of the cores that count, all unless given; `runnable` is of all processors."""
    values: dict[str, float] = {}
    counted: list[dict[str, float]] = []
    processors = 0
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        words = rest.split()
        times = name.startswith("cpu") and len(words) >= 4 and all(word.isdigit() for word in words)
        if name == "cpu" and times:
            values |= _cpu_times(words, ticks_per_second)
        elif name.startswith("cpu") and name[3:].isdigit():
            processors += 1
            if times and (allowed is None or int(name[3:]) in allowed):
                counted.append(_cpu_times(words, ticks_per_second))
        elif name == "procs_running" and len(words) == 1 and words[0].isdigit():
            values["runnable"] = int(words[0])
    if processors:
        values["processors"] = processors
        values["cores"] = processors if allowed is None else len(counted)
    if allowed is not None and 0 < len(counted) < processors:
        values |= {key: sum(times.get(key, 0.0) for times in counted) for key in counted[0]}
    return values


def _cpu_times(words: list[str], ticks_per_second: int) -> dict[str, float]:
    """`busy` and, where the kernel tells it, `steal` of a line of `/proc/stat`, in seconds."""
    ticks = [int(word) for word in words] + [0] * 8
    # Steal is another machine's work; guests are in user already.
    user, nice, system, _idle, _iowait, irq, softirq, steal = ticks[:8]
    busy = (user + nice + system + irq + softirq) / ticks_per_second
    return {"busy": busy, "steal": steal / ticks_per_second} if len(words) >= 8 else {"busy": busy}


def read_conditions(root: Path = Path("/"), throttling: bool = True) -> MachineConditions:
    """Read the machine now; never raises. Takes about 0.1 ms, with `throttling` some ms on many cores."""
    allowed = os.sched_getaffinity(0) if root == Path("/") else None
    stat = parse_stat(read_text(root / "proc/stat") or "", os.sysconf("SC_CLK_TCK"), allowed)
    load = (read_text(root / "proc/loadavg") or "").split()
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    runnable = stat.get("runnable")
    try:
        load_average = float(load[0]) if load else None
    except ValueError:
        load_average = None
    return MachineConditions(
        time=time.monotonic(),
        cpu_time=sum(usage.ru_utime + usage.ru_stime for usage in usages),
        cores=int(stat["cores"]) if "cores" in stat else None,
        busy=stat.get("busy"),
        steal=stat.get("steal"),
        load=load_average,
        runnable=max(0, int(runnable) - 1) if runnable is not None else None,
        throttled=read_throttle_count(root) if throttling else None,
        processors=int(stat["processors"]) if "processors" in stat else None,
    )


def find_disturbances(
    before: MachineConditions, after: MachineConditions, threads: int, policy: str = "active"
) -> list[DisturbanceSign]:
    """Signs that others disturbed the calling process and its children between two readings.

    `threads` is the number of threads that the program computed with; `policy` is `active` (they spin while they wait)
    or `passive`, as `environment.wait_policy()` gives it.
    """
    wall = after.time - before.time
    if wall < SHORTEST_S:
        return []
    signs: list[DisturbanceSign] = []
    own = (after.cpu_time - before.cpu_time) / wall
    cores = after.cores
    others = _other_cpus(before, after)
    if cores and others is not None and others > max(0, cores - threads) + SPARE:
        signs.append(DisturbanceSign("others", others,
            f"other programs used {others:.1f} of {cores} CPUs while this one wanted {threads}: "
            "stop them, or use fewer threads", True))  # fmt: skip
    ready = _mean_runnable(after)
    processors = after.processors or cores
    if processors and ready is not None and ready > processors:
        signs.append(DisturbanceSign("runnable", ready,
            f"{ready:.1f} tasks were ready to run on {processors} CPUs: stop other programs, or use fewer threads",
            True))  # fmt: skip
    use = own / min(threads, cores or threads)  # threads beyond the number of processors wait for their own program
    if policy == "active" and use < LEAST_USE:
        disturbed = any(sign.contaminated for sign in signs)
        alone = threads == 1
        waited = "it waited" if alone else "they waited for input or had no parallel work"
        reason = f"others held {'it' if alone else 'them'} up, or {waited}" if disturbed else waited
        who = "1 thread" if alone else f"{threads} threads"
        signs.append(DisturbanceSign("use", use, f"{who} kept {own:.2f} CPUs busy: {reason}", disturbed))
    if before.steal is not None and after.steal is not None and cores:
        stolen = (after.steal - before.steal) / (wall * cores)
        if stolen > 0:
            sentence = f"the hypervisor gave {stolen:.1%} of the CPU time to others"
            signs.append(DisturbanceSign("steal", stolen, sentence, False))
    if before.throttled is not None and after.throttled is not None and after.throttled > before.throttled:
        times = after.throttled - before.throttled
        sentence = f"the processor was too hot and slowed down {times} time{'s' if times > 1 else ''}: cool it"
        signs.append(DisturbanceSign("throttled", times, sentence, True))
    return signs


def _other_cpus(before: MachineConditions, after: MachineConditions) -> float | None:
    """CPUs that other programs used between two readings, of those that this one may use."""
    wall = after.time - before.time
    if before.busy is None or after.busy is None or wall <= 0:
        return None
    return max(0.0, (after.busy - before.busy - after.cpu_time + before.cpu_time) / wall)


def _mean_runnable(after: MachineConditions) -> float | None:
    """Tasks ready to run, on average over the samples."""
    return sum(after.sampled) / len(after.sampled) if after.sampled else None


def stored_conditions(before: MachineConditions, after: MachineConditions, signs: list[DisturbanceSign]) -> Conditions:
    """The conditions of a run for `run.json`, from two readings and the signs between them."""
    values = {sign.name: sign.value for sign in signs}
    return Conditions(
        load=[before.load, after.load],
        wall_s=after.time - before.time,
        cpu_s=after.cpu_time - before.cpu_time,
        runnable=_mean_runnable(after),
        steal=values.get("steal"),
        others=values.get("others"),
        other_cpus=_other_cpus(before, after),
        use=values.get("use"),
        throttled=values.get("throttled"),
        signs=[sign.name for sign in signs if sign.contaminated],
    )
