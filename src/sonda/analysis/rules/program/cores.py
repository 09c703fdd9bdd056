"""Who held the cores while threads of a step were ready to run: other programs, or the program itself.

Threads of the process ran for `ran` and waited for a processor for `waited` of a step that lasted `lasted`, on `cores`
cores. A core that is free runs a thread that is ready, so while a thread waited, every core was held. The process's own
threads held `ran` of the cores' time; of the rest, which is lasted x cores - ran, no more than that was held by others.
So of `waited`, min(waited, lasted x cores - ran) was waited for others, and what is left for its own threads.
"""

from __future__ import annotations

from dataclasses import dataclass

from sonda.analysis.rules import remedies
from sonda.analysis.rules.advice import Change, TryChange, UseFewerThreads, UseFewerWorkers
from sonda.analysis.rules.limit_findings import HeldByOthers, Oversubscribed
from sonda.analysis.rules.work import WORTH, data_share, data_share_of_all, first_part
from sonda.analysis.summary import CausePlace, PartSummary, Remedy, Summary, Value, Verdict
from sonda.record.machine import Conditions
from sonda.record.target import RanksTarget


@dataclass(frozen=True)
class CoreUse:
    """How threads of a process and the cores came together; times in ns."""

    ran: float
    waited: float
    lasted: float
    cores: int

    @property
    def wanted(self) -> float:
        """Time in which threads ran or were ready to."""
        return self.ran + self.waited

    @property
    def for_others(self) -> float:
        """The part of it that they waited for what is no thread of the process."""
        return min(self.waited, max(self.lasted * self.cores - self.ran, 0.0)) / self.wanted

    @property
    def for_own(self) -> float:
        """The part of it that they waited for each other."""
        return self.waited / self.wanted - self.for_others


def others(summary: Summary) -> Verdict | None:
    """Fires when threads wait a tenth of their time or more for cores that other programs hold.

    What the step would take alone is at most the time taken less that part: threads that spin meanwhile, waiting for
    one that is not run, add to the processor time, and not to what the step needs.
    """
    part, use = first_part(summary), core_use(summary)
    beside = _other_cpus(summary.machine.conditions)
    if part is None or use is None or use.for_others < WORTH or beside < max(WORTH, _own_processes(summary)):
        return None
    share = Value(use.for_others, "1", "derived")
    alone = Value((part.step.value or 0.0) * (1 - use.for_others), "ns", "derived")
    taken = Value(beside, "1", "measured")
    return Verdict(
        kind="contention",
        finding=HeldByOthers(share, part.step, alone, use.cores, taken),
        evidence={"share": share, "alone": alone, "other_cpus": taken},
        remedies=(Remedy(TryChange(Change.CLOSE_PROGRAMS)),),
        share=use.for_others,
    )


def own(summary: Summary) -> Verdict | None:
    """Fires when threads wait a tenth of their time or more for cores that the program itself holds: its other threads,
    or its other processes. Not where the step waits for a loader: fewer workers would make it wait longer."""
    use = core_use(summary)
    if use is None:
        return None
    processes = use.for_own < WORTH
    part_waited = use.for_others if processes else use.for_own
    held = max(WORTH, _other_cpus(summary.machine.conditions))
    if part_waited < WORTH or (processes and (_own_processes(summary) <= held or _awaits_loader(summary))):
        return None
    share, ready = Value(part_waited, "1", "derived"), Value(use.wanted / use.lasted, "1", "derived")
    return Verdict(
        kind="oversubscription",
        finding=Oversubscribed(share, ready, use.cores, processes, (summary.target.threads or 0) > use.cores),
        evidence={"share": share, "ready": ready},
        remedies=remedies.remedies(summary, lambda run: _fewer(run, use.cores, processes)),
        share=part_waited,
        place=None if processes else _threads_place(summary),
    )


def core_use(summary: Summary) -> CoreUse | None:
    """Of the part that verdicts speak of, by its steps, or where these are too short to ask in them by the process.

    None where nobody counted, on a GPU, whose steps do not wait for threads, and of ranks, each of which waits for
    others.
    """
    part, cores = first_part(summary), remedies.count_cores(summary)
    on_gpu = summary.target.device.startswith("cuda") or (part is not None and part.device is not None)
    if part is None or not cores or on_gpu or isinstance(summary.target, RanksTarget):
        return None
    use = _of_step(part, cores) or _of_process(summary.machine.conditions, cores)
    return use if use is not None and use.wanted and use.lasted else None


def _of_step(part: PartSummary, cores: int) -> CoreUse | None:
    times, lasted = part.core_times, part.step.value
    return CoreUse(times.ran * lasted, times.waited * lasted, lasted, cores) if times is not None and lasted else None


def _of_process(conditions: Conditions | None, cores: int) -> CoreUse | None:
    thread_times = conditions.thread_times if conditions is not None else None
    if thread_times is None:
        return None
    return CoreUse(float(thread_times.ran_ns), float(thread_times.waited_ns), float(thread_times.lasted_ns), cores)


def _other_cpus(conditions: Conditions | None) -> float:
    """CPUs that other programs used; of a run that kept them only where they were too many, those; 0 where nobody
    knows."""
    if conditions is None:
        return 0.0
    return float(conditions.other_cpus if conditions.other_cpus is not None else conditions.others or 0.0)


def _own_processes(summary: Summary) -> float:
    """CPUs that other processes of the program used, on average over the run; 0 where nobody knows."""
    conditions = summary.machine.conditions
    if conditions is None or not conditions.wall_s or conditions.cpu_s is None or conditions.thread_times is None:
        return 0.0
    times = conditions.thread_times
    of_process = (float(times.ran_ns) + float(times.ran_before_ns)) / 1e9
    return max(float(conditions.cpu_s) - of_process, 0.0) / float(conditions.wall_s)


def _awaits_loader(summary: Summary) -> bool:
    """Whether the step waits for batches of a loader, which prepares them as fast as it can."""
    part = first_part(summary)
    return part is not None and max(data_share(part), data_share_of_all(part)) >= WORTH


def busy_besides(summary: Summary) -> float:
    """CPUs that are used by others than the process that steps."""
    return _own_processes(summary) + _other_cpus(summary.machine.conditions)


def _threads_place(summary: Summary) -> CausePlace | None:
    """Where the program chose its number of threads; None where it did not."""
    file, _, line = (summary.workload.threads_line or "").rpartition(":")
    return CausePlace(file, int(line)) if line.isdigit() else None


def _fewer(summary: Summary, cores: int, processes: bool) -> Remedy:
    if processes:
        return Remedy(UseFewerWorkers(cores, summary.workload.workers or 0))
    threads = summary.target.threads or 0
    options = ("--threads", str(cores)) if threads > cores else ()
    return Remedy(UseFewerThreads(cores, summary.workload.framework or "torch", threads), options)
