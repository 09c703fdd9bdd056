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
from sonda.probes.validation.microbenchmarks import BETWEEN, FIRST, MOVES, SECOND, SLEEPS, touch_command
from sonda.probes.validation.trust import (
    CLOCK_TOLERANCE,
    DIFFERS,
    MISSING,
    PAGES_FILLED,
    TOLERANCE,
    TRUSTED,
    ProbeTrial,
    huge_pages_reason,
    judge_counts,
    judge_pair,
    judge_slope,
)
from sonda.record.errors import SondaError, install_command
from sonda.record.progress import Say

FILLS = ((1, "main", "early"), (2, "main", "early"), (8, "main", "early"), (2, "other", "early"), (8, "main", "late"))
"""Threads, from which Python thread, and whether counters were opened before PyTorch started its threads or after."""
TURNS = 20
COMMAND_PAGES = (4096, 4096 + PAGES_FILLED)
COMMAND_TIMES = 5
Ask = Callable[..., dict[str, Any]]


def system_trials(say: Say, times: int = 100, ask: Ask = ask_child, root: Path = Path("/")) -> Iterator[ProbeTrial]:
    """Page faults of fills, sums of phases, child processes, processor time, switches and migrations."""
    reason = huge_pages_reason(root)
    if reason:
        yield ProbeTrial("os", "page faults", MISSING, reason=reason,
                    remedy="as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")  # fmt: skip
    else:
        yield from fill_trials(say, times, ask, root)
        yield from sums_trials(say, ask)
        yield from children_trials(ask)
    yield from clock_trials(say, ask)


def fill_trials(say: Say, times: int, ask: Ask, root: Path = Path("/")) -> Iterator[ProbeTrial]:
    """Page faults of filling 64 MiB: 16,384 pages, whichever threads of a pool fill them."""
    if not package_version("torch"):
        yield ProbeTrial("os", "page faults of filling 64 MiB", MISSING, reason="PyTorch is not installed",
                    remedy=f"install it with: {install_command('torch')}")  # fmt: skip
        return
    for threads, where, when in FILLS:
        check = f"page faults of filling {PAGES_FILLED // 256} MiB, {threads} thread{'s' * (threads > 1)}"
        check += ", from a second Python thread" if where == "other" else ""
        check += ", counters opened late" if when == "late" else ""
        say(f"counting {check}")
        request = {"threads": threads, "where": where, "when": when, "times": times, "pages": PAGES_FILLED}
        answer = ask("fill", request, environment={"OMP_NUM_THREADS": str(threads)})
        trial = judge_counts("os", check, answer["counted"], PAGES_FILLED, 1)
        if answer["source"]["source"] != "perf":
            _, remedy = explain_refusal(answer["source"]["errno"], paranoid_level(root), False, None, kernel=True)
            trial = replace(trial, reason=", ".join([*([trial.reason] if trial.reason else []), "with getrusage"]),
                            remedy=remedy)  # fmt: skip
        yield trial


def sums_trials(say: Say, ask: Ask) -> Iterator[ProbeTrial]:
    """Phases and what lies between them, against a counter that was opened independently."""
    say("counting phases and what lies between them")
    try:
        answer = ask("sums", {"times": TURNS})
    except SondaError as error:
        yield ProbeTrial("os", "sums of phases", MISSING, reason=error.cause, remedy=error.remedy)
        return
    phases, whole = answer["phases"], answer["whole"]
    middle = (FIRST + SECOND) / 2
    yield judge_counts("os", "page faults of a phase", [count for count in phases if count < middle], FIRST, 1)
    yield judge_counts("os", "page faults of a phase", [count for count in phases if count > middle], SECOND, 1)
    inside = sum(phases)
    between = answer["collector"] - inside
    check = f"phases ({inside:,.0f}) and unattributed ({between:,.0f}) against a counter around all"
    yield judge_pair("os", check, answer["collector"], whole, more=1)
    # What the program does between its phases is unattributed, and one page of each boundary at the most.
    yield judge_counts("os", "page faults outside of phases", [between], TURNS * BETWEEN, 4 * TURNS)


def children_trials(ask: Ask) -> Iterator[ProbeTrial]:
    try:
        answer = ask("children", {"pages": PAGES_FILLED})
    except SondaError as error:
        yield ProbeTrial("os", "child processes", MISSING, reason=error.cause, remedy=error.remedy)
        return
    state = TRUSTED if answer["out"] <= 1000 and answer["in"] >= PAGES_FILLED else DIFFERS
    yield ProbeTrial("os", "child processes left out, and counted where they are wanted", state,
                f"0, {PAGES_FILLED:,} or more", f"{answer['out']:,}, {answer['in']:,}",
                0.0 if state == TRUSTED else None, "the interpreter's own start counts too")  # fmt: skip


