"""The watch over one process: what the observers of its frameworks share, and how observing ends.

A program may import several frameworks: Keras runs on PyTorch too, and a loader of PyTorch may feed TensorFlow. Each
framework has an observer. All observers write through one recorder, so that a step is seen once, by the framework that
makes it. An observer calls `watch_process(settings, counting)`, replaces the functions that it follows, and calls
`watch.add(ObservedFramework(...))`. What a loop of Keras knows of a step (`loops.phase_values()`) goes into every
phase.
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
from .stacks.sampler import StackSampler, sample_stacks
from .stages import record_observing

ALONE = (MODELLED, SIDE_BY_SIDE)
"""Environment variables under which one process of a program is observed and its forked children are not."""
CLAIMED = "costs"
"""File in the collector's directory. The forked child that creates it measures what recording costs."""
_watches: list = []
"""The watch of this process, once a framework was imported."""


class ObservedFramework:
    """One framework of the process: what its observer can do and knows at the end."""

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
        """The framework that computes: torch, tensorflow, jax or pytensor."""
        self.remove = remove
        """Puts all replaced functions back."""
        self.steps = steps
        """How many steps this observer has seen; 0 where the framework was imported and not used."""
        self.threads = threads
        """How many threads one operation may use."""
        self.costs = costs
        """Measures what a layer and a phase cost to record, ns: `span_ns`, `phase_ns`. Only the framework with the most
        steps is asked, once."""
        self.facts = facts
        """Further facts that are known at the end."""
        self.begin_in_child = begin_in_child
        """Prepares the observer for a forked child, whose parent may have phases open on the given stream. The watch
        has a new schedule by then. None: the observer needs no preparation."""
        self.unseen = unseen
        """Names of what the program runs with this framework and what is not observed."""
        self.inherited_steps = 0
        """Steps of the parent process, which `steps` still counts in a forked child."""
        self.inherits = False
        """Whether the parent process used this framework: a child then does not state the parent's facts again."""

    @property
    def own_steps(self) -> int:
        """Steps of this process alone."""
        return self.steps() - self.inherited_steps


