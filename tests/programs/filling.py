"""Fills 64 MiB in phases of its own, with so many threads, from the main thread or another; counters opened before or
after PyTorch has started its threads. Writes events into a directory.

Arguments: directory, threads, repetitions, `main` or `other`, `early` or `late`.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from sonda.frameworks.collector.counters.process import Counting
from sonda.frameworks.collector.phases import Phases
from sonda.frameworks.collector.recorder import Recorder

directory, threads, repetitions, where, when = sys.argv[1:]
Path(directory).mkdir(parents=True, exist_ok=True)
counting = Counting(directory) if when == "early" else None

import torch  # noqa: E402

torch.set_num_threads(int(threads))
torch.ones(1 << 20).mul_(2)  # the pool starts with the first parallel operation
counting = counting or Counting(directory)
recorder = Recorder(directory)
counting.define(recorder)
phases = Phases(recorder)
phases.open(counting)
code = recorder.define(kind="phase", name="fill")
empty = recorder.define(kind="phase", name="empty")


def fill() -> None:
    stream = recorder.stream()
    # The first time, the code itself comes into memory and this thread's pool is made: they fault too.
    torch.empty(64 << 20, dtype=torch.uint8).fill_(1)
    stream.begin(empty)
    stream.end()
    for _ in range(int(repetitions)):
        memory = torch.empty(64 << 20, dtype=torch.uint8)
        stream.begin(code)
        memory.fill_(1)
        stream.end()
        del memory


if where == "main":
    fill()
else:
    other = threading.Thread(target=fill)
    other.start()
    other.join()
recorder.state(finished=True, **counting.facts())
recorder.close()
counting.close()
