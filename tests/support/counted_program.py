"""A program whose phases and layers a test opens itself, on a kernel that counts as told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fake_kernel import FakeKernel
from sonda.frameworks.collector.counters.process import FILE, Counting
from sonda.frameworks.collector.phases import Phases
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.reconstruction.assembly import assemble
from sonda.record.spans import Spans

CYCLES = {"name": "cycles", "type": 0, "config": 100}
INSTRUCTIONS = {"name": "instructions", "type": 0, "config": 101}
MISSES = {"name": "l2_misses", "type": 4, "config": 102}
BRANCHES = {"name": "branches", "type": 4, "config": 103}
TWO_GROUPS = [[CYCLES, INSTRUCTIONS, MISSES], [CYCLES, INSTRUCTIONS, BRANCHES]]


class Program:
    """A program whose phases and layers a test opens itself, on a kernel that counts as told."""

    def __init__(self, directory: Path, kernel: Any = None, **asked: Any) -> None:
        self.directory = directory
        if asked:
            (directory / FILE).write_text(json.dumps(asked))
        self.kernel: Any = kernel or FakeKernel()
        self.counting = Counting(str(directory), self.kernel)
        self.recorder = Recorder(str(directory))
        self.counting.define(self.recorder)
        self.phases = Phases(self.recorder)
        self.phases.open(self.counting)
        self.stream = self.recorder.stream()

    def phase(self, name: str, counts: dict[int, int], **how: Any) -> None:
        self.stream.begin(self.recorder.define(kind="phase", name=name))
        self.kernel.happen(counts, **how)
        self.stream.end()

    def read(self) -> Spans:
        self.recorder.state(finished=True, **self.counting.facts())
        self.recorder.close()
        self.counting.close()
        return assemble(self.directory, 0, 1 << 62).spans


def column(spans: Spans, quantity: str, source: str = "counted", **where: str) -> list[float]:
    return [None if np.isnan(one) else one for one in spans.metric(quantity, source)[spans.where(**where)].tolist()]