def clock_trials(say: Say, ask: Ask) -> Iterator[ProbeTrial]:
    say("counting time, switches and migrations")
    try:
        answer = ask("clock", {})
    except SondaError as error:
        yield ProbeTrial("os", "task clock", MISSING, reason=error.cause, remedy=error.remedy)
        return
    sleep = answer["sleep"]
    yield judge_clock(answer["busy"])
    if "context_switches" not in sleep:
        cause, remedy = explain_refusal(errno.EACCES, paranoid_level(), False, None, kernel=True)
        yield ProbeTrial("os", "migrations", MISSING, reason=cause, remedy=remedy)
        return
    yield judge_pair("os", f"context switches of {SLEEPS} sleeps against getrusage", sleep["context_switches"],
                     sleep["getrusage_switches"], more=1)  # fmt: skip
    # Their number is not known, but there are some: a timer may expire before its thread has left the processor.
    if not sleep["getrusage_switches"]:
        yield ProbeTrial("getrusage", f"context switches of {SLEEPS} sleeps", DIFFERS, "some", "0", 1.0)
    if "move" in answer:
        # The scheduler may move a thread once more by itself.
        yield judge_counts("os", f"migrations of {MOVES} forced moves", [answer["move"]["cpu_migrations"]], MOVES, 1)
    else:
        yield ProbeTrial("os", "migrations", MISSING, reason="only one processor may be used")


def judge_clock(windows: Sequence[Mapping[str, int]]) -> ProbeTrial:
    """The task clock against the clock of the process, in windows from which the hypervisor took nothing.

    The task clock includes stolen time and the clock of the process does not: where time was stolen, they differ.
    """
    check = "ns of task clock against the clock of the process"
    whole = [window for window in windows if not window["stolen"]]
    most = max(
        (window["task_clock"] / window["process_time"] - 1 for window in windows if window["stolen"]), default=0.0
    )
    left_out = f"{len(windows) - len(whole)} of {len(windows)} windows left out: the hypervisor took time, which the "
    left_out += f"task clock has in it (up to {100 * most:.2g} % more)"
    if not whole:
        return ProbeTrial(
            "os", check, MISSING, reason=left_out, remedy="use a machine whose processors nobody else has"
        )
    middle = sorted(whole, key=lambda window: window["task_clock"] / window["process_time"])[len(whole) // 2]
    trial = judge_pair("os", check, middle["task_clock"], middle["process_time"], CLOCK_TOLERANCE)
    return replace(trial, reason=left_out) if len(whole) < len(windows) else trial


# ---- whole commands -----------------------------------------------------------------------------------------------

EACH = "page"


def source_trials(
    say: Say, ask: Ask = ask_child, counters: tuple[CommandCounter, ...] | None = None, root: Path = Path("/")
) -> Iterator[ProbeTrial]:
    """One command counted from outside by every source of this machine: its faults grow by one for each page."""
    reason = huge_pages_reason(root)
    for counter in counters if counters is not None else (KernelCounter(), PerfStat()):
        probe = "os" if counter.name == KernelCounter.name else counter.name
        check = "page faults of a command, from outside"
        state = counter.state()
        if state.state != "ok" or reason:
            yield ProbeTrial(
                probe, check, MISSING, reason=reason or state.reason, remedy="" if reason else state.remedy
            )
            continue
        say(f"counting a command with {counter.name}")
        try:
            sizes = [(pages, _count_faults(counter, pages)) for _ in range(COMMAND_TIMES) for pages in COMMAND_PAGES]
        except SondaError as error:
            yield ProbeTrial(probe, check, MISSING, reason=error.cause, remedy=error.remedy)
            continue
        yield judge_slope(probe, check, sizes, 1.0, TOLERANCE, EACH)
    if reason:
        return
    sizes = [(pages, _faults_by_wait4(pages)) for _ in range(COMMAND_TIMES) for pages in COMMAND_PAGES]
    yield judge_slope("getrusage", "page faults of a command", sizes, 1.0, TOLERANCE, EACH)
    yield from papi_trials(say, ask)


def _count_faults(counter: CommandCounter, pages: int) -> float:
    counted = counter.count(touch_command(pages), ["page-faults"])
    if "page-faults" not in counted.counts:
        raise SondaError(counted.missing["page-faults"], "run it as root, or lower kernel.perf_event_paranoid")
    return counted.counts["page-faults"].value


def _faults_by_wait4(pages: int) -> int:
    child = subprocess.Popen(touch_command(pages))
    usage = os.wait4(child.pid, 0)[2]
    child.returncode = 0  # waited for already
    return usage.ru_minflt + usage.ru_majflt


def papi_trials(say: Say, ask: Ask) -> Iterator[ProbeTrial]:
    say("counting with papi")
    try:
        answer = ask("papi", {"times": COMMAND_TIMES, "pages": COMMAND_PAGES})
    except SondaError as error:
        yield ProbeTrial("papi", "page faults", MISSING, reason=error.cause, remedy=error.remedy)
        return
    for name, check in (("command", "page faults of a command"), ("here", "page faults of the calling thread")):
        if name in answer:
            sizes = [(float(pages), float(count)) for pages, count in answer[name]]
            yield judge_slope("papi", check, sizes, 1.0, TOLERANCE, EACH)
        else:
            yield ProbeTrial("papi", check, MISSING, reason=answer.get(f"{name}_reason") or answer["reason"],
                        remedy=answer["remedy"])  # fmt: skip
