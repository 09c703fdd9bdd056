"""Places samples: what each stands for, what the thread did, and the step, phase and layer that were open there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sonda.analysis.code.summary import Doing
from sonda.analysis.span_tree import nearest
from sonda.record.spans import Spans, Words
from sonda.record.stacks import INTERPRETER, USER, Frames, StackSamples

NEAR_NS = 1_000_000
"""Python code that led to a line for a shorter time than this stays with the line: it is near. A thread is made to give
up the lock after five times as long."""
IDLE = 0.1
"""A thread that ran for less of the time since its last sample waited, where no system call tells."""
DOING = tuple(Doing)
PYTHON, NATIVE, WAITING = (DOING.index(doing) for doing in (Doing.PYTHON, Doing.NATIVE, Doing.WAITING))


@dataclass(frozen=True)
class Moments:
    """Moments at which it is known what a thread did, each with the time that it stands for. A sample gives two: when
    it was due, and when it was taken. Both have the place of the second."""

    time: np.ndarray
    """ns since the run began."""
    process: np.ndarray
    thread: np.ndarray
    worker: np.ndarray
    stack: np.ndarray
    weight: np.ndarray
    """ns that are nearer to it than to the thread's other moments."""
    ran: np.ndarray
    """ns of these on a processor."""
    doing: np.ndarray
    """Place in `DOING`."""
    call: Words
    """The system call that the thread was in; '' where it was in none, or that is not known."""
    due: np.ndarray
    """Whether it is the moment when a sample was due: the first half, one for each sample."""
    forced: np.ndarray
    """Whether the thread was stopped in the Python code of its stack."""
    led: np.ndarray
    """Whether it ran Python code that led to its stack, and is not in it."""
    collecting: np.ndarray
    """Whether the thread collected garbage for most of the time."""


def weigh_samples(samples: StackSamples) -> Moments:
    """What samples tell of the moments when they were due and when they were taken, and for how much time that stands.

    Where nobody held the lock the two are one. Where a thread had to give it up, it was in the same Python code at
    both, or in one long call. Where it gave up the lock by itself, it ran Python code when the sample was due, and then
    came to what it was seen in: a wait, or native code. The line of that Python code is not known (`led`).
    """
    numbers = samples.numbers
    lasted, late, ran = (numbers[name].astype(np.float64) for name in ("lasted", "late", "ran"))
    # Where the lock was free, being late is nobody's doing but the machine's.
    late = np.where(numbers["waits"] > 0, np.minimum(late, lasted), 0)
    between = (lasted - late) / 2
    order = np.lexsort((numbers["time"], numbers["thread"], numbers["process"]))
    same = (np.diff(numbers["thread"][order]) == 0) & (np.diff(numbers["process"][order]) == 0)
    before = np.full(len(samples), -1, dtype=np.int64)
    before[order[1:][same]] = order[:-1][same]
    fraction = np.minimum(ran / np.maximum(lasted, 1), 1)
    call = samples.words["call"]
    waiting = _find_waiting(samples, fraction)
    held = (late > 0) & (fraction > 0)
    # A thread that has run and does not wait was in Python code when the sampler took the lock from it, or in a
    # function that did not give it up.
    forced = held & (numbers["waits"] > 1) & ~waiting
    led = held & (late >= NEAR_NS) & ~forced
    doing = np.where(waiting, WAITING, np.where(forced, PYTHON, NATIVE))
    # What is nearer to the sample before is that one's.
    weight = np.where(ran > 0, late + between, lasted)
    after = np.zeros(len(samples))
    shared = np.where(ran > 0, between, 0)
    after[before[before >= 0]] = shared[before >= 0]
    words = call.words if "" in call.words else (*call.words, "")
    calls = np.concatenate((np.where(held, words.index(""), call.codes), call.codes)).astype(np.int32)
    twice = {name: np.tile(numbers[name], 2) for name in ("process", "thread", "worker")}
    weights = np.concatenate((weight, after))
    return Moments(
        np.tile(numbers["time"], 2), twice["process"], twice["thread"],
        twice["worker"], np.tile(numbers["stack"], 2), weights, weights * np.tile(fraction, 2),
        np.concatenate((np.where(held, PYTHON, doing), doing)), Words(calls, words),
        np.repeat((True, False), len(samples)), np.tile(forced, 2),
        np.concatenate((led, np.zeros(len(samples), dtype=bool))),
        np.tile(2 * numbers["collected"] > lasted, 2),
    )  # fmt: skip


