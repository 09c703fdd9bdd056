"""What counters cost: a phase boundary against the bare `os.read` of the same group; a layer against torch.profiler;
and whether page faults of a known fill are exact.

Groups are of the kernel's software events, which are there without a PMU: four, what a run always counts; six, the most
frequent size in the Top-Down tables; and eight. The bar holds for each of them. Writing the events out is left out, and
so are threads that were there before the counters, each of which is a read more. Boundaries and bare reads take turns,
and the CPU time of the reading thread is taken, which other programs disturb less than the clock on the wall. Processes
differ from each other by more than the intervals say, which are of one process. What a boundary of a phase of a
millisecond or more reads besides (resident memory, the threads' waits) is in a row of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns, process_time_ns, thread_time_ns
from typing import Any

import numpy as np

from benchmarks.bar import Bar, Interval, at_most, paired_interval, ratio_interval
from sonda.frameworks.collector import phases as phases_module
from sonda.frameworks.collector.counters.process import FILE, Counting
from sonda.frameworks.collector.phases import Phases
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.reconstruction.assembly import assemble

LIMIT = 1.5
ROUNDS, CALLS = 1500, 20
FILLS = 100
EVENTS = (1, 2, 3, 4, 5, 6, 2, 1)
"""Codes of software events; two stand in it twice, to make eight."""
PROGRAM = Path(__file__).parent.parent / "tests" / "programs" / "filling.py"
MODULES = 200


def run() -> list[Bar]:
    """Measure, print, and hold the figures against the bars."""
    print(f"CPU time; medians of {ROUNDS} interleaved rounds, 95 % bootstrap intervals; ns")
    print(f"{'threads':>8}{'events':>8}{'bare read':>24}{'boundary':>24}{'ratio':>24}")
    bars = []
    for threads in (1, 8):
        for events in (4, 6, 8):
            # In a process of its own: threads that have ended stay in /proc for a while.
            command = [sys.executable, "-m", "benchmarks.counters", "boundary", str(threads), str(events)]
            # One thread where one is meant: numpy's library would start others before the counters are there.
            alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=alone)
            found = json.loads(done.stdout)
            bare, boundary, whole = (np.array(found[name]) for name in ("bare", "boundary", "whole"))
            ratio = paired_interval(boundary / bare)
            print(
                f"{threads:>8}{events:>8}{paired_interval(bare).text(0):>24}{paired_interval(boundary).text(0):>24}"
                f"{ratio.text(3):>24}"
            )
            print(f"{'':16}with resident memory and waits: {paired_interval(whole).text(0)}")
            name = f"phase boundary / bare os.read, {threads} threads, {events} events"
            bars.append(at_most(name, ratio, LIMIT, "x"))
    bars.append(_layers())
    bars += _fills()
    return bars


def boundary(threads: int, events: int) -> dict[str, list[float]]:
    """ns of a bare read, of a boundary that reads the same group, and of one of a longer phase, round by round."""
    with tempfile.TemporaryDirectory() as directory:
        group = [{"name": f"event_{at}", "type": 1, "config": code, "kernel": True}
                 for at, code in enumerate(EVENTS[:events])]  # fmt: skip
        (Path(directory) / FILE).write_text(json.dumps({"groups": [group]}))
        counting = Counting(directory)
        stop = threading.Event()
        others = [threading.Thread(target=stop.wait) for _ in range(threads - 1)]
        for one in others:
            one.start()
        recorder = Recorder(directory)
        recorder.due = 1 << 62  # writing the events out is no part of a boundary
        counting.define(recorder)
        phases = Phases(recorder)
        phases.open(counting)
        stream = recorder.stream()
        code, long = phases.codes["forward"], phases.codes["backward"]
        descriptor, size, read = counting.sets[0].descriptors[0], counting.sets[0].size, os.read

        def bare() -> None:
            for _ in range(CALLS):
                read(descriptor, size)
                read(descriptor, size)

        def boundaries(which: int) -> None:
            for _ in range(CALLS):
                begin = stream.begin
                begin(which)
                end = stream.end
                end()

        found: dict[str, list[float]] = {"bare": [], "boundary": [], "whole": []}
        work: dict[str, Callable[[], None]] = {"bare": bare, "boundary": lambda: boundaries(code)}
        for _ in range(ROUNDS):
            for name, function in work.items():
                begin = thread_time_ns()
                function()
                found[name].append((thread_time_ns() - begin) / (2 * CALLS))
                stream.events.clear()
                stream.counts.clear()
        phases_module.WORTH_COUNTING = 0
        for _ in range(ROUNDS // 10):
            begin = thread_time_ns()
            boundaries(long)
            found["whole"].append((thread_time_ns() - begin) / (2 * CALLS))
            stream.events.clear()
            stream.counts.clear()
        stop.set()
        for one in others:
            one.join()
        counting.close()
    return found


def _layers() -> Bar:
    """A chain of modules with counters for every layer, and under torch.profiler; perf stat around a whole program."""
    import torch

    from sonda.frameworks.collector.sampling.schedule import Schedule
    from sonda.frameworks.torch.observe.observer import TorchObserver

    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    torch.set_num_threads(1)
    chain = torch.nn.Sequential(*(torch.nn.Identity() for _ in range(MODULES)))
    value = torch.zeros(1)

    def step() -> None:
        with torch.no_grad():
            chain(value)

    def timed() -> int:
        step()
        begin = process_time_ns()
        for _ in range(5):
            step()
        return process_time_ns() - begin

    def counted() -> int:
        with tempfile.TemporaryDirectory() as directory:
            group = [
                {"name": f"event_{at}", "type": 1, "config": code, "kernel": True} for at, code in enumerate(EVENTS)
            ]
            (Path(directory) / FILE).write_text(json.dumps({"groups": [group]}))
            observer = TorchObserver(Recorder(directory), torch, Schedule(count=False))
            observer.install()
            try:
                return timed()
            finally:
                observer.remove()
                observer.recorder.close()

    def profiled() -> int:
        handles: list[Any] = []
        ranges: list[Any] = []
        hooks = torch.nn.modules.module

        def enter(module: Any, _inputs: Any) -> None:
            one = torch.profiler.record_function(type(module).__name__)
            one.__enter__()
            ranges.append(one)

        def leave(_module: Any, _inputs: Any, _output: Any) -> None:
            ranges.pop().__exit__(None, None, None)

        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            handles = [hooks.register_module_forward_pre_hook(enter), hooks.register_module_forward_hook(leave)]
            try:
                return timed()
            finally:
                for handle in handles:
                    handle.remove()

    times: dict[str, list[int]] = {"bare": [], "counters": [], "profiler": []}
    for _ in range(25):
        for name, measure in (("bare", timed), ("counters", counted), ("profiler", profiled)):
            times[name].append(measure())
    per_layer = {name: np.array(found) / 5 / MODULES / 1e3 for name, found in times.items()}
    for name in ("counters", "profiler"):
        added = paired_interval(per_layer[name] - per_layer["bare"])
        what = "8 counters and 2 times a layer" if name == "counters" else "torch.profiler, 2 times a layer"
        print(f"{what:40}{added.text(2):>24} µs added per layer")
    print(f"{'perf stat around the whole program':40}{_perf_stat():>24}")
    ratio = ratio_interval(per_layer["counters"] - per_layer["bare"], per_layer["profiler"] - per_layer["bare"])
    return at_most("a layer with 8 counters / a layer of torch.profiler", ratio, 1.0, "x")


def _perf_stat() -> str:
    """What perf stat adds to a short program; it knows no layers."""
    if shutil.which("perf") is None:
        return "not installed"
    added = []
    for _ in range(15):
        times = []
        for words in (["true"], ["perf", "stat", "-o", os.devnull, "-e", "page-faults,task-clock", "true"]):
            begin = perf_counter_ns()
            subprocess.run(words, check=True)
            times.append(perf_counter_ns() - begin)
        added.append((times[1] - times[0]) / 1e6)
    return f"{paired_interval(added).text(1)} ms once"


def _fills() -> list[Bar]:
    """Page faults of filling 64 MiB: 16,384, one more at most, every time."""
    bars = []
    for threads, where, when in ((1, "main", "early"), (2, "main", "early"), (8, "main", "early"),
                                 (2, "other", "early"), (8, "main", "late")):  # fmt: skip
        with tempfile.TemporaryDirectory() as directory:
            words = [sys.executable, str(PROGRAM), directory, str(threads), str(FILLS), where, when]
            subprocess.run(words, check=True)
            spans = assemble(Path(directory), 0, 1 << 62).spans
        faults = spans.metric("page_faults", "counted")[spans.where(kind="phase", name="fill")]
        seen = Counter(int(one) for one in faults)
        wrong = float(sum(count for value, count in seen.items() if value not in (16384, 16385)))
        name = f"fills of 64 MiB with a wrong count, {threads} threads, {where} thread, counters opened {when}"
        print(f"{name}: {dict(seen)}")
        bars.append(at_most(name, Interval(wrong, wrong, wrong), 0.0))
    return bars


if __name__ == "__main__" and sys.argv[1:2] == ["boundary"]:
    print(json.dumps(boundary(int(sys.argv[2]), int(sys.argv[3]))))