class ProcessWatch:
    """Recorder, counters, schedule and phases of this process, from the import of the first framework to the end.

    A `block` is observed instead of the whole process where a program asks for it. It calls `end_block`.
    """

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
        """The observer of PyTorch, for observers of libraries built on it."""
        self.tensorflow: Any = None
        """The observer of TensorFlow, for that of Keras."""
        self.sampler: StackSampler | None = None
        """Samples stacks, where `settings` ask for it; from the import of the first framework on."""
        self._sampled = bool(settings.get("stacks")) and not any(variable in os.environ for variable in ALONE)
        self._place = settings.get("place", "")
        self._versions = {"python": sys.version.split()[0]}
        self.recorder.on_start = self._begin_recording
        self.recorder.facts_at_rest = self._facts_at_rest
        if block:
            return
        if not any(variable in os.environ for variable in ALONE):
            self.recorder.on_fork = self._begin_in_child
        atexit.register(self.finish)
        _finish_before_hard_exit(self)
        _write_before_exec(self)

    def add(self, observed: ObservedFramework, **versions: str) -> None:
        """Observe a framework from now on; `versions` are those of its packages by name."""
        self.observed.append(observed)
        self._versions.update(versions)
        self._introduce()
        if len(self.observed) == 1:
            begin_modelling(self, announced=False)
            join_windows(self)
            self.recorder.flush()  # if this process is killed early, its file shows that it existed
            if self._sampled:
                self.sampler = sample_stacks(
                    self.recorder.directory, self._place, self.block, lambda: self.schedule.runs_usual_steps
                )

    def _introduce(self) -> None:
        """State which process this is and what it runs on."""
        facts = {"rank": find_rank(self.recorder), "threads": self.busiest.threads(), "versions": dict(self._versions)}
        self.recorder.state(process=os.getpid(), **facts)

    # ---- children -----------------------------------------------------------------------------------------------

    def _begin_in_child(self, stream: Stream | None) -> None:
        """In a forked child: begin anew. What the parent has open on this stream continues in the parent only."""
        try:
            for framework in self.observed:
                framework.inherits = framework.begin_in_child is None and framework.own_steps > 0
            self.schedule = self.schedule.for_child()
            if stream is not None and stream.schedule is not None:
                # Functions that were running at the fork hold the parent's schedule: they must not begin anything.
                stream.schedule.over, stream.schedule.count, stream.schedule.counting = True, False, False
            self.loops.running.clear()
            for framework in self.observed:
                if framework.begin_in_child is not None:
                    framework.begin_in_child(stream)
            for framework in self.observed:
                framework.inherited_steps = framework.steps()
            self.recorder.set_detail(self.schedule.detail)
        except Exception:
            self.recorder.give_up()
            report_failure(self.recorder.directory)

    def _begin_recording(self) -> None:
        """Prepare this process, which is about to record its first event."""
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
        """Facts about a process that may be killed while it waits for others."""
        busiest = self.busiest
        if busiest is None:
            return {}
        facts = {"rank": find_rank(self.recorder), "notes": self.schedule.notes, "framework": busiest.framework}
        return {**facts, **self.counting.facts()}

    # ---- steps --------------------------------------------------------------------------------------------------

    def end_step(self, time: int) -> None:
        """A step ended at `time`, ns: the schedule decides about the next one. Called by observers that find steps."""
        self.schedule.end_step(time, self.recorder.written)
        if self.schedule.detail != self.recorder.detail:
            self.recorder.set_detail(self.schedule.detail)
        self.counting.note_steps(self.schedule.steps)

    @property
    def busiest(self) -> Any:
        """The framework with the most steps; None where nothing was observed."""
        return max(self.observed, key=lambda framework: framework.own_steps, default=None)

    # ---- the end ------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """State what is known at the end, and stop observing."""
        if self.sampler is not None:
            self.sampler.finish()
        if self.recorder.is_silent:
            return
        try:
            with record_observing():
                self.state_end(self.costs())
            for framework in self.observed:
                framework.remove()
            self.phases.close()
            self.counting.close()
        except Exception:
            report_failure(self.recorder.directory)

    def costs(self) -> dict:
        """Measure what a layer, a phase and reading counters cost, ns; {} for a process that recorded nothing."""
        busiest = self.busiest
        if busiest is None or not self.recorder.used or (self.recorder.child and not self._claim_costs()):
            return {}
        return {**busiest.costs(), **measure_reading_costs(self.counting)}

    def _claim_costs(self) -> bool:
        """Whether this is the first forked child to ask. Costs are alike in all children, and measuring takes time."""
        try:
            claim = os.path.join(self.recorder.directory, CLAIMED)
            os.close(os.open(claim, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except OSError:
            return False
        return True

    def state_end(self, costs: dict) -> None:
        """State what was used, what observing cost and what was left out, and that nothing follows."""
        busiest = self.busiest
        if busiest is not None and self.recorder.used:
            facts: dict = {"framework": busiest.framework, "threads": busiest.threads(), **costs}
            state_end(self.recorder, self.schedule, self.counting, facts)
            for framework in self.observed:
                own_facts = {} if framework.inherits else framework.facts()
                if own_facts:
                    self.recorder.state(**own_facts)
        self.recorder.state(finished=True)


def watch_process(settings: dict, counting: Any = None) -> ProcessWatch:
    """The watch over this process, which the first framework begins. `counting`: counters that are open already."""
    if not _watches:
        _watches.append(ProcessWatch(settings, counting))
    return _watches[0]


def watch_block(settings: dict) -> ProcessWatch:
    """Begin a watch over a block of this process. Observers join it until `end_block`."""
    _watches[:] = [ProcessWatch(settings, block=True)]
    return _watches[0]


def end_block() -> None:
    """Stop observing the block, and state what is known at its end."""
    _watches.pop().finish()


def state_end(recorder: Recorder, schedule: Schedule, counting: Any, facts: dict) -> None:
    """State what is known at the end: notes, counts, and these facts."""
    facts = {**facts, **counting.facts(), **schedule.waits.facts()}
    recorder.state(rank=find_rank(recorder), notes=schedule.notes, **facts)


def find_rank(recorder: Recorder) -> int:
    """The rank of this process among those that train together. A program may set it after it imports a framework."""
    if recorder.rank is not None:
        return recorder.rank
    text = os.environ.get("RANK", "")
    return int(text) if text.isdecimal() else 0


def _finish_before_hard_exit(watch: ProcessWatch) -> None:
    """Finish before `os._exit`, which runs no registered function. Forked children end by it."""
    leave = os._exit

    def _exit(status: Any) -> None:
        if watch.sampler is not None:
            watch.sampler.finish()
        if not watch.recorder.is_silent:
            watch.finish()
            watch.recorder.flush()
        leave(status)

    os._exit = _exit  # type: ignore[assignment]


def _write_before_exec(watch: ProcessWatch) -> None:
    """Write everything before the program replaces itself. It goes on where the replacement fails.

    All functions of `os.exec*` call `execv` or `execve`.
    """
    os.execv = _write_before(os.execv, watch)
    os.execve = _write_before(os.execve, watch)


def _write_before(replace: Any, watch: ProcessWatch) -> Any:
    recorder = watch.recorder
    costs: dict = {}

    @functools.wraps(replace)
    def write_and_replace(*words: Any, **named: Any) -> Any:
        if watch.sampler is not None:
            watch.sampler.flush()
        if recorder.is_silent:
            return replace(*words, **named)
        try:
            costs.update(costs or watch.costs())  # measured once: `execvp` tries one directory after the other
            watch.state_end(costs)
            recorder.flush()
        except Exception:
            report_failure(recorder.directory)
        try:
            return replace(*words, **named)
        finally:
            recorder.state(finished=False)

    if replace in os.supports_fd:
        os.supports_fd.add(write_and_replace)
    return write_and_replace