def _find_waiting(samples: StackSamples, fraction: np.ndarray) -> np.ndarray:
    """Which threads waited when their samples were taken. `fraction` is the part of the time that each ran."""
    call = samples.words["call"]
    blocked = ~call.equal("")
    if not blocked.any():
        return fraction < IDLE  # the system does not tell what threads are in
    # A thread that has run and wants the interpreter's lock back was in Python code.
    blocked &= ~(call.equal(INTERPRETER) & (fraction >= IDLE))
    # A thread that is mostly blocked at a place, and is not now, is about to be or was until now: on a crowded machine
    # the sampler is late.
    stack = samples.numbers["stack"] + 1
    often = np.bincount(stack, weights=blocked) > 0.5 * np.bincount(stack)
    waiting: np.ndarray = blocked | often[stack]
    return waiting


def find_python(moments: Moments, group: np.ndarray) -> Moments:
    """The same with a likely stack for Python code that is known to have run, and not where (`led`).

    That is where the thread was last stopped in Python code in the same `group` (a number for each moment: the phase
    that was open): a program repeats itself, so that each place is taken as often as it is met. Before the first such
    place it is the next one; without any the code stays with the line that it led to.
    """
    stack = moments.stack.copy()
    order = np.lexsort((moments.time, group, moments.thread, moments.process))
    keys = np.column_stack((moments.process, moments.thread, group))[order]
    begins = np.concatenate(([True], (np.diff(keys, axis=0) != 0).any(axis=1)))[: len(order)]
    place = np.arange(len(order))
    first = np.maximum.accumulate(np.where(begins, place, 0)) if len(order) else place
    stopped = moments.forced[order]
    last = np.maximum.accumulate(np.where(stopped, place, -1)) if len(order) else place
    following = np.minimum.accumulate(np.where(stopped, place, len(order))[::-1])[::-1] if len(order) else place
    beyond = np.append(np.flatnonzero(begins), len(order))[np.cumsum(begins)] if len(order) else place
    chosen = np.where(last >= first, last, np.where(following < beyond, following, -1))
    led = moments.led[order] & (chosen >= 0)
    stack[order[led]] = moments.stack[order[chosen[led]]]
    return replace(moments, stack=stack)


@dataclass(frozen=True)
class OpenSpans:
    """What was open in a thread at some moments: rows of spans, -1 for none."""

    step: np.ndarray
    phase: np.ndarray
    layer: np.ndarray


def find_open(spans: Spans, thread: int, moments: np.ndarray) -> OpenSpans:
    """The step, phase and innermost layer that were open in a thread at each moment (ns since the run began)."""
    kinds = {kind: spans.where(kind=kind) for kind in ("step", "phase", "layer")}
    nested = kinds["step"] | kinds["phase"] | kinds["layer"]
    rows = np.flatnonzero(nested & (spans.number("thread") == thread))
    parent, start = spans.number("parent"), spans.number("start")
    end = start + spans.number("duration")
    around = nearest(np.where(parent >= 0, parent, -1), nested)
    at = np.searchsorted(start[rows], moments, "right") - 1
    row = np.where(at >= 0, rows[np.maximum(at, 0)], -1) if len(rows) else np.full(len(moments), -1, dtype=np.int64)
    # The span that began last may have ended: then one of those around it is open.
    for _ in range(len(spans)):
        ended = (row >= 0) & (end[np.maximum(row, 0)] <= moments)
        if not ended.any():
            break
        outer = parent[row[ended]]
        row[ended] = np.where(outer >= 0, around[np.maximum(outer, 0)], -1)
    found = {kind: nearest(parent, mask) for kind, mask in kinds.items()}

    def of(kind: str) -> np.ndarray:
        rows_of: np.ndarray = np.where(row >= 0, found[kind][np.maximum(row, 0)], -1)
        return rows_of

    return OpenSpans(of("step"), of("phase"), of("layer"))


@dataclass(frozen=True)
class UserFrames:
    """The user's frames among all, for every frame: itself or those around it."""

    innermost: np.ndarray
    """Row of the innermost frame of the user's at or around each frame, -1 for none."""
    outer: np.ndarray
    """The same around each frame, without itself."""
    below: np.ndarray
    """Row of the frame of a library that the innermost user's frame called on the way to each frame, -1 for none."""


def find_user_frames(frames: Frames) -> UserFrames:
    """Walk the tree of frames once: parents stand before the frames that they call."""
    parent = frames.numbers["parent"]
    mine = frames.words["origin"].equal(USER)
    innermost = np.full(len(frames), -1, dtype=np.int64)
    outer, below = innermost.copy(), innermost.copy()
    for row, (caller, own) in enumerate(zip(parent.tolist(), mine.tolist(), strict=True)):
        if caller >= 0:
            outer[row] = innermost[caller]
            below[row] = below[caller] if below[caller] >= 0 or innermost[caller] != caller else row
        innermost[row] = row if own else outer[row]
        if own:
            below[row] = -1
    return UserFrames(innermost, outer, below)
