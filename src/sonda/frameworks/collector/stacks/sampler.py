"""Samples the stacks of all threads of this process, in a thread of its own.

The sampler sleeps, takes the interpreter's lock as every thread does, and notes where each other thread is. A thread
that holds the lock gives it up where the interpreter allows that: after a call, at the end of a loop's turn. So a line
of Python code may be noted a little later than it ran, at the next such place. That the sampler had to wait for the
lock tells that somebody held it: that Python code ran, or a function that does not give up the lock.

A sample must leave the program as it was. It drops all frames before it gives up the lock: a frame that is held keeps
variables alive. No garbage collection begins in it. The thread blocks all signals, and is gone while the process forks.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import weakref
from _thread import allocate_lock, get_ident, get_native_id, start_new_thread
from array import array
from collections.abc import Callable
from time import perf_counter_ns as now
from time import thread_time_ns as spent
from typing import Any

from ..children import find_worker
from ..failure import report_failure
from .collections import CollectionRecorder
from .file import StackFile
from .switching import SwitchInterval
from .threads import SampledThread, SystemCalls, count_blocks, identify_thread, read_clock
from .trie import StackTrie

INTERVAL_NS = 5_000_000
"""ns between two samples, on average, at the beginning."""
COST_SHARE = 200
"""Sampling may take one part in so many of the time. The thread that gives up the lock for a sample loses as much again
and more: it leaves its processor, and others fill its caches."""
SAVED_NS = 5_000_000
"""Processor time that may be spent at once: while a program begins, every stack is a new one."""
STEPS_NS = 25_000_000
"""The same from the first step on that is not counted, whatever was spent before it: some 150 samples, so that a loop
of a second is known too."""
LONGEST_NS = 50_000_000
"""ns between two samples at most. A usual sample takes 0.1 to 0.2 ms, which is less than half a percent of this. What
imports and first steps cost, whose stacks are all new, is not waited for any longer: their steps would not be seen."""
MOST_SAMPLES = 20_000
"""After so many samples of threads, and again after as many, the interval doubles: a long program does not write
without end."""
MOST_THREADS = 64
"""Threads that are followed."""
BUSY = 0.9
"""A thread that ran for this part of the time since its last sample ran all the time."""
RUNNING = 0.05
"""A thread that ran for this part of the time may want the lock while another one has it."""
GOLDEN = 0.6180339887498949
"""Intervals differ, spread evenly by the golden ratio: a program that repeats itself is met at all of its places."""
FLUSH_NS, CHILD_FLUSH_NS = 500_000_000, 100_000_000
"""What a killed program, or a forked child, loses at most."""
FRAMEWORKS = ("torch", "tensorflow", "keras", "jax", "pytensor")
STOP_S = 0.5
"""s that stopping may take, on a crowded machine."""


class StackSampler:
    """Samples this process, and forked children, from `begin` until `finish`."""

    def __init__(self, directory: str, place: str, children: bool, steps: Callable[[], bool] = bool) -> None:
        self.directory = directory
        self.place = place
        """The directory in which the program began: names of its files may be relative to it."""
        self.children = children
        """Whether forked children are sampled too."""
        self.steps = steps
        """Whether the program makes steps now, at their usual pace; `bool` where nobody tells."""
        self.child = False
        self.on = False
        """Whether this process is sampled, now or as soon as its fork is over."""
        self._alive: Any = None
        """Lock that the thread holds while it lives; None where there is none."""
        self._stop: Any = None
        self._native = 0
        self.calls = SystemCalls()
        self.switching = SwitchInterval()
        self._reset()

    def _reset(self) -> None:
        """Begin without anything sampled."""
        self.trie = StackTrie(self.place)
        self.file = StackFile(self.directory)
        self.collections = CollectionRecorder()
        self.samples = array("q")
        self.threads: dict = {}
        """By the interpreter's id of a thread: `SampledThread`, None for one of which nothing is known."""
        self.interval = INTERVAL_NS
        self.taken = 0
        """Samples of threads since the interval last doubled."""
        self.spent = 0
        """ns of processor time that sampling took."""
        self._debt = 0
        """ns of processor time that were spent and not waited for yet."""
        self._saved = SAVED_NS
        self._running = MOST_THREADS
        """Threads of the program that ran since the last sample."""
        self._turn = 0.0
        self._due_to_write = 0
        self._facts: list = []

    # ---- life ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to sample. Does nothing where the interpreter has no lock: threads would move meanwhile."""
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            return
        self.on = True
        self._facts = [self._introduce()]
        self.collections.begin()
        self.switching.begin()
        self._start()

    def _introduce(self) -> dict:
        library = os.path.dirname(os.__file__)
        return {
            "process": os.getpid(), "begun": now(), "place": self.place, "library": library, "prefix": sys.prefix,
            "machine": os.uname().machine, "frameworks": _find_packages(),
        }  # fmt: skip

    def _start(self) -> None:
        self._stop, self._alive = allocate_lock(), allocate_lock()
        self._stop.acquire()
        self._alive.acquire()
        # The thread inherits a mask that blocks all signals: they are the program's.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            ident = start_new_thread(self._run, (self._stop, self._alive))
            self.calls.learn_lock(identify_thread(ident))
        except RuntimeError:  # there may be no more threads
            self._alive = None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def pause(self, gone: bool = False) -> bool:
        """End the thread; whether nothing of it runs any more. `gone`: wait until the system has forgotten it too."""
        if self._alive is None or get_native_id() == self._native:
            return self._alive is None
        self._stop.release()
        ended = self._alive.acquire(True, STOP_S)
        self._alive = None
        if gone and ended:
            path, last = f"/proc/self/task/{self._native}", now() + int(STOP_S * 1e9)
            while os.path.exists(path) and now() < last:
                time.sleep(0.00002)
        return bool(ended)

    def finish(self) -> None:
        """Stop sampling, and write what is left."""
        if not self.on:
            return
        self.on = False
        self.collections.end()
        ended = self.pause()
        self.switching.end()
        if ended:
            self._facts.append({"finished": now()})
            self._write()

    def flush(self) -> None:
        """Write what there is, before the program replaces itself; sampling goes on where that fails."""
        if self.on and self.pause():
            self._write()
            self._start()

    def pause_to_fork(self) -> None:
        if self.on:
            self.pause(gone=True)

    def resume(self) -> None:
        """In the parent after a fork."""
        if self.on:
            self._start()

    def begin_in_child(self) -> None:
        """In a forked child: drop the parent's samples, and begin with none."""
        if not self.on:
            return
        self.collections.end()
        self.switching.end()
        self._alive = None
        self.on = False
        self.child = True
        self._reset()
        if self.children:
            self.begin()

    # ---- the thread ---------------------------------------------------------------------------------------------

    def _run(self, stop: Any, alive: Any) -> None:
        try:
            self._native = get_native_id()
            mine, ended, already = get_ident(), now(), spent()
            self._due_to_write = ended + (CHILD_FLUSH_NS if self.child else FLUSH_NS)
            while self.on:
                interval = self._choose_interval()
                # Threads of the program that run beside each other switch as often as the program wants.
                alone = self._running <= 1
                switch = int((self.switching.shorten() if alone else self.switching.restore()) * 1e9)
                blocks, due = count_blocks(), now() + interval
                if stop.acquire(True, interval / 1e9):
                    break
                time = now()
                self.switching.restore()
                # The sleep blocks once. If the lock is taken then, waiting for it does, and again after each time that
                # a thread was asked to give it up.
                late, waits = max(time - due, 0), max(count_blocks() - blocks - 1, 0)
                if late < switch:
                    waits = min(waits, 1)  # nobody has been asked yet
                self._sample(time, late, waits, mine)
                if time > self._due_to_write:
                    self._write()
                # All of the thread's time counts: it also runs while it wakes up and waits for the lock.
                total, began, ended = spent(), ended, now()
                cost, already = total - already, total
                self.spent += cost
                self._debt = max(self._debt + cost - (ended - began) // COST_SHARE, 0)
                if self._saved == SAVED_NS and self.steps():
                    self._saved, self._debt = STEPS_NS, 0
        except BaseException:
            if self.on and not sys.is_finalizing():
                report_failure(self.directory)
            self.on = False
        finally:
            self.switching.restore()
            alive.release()

    def _choose_interval(self) -> int:
        """ns until the next sample."""
        self._turn = (self._turn + GOLDEN) % 1
        saving = COST_SHARE * (self._debt - self._saved)
        return max(int(self.interval * (0.5 + self._turn)), min(saving, LONGEST_NS))

    def _sample(self, time: int, late: int, waits: int, mine: int) -> None:
        enabled = gc.isenabled()
        gc.disable()
        try:
            self._note_threads(time, late, waits, mine)
        finally:
            if enabled:
                gc.enable()

    def _note_threads(self, time: int, late: int, waits: int, mine: int) -> None:
        threads = self.threads
        self._running = 0
        frames = sys._current_frames()
        frames.pop(mine, None)
        try:
            if len(frames) != len(threads):
                self._drop_ended(frames)
            for ident in frames:
                if ident not in threads:
                    if len(threads) < MOST_THREADS:
                        self._add_thread(ident, frames[ident], time)
                    continue
                thread = threads[ident]
                if thread is not None:
                    self._note_thread(thread, frames[ident], time, late, waits)
        finally:
            frames.clear()

    def _add_thread(self, ident: int, frame: Any, time: int) -> None:
        native = identify_thread(ident)
        self.threads[ident] = SampledThread(native, time, self.trie.number(frame)) if native else None

    def _note_thread(self, thread: SampledThread, frame: Any, time: int, late: int, waits: int) -> None:
        ran = read_clock(thread.clock)
        used = ran - thread.ran
        if used == 0 and thread.call:
            thread.resting = time  # it has not moved: neither its stack nor its system call is another
            return
        if ran < 0:
            return  # it has ended, and its interpreter's state has not
        if thread.resting:
            self._add_rest(thread)
        stack = self.trie.number(frame)
        lasted = time - thread.since
        self._running += used > RUNNING * lasted
        # A thread that ran all the time, and had to give up the lock, is in Python code: nobody needs to ask.
        thread.call = 0 if waits > 1 and used > BUSY * lasted else self.calls.read(thread.native)
        self.samples.extend((time, thread.native, stack, lasted, used, late, waits, thread.call))
        self.taken += 1
        thread.since, thread.ran, thread.stack = time, ran, stack

    def _add_rest(self, thread: SampledThread) -> None:
        """Note one sample for all in which a thread did not run."""
        lasted = thread.resting - thread.since
        self.samples.extend((thread.resting, thread.native, thread.stack, lasted, 0, 0, 0, thread.call))
        self.taken += 1
        thread.since, thread.resting = thread.resting, 0

    def _drop_ended(self, frames: dict) -> None:
        for ident in [ident for ident in self.threads if ident not in frames]:
            thread = self.threads.pop(ident)
            if thread is not None and thread.resting:
                self._add_rest(thread)

    def _write(self) -> None:
        """Append what was sampled to the file. After a failure nothing more is sampled."""
        self._due_to_write = now() + (CHILD_FLUSH_NS if self.child else FLUSH_NS)
        for thread in self.threads.values():
            if thread is not None and thread.resting:
                self._add_rest(thread)
        facts, frames = self.trie.take()
        samples, self.samples = self.samples, array("q")
        worker = find_worker()
        facts = [*self._facts, *facts, {"spent": self.spent, "interval": self.interval, "worker": worker}]
        self._facts = []
        if not samples and not frames:
            return
        try:
            self.file.append(facts, frames, samples, self.collections.take())
        except OSError:
            self.on = False  # the recorder tells of a full disk
            self.collections.end()
        if self.taken >= MOST_SAMPLES:
            self.taken = 0
            self.interval *= 2


def _find_packages() -> list:
    """The folders of the frameworks that were imported: one that was built in place is no code of the user's."""
    files = [getattr(sys.modules.get(name), "__file__", None) for name in FRAMEWORKS]
    return [os.path.dirname(file) for file in files if file]


def sample_stacks(directory: str, place: str, block: bool, steps: Callable[[], bool] = bool) -> StackSampler:
    """Begin to sample this process and the children that it forks, to its end; of a block, the process until
    `finish`. `steps` tells whether the program makes steps now."""
    sampler = StackSampler(directory, place, children=not block, steps=steps)
    reference = weakref.ref(sampler)

    def call(name: str) -> Any:
        """A function for a fork, which outlives the sampler."""

        def call_if_alive() -> None:
            alive = reference()
            if alive is not None:
                getattr(alive, name)()

        return call_if_alive

    os.register_at_fork(
        before=call("pause_to_fork"), after_in_parent=call("resume"), after_in_child=call("begin_in_child")
    )
    sampler.begin()
    return sampler
