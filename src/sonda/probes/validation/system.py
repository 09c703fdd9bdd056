"""Trials of what the operating system counts, and of second sources that count a whole command."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sonda.probes.counters.command_counter import CommandCounter, KernelCounter
from sonda.probes.counters.perf_events import explain_refusal, paranoid_level
from sonda.probes.counters.perf_stat import PerfStat
from sonda.probes.machine.environment import package_version
from sonda.probes.validation.child import ask_child
from sonda.probes.validation.microbenchmarks import BETWEEN, FIRST, MOVES, SECOND, SLEEPS, touching
from sonda.probes.validation.trust import (
    CLOCK_TOLERANCE,
    DIFFERS,
    MISSING,
    PAGES_FILLED,
    TOLERANCE,
    TRUSTED,
    Trial,
    huge_pages,
    judge_counts,
    judge_pair,
    judge_slope,
)
from sonda.record.errors import SondaError
from sonda.record.progress import Say

FILLS = ((1, "main", "early"), (2, "main", "early"), (8, "main", "early"), (2, "other", "early"), (8, "main", "late"))
"""Threads, from which Python thread, and whether counters were opened before PyTorch started its threads or after."""
TURNS = 20
COMMAND_PAGES = (4096, 4096 + PAGES_FILLED)
COMMAND_TIMES = 5
Ask = Callable[..., dict[str, Any]]


def system_trials(say: Say, times: int = 100, ask: Ask = ask_child, root: Path = Path("/")) -> Iterator[Trial]:
    """Page faults of fills, sums of phases, child processes, processor time, switches and migrations."""
    reason = huge_pages(root)
    if reason:
        yield Trial("os", "page faults", MISSING, reason=reason,
                    remedy="as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")  # fmt: skip
    else:
        yield from fill_trials(say, times, ask, root)
        yield from sums_trials(say, ask)
        yield from children_trials(ask)
    yield from clock_trials(say, ask)


def fill_trials(say: Say, times: int, ask: Ask, root: Path = Path("/")) -> Iterator[Trial]:
    """Every thread of a pool is counted: 64 MiB are 16,384 pages, whoever fills them."""
    if not package_version("torch"):
        yield Trial("os", "page faults of filling 64 MiB", MISSING, reason="PyTorch is not installed",
                    remedy="install it with: pip install 'sonda[torch]'")  # fmt: skip
        return
    for threads, where, when in FILLS:
        check = f"page faults of filling 64 MiB, {threads} thread{'s' * (threads > 1)}"
        check += ", from a second Python thread" if where == "other" else ""
        check += ", counters opened late" if when == "late" else ""
        say(f"counting {check}")
        request = {"threads": threads, "where": where, "when": when, "times": times}
        found = ask("fill", request, environment={"OMP_NUM_THREADS": str(threads)})
        trial = judge_counts("os", check, found["counted"], PAGES_FILLED, 1)
        if found["source"]["source"] != "perf":
            _, remedy = explain_refusal(found["source"]["errno"], paranoid_level(root), False, None, kernel=True)
            trial = replace(trial, reason=", ".join([*([trial.reason] if trial.reason else []), "with getrusage"]),
                            remedy=remedy)  # fmt: skip
        yield trial


def sums_trials(say: Say, ask: Ask) -> Iterator[Trial]:
    """Phases and what lies between them, against a counter that was opened independently."""
    say("counting phases and what lies between them")
    try:
        found = ask("sums", {"times": TURNS})
    except SondaError as error:
        yield Trial("os", "sums of phases", MISSING, reason=error.cause, remedy=error.remedy)
        return
    phases, whole = found["phases"], found["whole"]
    yield judge_counts("os", "page faults of a phase", [one for one in phases if one < (FIRST + SECOND) / 2], FIRST, 1)
    yield judge_counts("os", "page faults of a phase", [one for one in phases if one > (FIRST + SECOND) / 2], SECOND, 1)
    inside = sum(phases)
    check = f"phases ({inside:,.0f}) and unattributed ({found['collector'] - inside:,.0f}) against a counter around all"
    yield judge_pair("os", check, found["collector"], whole, more=1)
    # What the program did between its phases is unattributed, a boundary's own pages besides: one each at the most.
    between = found["collector"] - inside
    yield judge_counts("os", "page faults outside of phases", [between], TURNS * BETWEEN, 4 * TURNS)


def children_trials(ask: Ask) -> Iterator[Trial]:
    try:
        found = ask("children", {"pages": PAGES_FILLED})
    except SondaError as error:
        yield Trial("os", "child processes", MISSING, reason=error.cause, remedy=error.remedy)
        return
    state = TRUSTED if found["out"] <= 1000 and found["in"] >= PAGES_FILLED else DIFFERS
    yield Trial("os", "child processes left out, and counted where they are wanted", state,
                f"0, {PAGES_FILLED:,} or more", f"{found['out']:,}, {found['in']:,}", 0.0 if state == TRUSTED else None,
                "the interpreter's own start counts too")  # fmt: skip


def clock_trials(say: Say, ask: Ask) -> Iterator[Trial]:
    say("counting time, switches and migrations")
    try:
        found = ask("clock", {})
    except SondaError as error:
        yield Trial("os", "task clock", MISSING, reason=error.cause, remedy=error.remedy)
        return
    sleep = found["sleep"]
    yield judge_clock(found["busy"])
    if "context_switches" not in sleep:
        cause, remedy = explain_refusal(errno.EACCES, paranoid_level(), False, None, kernel=True)
        yield Trial("os", "migrations", MISSING, reason=cause, remedy=remedy)
        return
    yield judge_pair("os", f"context switches of {SLEEPS} sleeps against getrusage", sleep["context_switches"],
                     sleep["getrusage_switches"], more=1)  # fmt: skip
    # How many there must be is not known: a timer may expire before its thread has left the processor. But some.
    if not sleep["getrusage_switches"]:
        yield Trial("getrusage", f"context switches of {SLEEPS} sleeps", DIFFERS, "some", "0", 1.0)
    if "move" in found:
        # The scheduler may move a thread once more by itself.
        yield judge_counts("os", f"migrations of {MOVES} forced moves", [found["move"]["cpu_migrations"]], MOVES, 1)
    else:
        yield Trial("os", "migrations", MISSING, reason="only one processor may be used")


def judge_clock(windows: Sequence[Mapping[str, int]]) -> Trial:
    """The task clock against the clock of the process, in windows from which the hypervisor took nothing.

    The task clock has stolen time and the other has not: where time was stolen nobody knows what must come out.
    """
    check = "ns of task clock against the clock of the process"
    whole = [one for one in windows if not one["stolen"]]
    most = max((one["task_clock"] / one["process_time"] - 1 for one in windows if one["stolen"]), default=0.0)
    left_out = f"{len(windows) - len(whole)} of {len(windows)} windows left out: the hypervisor took time, which the "
    left_out += f"task clock has in it (up to {100 * most:.2g} % more)"
    if not whole:
        return Trial("os", check, MISSING, reason=left_out, remedy="use a machine whose processors nobody else has")
    middle = sorted(whole, key=lambda one: one["task_clock"] / one["process_time"])[len(whole) // 2]
    trial = judge_pair("os", check, middle["task_clock"], middle["process_time"], CLOCK_TOLERANCE)
    return replace(trial, reason=left_out) if len(whole) < len(windows) else trial


# ---- whole commands -----------------------------------------------------------------------------------------------

EACH = "page"


def source_trials(
    say: Say, ask: Ask = ask_child, counters: tuple[CommandCounter, ...] | None = None, root: Path = Path("/")
) -> Iterator[Trial]:
    """The same command counted from outside by every source that is there: its faults grow by one a page."""
    reason = huge_pages(root)
    for counter in counters if counters is not None else (KernelCounter(), PerfStat()):
        probe = "os" if counter.name == KernelCounter.name else counter.name
        check = "page faults of a command, from outside"
        state = counter.state()
        if state.state != "ok" or reason:
            yield Trial(probe, check, MISSING, reason=reason or state.reason, remedy="" if reason else state.remedy)
            continue
        say(f"counting a command with {counter.name}")
        try:
            sizes = [(pages, _faults(counter, pages)) for _ in range(COMMAND_TIMES) for pages in COMMAND_PAGES]
        except SondaError as error:
            yield Trial(probe, check, MISSING, reason=error.cause, remedy=error.remedy)
            continue
        yield judge_slope(probe, check, sizes, 1.0, TOLERANCE, EACH)
    if reason:
        return
    sizes = [(pages, _waited(pages)) for _ in range(COMMAND_TIMES) for pages in COMMAND_PAGES]
    yield judge_slope("getrusage", "page faults of a command", sizes, 1.0, TOLERANCE, EACH)
    yield from papi_trials(say, ask)


def _faults(counter: CommandCounter, pages: int) -> float:
    found = counter.count(touching(pages), ["page-faults"])
    if "page-faults" not in found.counts:
        raise SondaError(found.missing["page-faults"], "run it as root, or lower kernel.perf_event_paranoid")
    return found.counts["page-faults"].value


def _waited(pages: int) -> int:
    child = subprocess.Popen(touching(pages))
    usage = os.wait4(child.pid, 0)[2]
    child.returncode = 0  # waited for already
    return usage.ru_minflt + usage.ru_majflt


def papi_trials(say: Say, ask: Ask) -> Iterator[Trial]:
    say("counting with papi")
    try:
        found = ask("papi", {"times": COMMAND_TIMES, "pages": COMMAND_PAGES})
    except SondaError as error:
        yield Trial("papi", "page faults", MISSING, reason=error.cause, remedy=error.remedy)
        return
    for name, check in (("command", "page faults of a command"), ("here", "page faults of the calling thread")):
        if name in found:
            sizes = [(float(pages), float(count)) for pages, count in found[name]]
            yield judge_slope("papi", check, sizes, 1.0, TOLERANCE, EACH)
        else:
            yield Trial("papi", check, MISSING, reason=found.get(f"{name}_reason") or found["reason"],
                        remedy=found["remedy"])  # fmt: skip
