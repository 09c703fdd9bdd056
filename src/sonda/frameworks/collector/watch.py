"""The watch over one process: what the observers of its frameworks share, and how observing ends.

A program may import several frameworks: Keras runs on PyTorch too, and a loader of PyTorch may feed TensorFlow. Each
framework has an observer. All observers write through one recorder, so that a step is seen once, by the framework that
makes it. An observer calls `watch_process(settings, counting)`, replaces the functions that it follows, and calls
`watch.add(ObservedFramework(...))`. What a loop of Keras knows of a step (`loops.phase_values()`) goes into every phase.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
from collections.abc import Callable
from time import perf_counter_ns as now
from typing import Any

from . import piece_pass
from .callgrind import VARIABLE as MODELLED
from .callgrind import begin_modelling
from .children import is_data_worker, write_before_sending
from .corun.participation import VARIABLE as SIDE_BY_SIDE
from .corun.participation import join_windows
from .counters.process import Counting
from .failure import report_failure
from .loops import RunningLoops
from .overhead import measure_reading_costs
from .phases import Phases
from .recorder import Recorder, Stream
from .sampling.detail import DetailSample
from .sampling.schedule import Schedule
from .stages import record_observing

ALONE = (MODELLED, SIDE_BY_SIDE)
"""Environment variables under which one process of a program is looked at, and its forked children are left alone."""
CLAIMED = "costs"
"""File in the collector's directory: made by the forked child that measures what recording costs."""
_watches: list = []
"""The one of this process, once a framework was imported."""


class ObservedFramework:
    """One framework of the process, as its observer answers for it at the end."""

    def __init__(
        self,
        framework: str,
        remove: Callable[[], None],
        steps: Callable[[], int],
        threads: Callable[[], int],
        costs: Callable[[], dict],
        facts: Callable[[], dict] = dict,
        begin_in_child: Callable[[Stream | None], None] | None = None,
        unseen: Callable[[], list] = list,
    ) -> None:
        self.framework = framework
        """torch, tensorflow, jax or pytensor: what computes."""
        self.remove = remove
        """Puts back everything that was replaced."""
        self.steps = steps
        """Steps that this observer has announced; 0 where the framework was imported and not used."""
        self.threads = threads
        """Threads that one operation may use."""
        self.costs = costs
        """What a layer and a phase cost to record, ns: `span_ns`, `phase_ns`. Asked once, of the one that stepped."""
        self.facts = facts
        """What else only the end knows, to be stated."""
        self.begin_in_child = begin_in_child
        """Begins anew in a forked child, whose parent may have something open on this stream; the watch has a new
        schedule by then. None: it goes on with what it has."""
        self.unseen = unseen
        """Names of what the program runs by this framework and what is not observed."""
        self.before = 0
        """Steps of the process that forked this one, as `steps` still counts them."""
        self.inherits = False
        """Whether that process used this framework: what it states at its end is not to be stated once more."""

    @property
    def own_steps(self) -> int:
        """Steps of this process alone."""
        return self.steps() - self.before


