"""PyTorch observed in a process: from its import to the process's end, and anew in a forked child."""

from __future__ import annotations

import os
import sys
from typing import Any

from ...collector.failure import report_failure
from ...collector.overhead import reading_costs
from ...collector.recorder import Stream
from ...collector.watch import Observed, rank, state_end, watch_process


def observe_torch(torch: Any, settings: dict, counting: Any = None) -> None:
    """Observe PyTorch in this process until it ends, with counters that are open already."""
    from .observer import TorchObserver

    watch = watch_process(settings, counting)
    observer = TorchObserver(watch.recorder, torch, watch.schedule, watch.counting, watch.phases)
    observer.install()
    watch.torch = observer
    observer.replace(torch, "set_num_threads", observer.habits.wrap_set_threads)
    if observer.marks is not None:
        observer.replace(torch.cuda.CUDAGraph, "replay", observer.habits.wrap_replay)

    def steps() -> int:
        """The schedule's, less those that other frameworks announced."""
        return watch.schedule.steps - sum(one.steps() for one in watch.observed if one is not observed)

    observed = Observed(
        "torch",
        observer.remove,
        steps,
        observer.habits.threads,
        lambda: _costs(observer),
        lambda: {"habits": observer.habits.facts()} if observer.habits.noticed else {},
        lambda stream: begin_in_child(observer, watch.schedule, stream),
    )
    watch.add(observed, torch=str(torch.__version__))
    watch.recorder.state(isa=torch.backends.cpu.get_cpu_capability())


def state_versions(recorder: Any, torch: Any) -> None:
    """State which process this is and what it runs on, where PyTorch alone is observed."""
    recorder.state(
        process=os.getpid(),
        rank=rank(recorder),
        versions={"python": sys.version.split()[0], "torch": str(torch.__version__)},
        threads=torch.get_num_threads(),
        isa=torch.backends.cpu.get_cpu_capability(),
    )


def finish(observer: Any) -> None:
    """State what only the end knows, and observe no more: of a `TorchObserver` that is alone."""
    recorder = observer.recorder
    try:
        if recorder.written or recorder.streams:
            costs = {**_costs(observer), **reading_costs(observer.counting)}
            facts = {"threads": observer.torch.get_num_threads(), **costs}
            state_end(recorder, observer.schedule, observer.counting, facts)
        recorder.state(finished=True)
        observer.remove()
    except Exception:
        report_failure(recorder.directory)


def _costs(observer: Any) -> dict:
    """What a layer and a phase cost, ns; nothing where that cannot be tried in this process any more."""
    from .overhead import recording_costs

    try:
        return recording_costs(observer.torch, observer.layers.counting, observer.layers.marked)
    except Exception:
        return {}


def begin_in_child(observer: Any, schedule: Any, stream: Stream | None) -> None:
    """Have the observer of PyTorch begin anew in a forked child, with a schedule of the child's own.

    It lets go of what the parent counts, marks or profiles; what was open on this stream, that of the thread which
    forked, sees no operation here.
    """
    observer.schedule, observer._led = schedule, False
    opened = stream.phases if stream is not None else []
    for at in reversed(range(len(opened))):
        code, mode, *rest = opened[at]
        if mode is not None:
            mode.__exit__(None, None, None)
            opened[at] = (code, None, *rest)
    if observer.counter.stream is not None:
        observer.counter.stop(observer.counter.stream)
    observer.counter = type(observer.counter)(observer.torch, observer.recorder)
    observer.habits.begin()
    observer.communication.begin_in_child()
    for one in (observer.marks, observer.kernel_pass):
        if one is not None:
            one.begin_in_child()
