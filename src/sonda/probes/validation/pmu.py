"""Trials of the PMU: loops, a product and a copy, whose instructions, operations and misses are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sonda.frameworks.collector.counters.perf_event import TYPE_HARDWARE, TYPE_RAW, Event
from sonda.probes.callgrind.valgrind import read_cache_geometry
from sonda.probes.counters.pmu import CountingPlan, plan_counting
from sonda.probes.counters.pmu_events import GENERIC
from sonda.probes.machine.processor import is_guest, processor_identity, read_cpuinfo
from sonda.probes.validation.child import ask_child
from sonda.probes.validation.microbenchmarks import LINE
from sonda.probes.validation.trust import CACHE_TOLERANCE, MISSING, TOLERANCE, ProbeTrial, judge_slope, refused_trial
from sonda.record.errors import SondaError
from sonda.record.progress import Say

TYPE_CACHE = 3
"""PERF_TYPE_HW_CACHE: the cache, the access << 8, hit or miss << 16; Linux include/uapi/linux/perf_event.h."""
INSTRUCTIONS = Event("instructions", TYPE_HARDWARE, GENERIC["instructions"])
BRANCHES = Event("branches", TYPE_HARDWARE, GENERIC["branches"])
MISSES = Event("cache_misses", TYPE_HARDWARE, GENERIC["cache-misses"])
LOADS, STORES = Event("l1_dcache_loads", TYPE_CACHE, 0), Event("l1_dcache_stores", TYPE_CACHE, 1 << 8)

FLOP_EVENTS: dict[str, tuple[tuple[Event, int], ...]] = {
    "GenuineIntel": (
        (Event("scalar_single", TYPE_RAW, 0x02C7), 1),
        (Event("128b_packed_single", TYPE_RAW, 0x08C7), 4),
        (Event("256b_packed_single", TYPE_RAW, 0x20C7), 8),
        (Event("512b_packed_single", TYPE_RAW, 0x80C7), 16),
    ),
    "AuthenticAMD": ((Event("fp_ret_sse_avx_ops_all", TYPE_RAW, 0x0F03), 1),),
}
"""What counts single-precision operations, by vendor, and how many each is. Intel: FP_ARITH_INST_RETIRED, in which a
fused multiply-add counts twice (intel/perfmon, SKX to GNR). AMD: retired FLOPs (Linux amdzen3/floating-point.json);
the kernel pairs the counter that it needs beside."""

TURNS = (1_000_000, 2_000_000)
SIDES = (256, 512)
TIMES = 9
LARGEST_COPY = 256 << 20
Ask = Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class KnownWork:
    """Work that one group of events counts, and the count that must come out: `each` per `unit` of size."""

    check: str
    loop: str
    events: tuple[Event, ...]
    sizes: tuple[int, ...]
    each: float
    unit: str
    tolerance: float = TOLERANCE
    weights: tuple[int, ...] = ()
    """What a count of each event is worth; unless given, the first is worth 1 and the others nothing."""
    amount: Callable[[int], float] = float
    """Units of the work by its size."""
    note: str = ""


def known_work(vendor: str, cache: int) -> list[KnownWork]:
    """The work that a processor of this vendor is tried with; `cache` is the size of its last level, bytes."""
    copied = min(LARGEST_COPY, 4 * cache)
    works = [
        KnownWork("instructions of a loop", "count", (INSTRUCTIONS,), TURNS, 2.0, "turn"),
        KnownWork("branches of a loop", "count", (BRANCHES,), TURNS, 1.0, "turn"),
        KnownWork("instructions of a loop with a load and a store", "memory", (INSTRUCTIONS,), TURNS, 4.0, "turn"),
        KnownWork("loads of a loop", "memory", (LOADS,), TURNS, 1.0, "turn"),
        KnownWork("stores of a loop", "memory", (STORES,), TURNS, 1.0, "turn"),
    ]
    if vendor in FLOP_EVENTS:
        events, weights = zip(*FLOP_EVENTS[vendor], strict=True)
        works.append(KnownWork("floating-point operations of a product", "product", events, SIDES, 1.0, "FLOP",
                           weights=weights, amount=lambda side: 2.0 * side**3))  # fmt: skip
    works.append(
        KnownWork(
            "last-level misses of a copy larger than the cache",
            "copy",
            (MISSES,),
            (copied // 2, copied),
            2 / LINE,
            "byte",
            CACHE_TOLERANCE,
            note="prefetching and what else the event counts are in it",
        )
    )
    return works


def pmu_trials(
    say: Say, ask: Ask = ask_child, root: Path = Path("/"), make_plan: Callable[[], CountingPlan] = plan_counting
) -> Iterator[ProbeTrial]:
    """Trials of every known work, by events of its own; then of every group of Top-Down, by the instructions of a loop.

    `ask` asks a child process, `make_plan` plans what the PMU counts.
    """
    blocks = read_cpuinfo(root)
    block = blocks[0] if blocks else {}
    works = known_work(processor_identity(block).vendor or "", read_cache_geometry(root).LL.bytes)
    try:
        groups = make_plan().groups
    except SondaError as error:
        for work in works:
            yield ProbeTrial("pmu", work.check, MISSING, reason=error.cause, remedy=error.remedy)
        return
    say("counting known work with the PMU")
    for work in works:
        yield _try_work(work, ask, is_guest(block), root)
    for number, group in enumerate(groups, start=1):
        check = f"instructions of a loop, Top-Down group {number} of {len(groups)}"
        if any(event.name == "instructions" for event in group):
            weights = tuple(int(event.name == "instructions") for event in group)
            work = KnownWork(check, "count", tuple(group), TURNS, 2.0, "turn", weights=weights)
            yield _try_work(work, ask, is_guest(block), root)


def _try_work(work: KnownWork, ask: Ask, virtual: bool | None, root: Path) -> ProbeTrial:
    request = {"events": [event._asdict() for event in work.events], "sizes": {work.loop: work.sizes}, "times": TIMES}
    try:
        answer = ask("hardware", request, environment={"OMP_NUM_THREADS": "1"})
    except SondaError as error:
        return ProbeTrial("pmu", work.check, MISSING, reason=error.cause, remedy=error.remedy)
    if "errno" in answer:
        missing = refused_trial("pmu", work.check, answer["errno"], True, virtual, root)
        return replace(missing, reason=f"{answer['event']}: {missing.reason}" if answer["event"] else missing.reason)
    return judge_work(work, answer["counted"][work.loop])


def judge_work(work: KnownWork, counted: Sequence[Sequence[Any]]) -> ProbeTrial:
    """Judge rows of [size, time enabled, time running, counts].

    Counts of a part of the time are scaled up, and the trial says so.
    """
    sizes = []
    least = 1.0
    for size, enabled, running, counts in counted:
        if not running:
            continue
        share = running / enabled if enabled else 1.0
        least = min(least, share)
        sizes.append((work.amount(size), _weigh_counts(work, counts) / share))
    if not sizes:
        return ProbeTrial("pmu", work.check, MISSING, reason="the counters were never free",
                     remedy="stop other profilers, and the NMI watchdog: sysctl kernel.nmi_watchdog=0")  # fmt: skip
    trial = judge_slope("pmu", work.check, sizes, work.each, work.tolerance, work.unit)
    shared = f"estimated: counted {100 * least:.0f} % of the time" if least < 1 else ""
    return replace(trial, reason="; ".join(reason for reason in (shared, work.note, trial.reason) if reason))


def _weigh_counts(work: KnownWork, counts: Sequence[float]) -> float:
    return sum(weight * count for weight, count in zip(work.weights or (1,), counts, strict=False))