class ProcessWatch:
    """Recorder, counters, schedule and phases of this process, from the first framework's import until its end; or of
    a `block` of it, which says itself when it ends."""

    def __init__(self, settings: dict, counting: Any = None, block: bool = False) -> None:
        directory = settings["directory"]
        self.block = block
        self.recorder = Recorder(directory)
        self.counting = counting or Counting(directory)
        self.schedule = Schedule(
            count=settings.get("count", True),
            first=settings.get("first", 0),
            last=settings.get("last", 0),
            deadline=now() + int(settings["max_time"] * 1e9) if settings.get("max_time") else 0,
            size_cap=settings.get("size_cap", 0),
            profile=settings.get("kernels", True),
            replay=settings.get("replay", False),
        )
        if not (block or self.schedule.first or self.schedule.last or self.counting.counts_layers):
            self.schedule.sample = DetailSample()
        piece_pass.LONGEST = settings.get("longest", piece_pass.LONGEST)
        self.phases = Phases(self.recorder)
        self.counting.define(self.recorder)
        self.phases.open(self.counting)
        self.recorder.set_detail(self.schedule.detail)
        self.observed: list = []
        self.loops = RunningLoops(self.recorder)
        self.torch: Any = None
        """The observer of PyTorch, for what is built on it."""
        self.tensorflow: Any = None
        """The observer of TensorFlow, for that of Keras."""
        self._versions = {"python": sys.version.split()[0]}
        self.recorder.on_start = self._begin_recording
        self.recorder.facts_at_rest = self._facts_at_rest
        if block:
            return
        if not any(one in os.environ for one in ALONE):
            self.recorder.on_fork = self._begin_in_child
        atexit.register(self.finish)
        _finish_before_hard_exit(self)
        _write_before_exec(self)

    def add(self, observed: ObservedFramework, **versions: str) -> None:
        """A framework is observed from now on; `versions` of its packages."""
        self.observed.append(observed)
        self._versions.update(versions)
        self._introduce()
        if len(self.observed) == 1:
            begin_modelling(self, announced=False)
            join_windows(self)
            self.recorder.flush()  # should this process be ended early, its file tells that there was one

    def _introduce(self) -> None:
        """State which process this is and what it runs on."""
        facts = {"rank": find_rank(self.recorder), "threads": self.busiest.threads(), "versions": dict(self._versions)}
        self.recorder.state(process=os.getpid(), **facts)

    # ---- children -----------------------------------------------------------------------------------------------

    def _begin_in_child(self, stream: Stream | None) -> None:
        """In a forked child: begin anew. What the parent had open (on this stream) goes on there and nowhere else."""
        try:
            for one in self.observed:
                one.inherits = one.begin_in_child is None and one.own_steps > 0
            self.schedule = self.schedule.for_child()
            if stream is not None and stream.schedule is not None:
                # Functions of the parent that are still running here begin nothing with it.
                stream.schedule.over, stream.schedule.count, stream.schedule.counting = True, False, False
            self.loops.running.clear()
            for one in self.observed:
                if one.begin_in_child is not None:
                    one.begin_in_child(stream)
            for one in self.observed:
                one.before = one.steps()
            self.recorder.set_detail(self.schedule.detail)
        except Exception:
            self.recorder.give_up()
            report_failure(self.recorder.directory)

    def _begin_recording(self) -> None:
        """This process is about to record something for the first time."""
        try:
            if is_data_worker():
                self.recorder.withdraw()
                return
            if self.recorder.child:
                self._introduce()
                self.counting.begin_in_child(self.recorder)
                self.phases.open(self.counting)
            write_before_sending(self.recorder)
        except Exception:
            self.recorder.give_up()
            report_failure(self.recorder.directory)

    def _facts_at_rest(self) -> dict:
        """What is to be known of a process that is ended while it waits for others."""
        chief = self.busiest
        if chief is None:
            return {}
        facts = {"rank": find_rank(self.recorder), "notes": self.schedule.notes, "framework": chief.framework}
        return {**facts, **self.counting.facts()}

    # ---- steps --------------------------------------------------------------------------------------------------

    def end_step(self, time: int) -> None:
        """A step ended at `time`: the schedule decides about the next one. For observers that announce steps."""
        self.schedule.end_step(time, self.recorder.written)
        if self.schedule.detail != self.recorder.detail:
            self.recorder.set_detail(self.schedule.detail)
        self.counting.note_steps(self.schedule.steps)

    @property
    def busiest(self) -> Any:
        """Who announced the most steps; None where nothing was observed."""
        return max(self.observed, key=lambda one: one.own_steps, default=None)

    # ---- the end ------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """State what only the end knows, and observe no more."""
        if self.recorder.is_silent:
            return
        try:
            with record_observing():
                self.state_end(self.costs())
            for one in self.observed:
                one.remove()
            self.phases.close()
            self.counting.close()
        except Exception:
            report_failure(self.recorder.directory)

    def costs(self) -> dict:
        """What a layer, a phase and reading counters cost, ns; nothing of a process that ran none."""
        chief = self.busiest
        if chief is None or not self.recorder.used or (self.recorder.child and not self._claim_costs()):
            return {}
        return {**chief.costs(), **measure_reading_costs(self.counting)}

    def _claim_costs(self) -> bool:
        """Whether this is the first of the forked children to ask: they cost alike, and measuring takes a while."""
        try:
            claim = os.path.join(self.recorder.directory, CLAIMED)
            os.close(os.open(claim, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except OSError:
            return False
        return True

    def state_end(self, costs: dict) -> None:
        """State what was used, what observing cost, what was left out, and that this is all."""
        chief = self.busiest
        if chief is not None and self.recorder.used:
            facts: dict = {"framework": chief.framework, "threads": chief.threads(), **costs}
            state_end(self.recorder, self.schedule, self.counting, facts)
            for one in self.observed:
                more = {} if one.inherits else one.facts()
                if more:
                    self.recorder.state(**more)
        self.recorder.state(finished=True)


def watch_process(settings: dict, counting: Any = None) -> ProcessWatch:
    """The watch over this process, begun by the first framework that asks; `counting` are counters open already."""
    if not _watches:
        _watches.append(ProcessWatch(settings, counting))
    return _watches[0]


def watch_block(settings: dict) -> ProcessWatch:
    """A watch over a block of this process, which observers join until `end_block`."""
    _watches[:] = [ProcessWatch(settings, block=True)]
    return _watches[0]


def end_block() -> None:
    """Observe the block no more, and state what only its end knows."""
    _watches.pop().finish()


def state_end(recorder: Recorder, schedule: Schedule, counting: Any, facts: dict) -> None:
    """State what only the end knows: notes, counts, and these facts."""
    facts = {**facts, **counting.facts(), **schedule.waits.facts()}
    recorder.state(rank=find_rank(recorder), notes=schedule.notes, **facts)


def find_rank(recorder: Recorder) -> int:
    """Which of the processes that train together this is; a program may say so after its framework is imported."""
    if recorder.rank is not None:
        return recorder.rank
    text = os.environ.get("RANK", "")
    return int(text) if text.isdecimal() else 0


def _finish_before_hard_exit(watch: ProcessWatch) -> None:
    """`os._exit` runs nothing that was registered for the end. Forked children end so."""
    leave = os._exit

    def _exit(status: Any) -> None:
        if not watch.recorder.is_silent:
            watch.finish()
            watch.recorder.flush()
        leave(status)

    os._exit = _exit  # type: ignore[assignment]


def _write_before_exec(watch: ProcessWatch) -> None:
    """A program that replaces itself ends here for the collector; where it cannot be replaced, it goes on.

    All of `os.exec*` call these two.
    """
    os.execv = _write_before(os.execv, watch)
    os.execve = _write_before(os.execve, watch)


def _write_before(replace: Any, watch: ProcessWatch) -> Any:
    recorder = watch.recorder
    costs: dict = {}

    @functools.wraps(replace)
    def written_first(*words: Any, **named: Any) -> Any:
        if recorder.is_silent:
            return replace(*words, **named)
        try:
            costs.update(costs or watch.costs())  # once: `execvp` tries one directory after the other
            watch.state_end(costs)
            recorder.flush()
        except Exception:
            report_failure(recorder.directory)
        try:
            return replace(*words, **named)
        finally:
            recorder.state(finished=False)

    if replace in os.supports_fd:
        os.supports_fd.add(written_first)
    return written_first
