"""The observer of PyTorch and its process: what is stated at the start and the end, and how a forked child begins."""

from __future__ import annotations

import os
import sys
from typing import Any

from ...collector.failure import report_failure
from ...collector.overhead import measure_reading_costs
from ...collector.page_faults import measure_fault_ns
from ...collector.recorder import Stream
from ...collector.watch import find_rank, state_end


def state_versions(recorder: Any, torch: Any) -> None:
    """State which process this is and what it runs on, where PyTorch alone is observed."""
    recorder.state(
        process=os.getpid(),
        rank=find_rank(recorder),
        versions={"python": sys.version.split()[0], "torch": str(torch.__version__)},
        threads=torch.get_num_threads(),
        isa=torch.backends.cpu.get_cpu_capability(),
    )


def finish(observer: Any) -> None:
    """State the facts that are known only at the end, and stop a `TorchObserver` that observes alone."""
    recorder = observer.recorder
    try:
        if recorder.written or recorder.streams:
            costs = {**measure_costs(observer), **measure_reading_costs(observer.counting)}
            facts = {"threads": observer.torch.get_num_threads(), **costs}
            state_end(recorder, observer.schedule, observer.counting, facts)
        recorder.state(finished=True)
        observer.remove()
    except Exception:
        report_failure(recorder.directory)


def measure_costs(observer: Any) -> dict:
    """The cost of recording a layer and a phase, ns; nothing where this process can no longer measure it."""
    from .overhead import recording_costs

    try:
        costs = recording_costs(observer.torch, observer.layers.counting, observer.layers.has_marks)
        return {**costs, "fault_ns": measure_fault_ns()}
    except Exception:
        return {}


def begin_in_child(observer: Any, schedule: Any, stream: Stream | None) -> None:
    """Restart the observer of PyTorch in a forked child, with the child's own schedule.

    It drops what the parent counts, marks or profiles. `stream` is that of the thread that forked; phases open on it
    count no operations here.
    """
    observer.schedule, observer._schedule_taken = schedule, False
    opened = stream.phases if stream is not None else []
    for at in reversed(range(len(opened))):
        code, mode, *rest = opened[at]
        if mode is not None:
            mode.__exit__(None, None, None)
            opened[at] = (code, None, *rest)
    if observer.counter.ending is not None:
        observer.counter.end_inspection()
    if observer.counter.stream is not None:
        observer.counter.stop(observer.counter.stream)
    optimized = observer.counter.optimized
    observer.counter = type(observer.counter)(observer.torch, observer.recorder, observer.layers.codes)
    observer.counter.optimized = optimized
    observer.habits.begin()
    observer.communication.begin_in_child()
    for device_part in (observer.marks, observer.kernel_pass):
        if device_part is not None:
            device_part.begin_in_child()
