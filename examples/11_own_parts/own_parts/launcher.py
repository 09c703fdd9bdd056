"""A launcher of one's own: a shell script whose lines are steps, `python -m own_parts.launcher build.sh energy`."""

import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter_ns

import numpy as np

from sonda.record.errors import SondaError
from sonda.record.run import now
from sonda.record.spans import Spans, Words
from sonda.record.store import Store
from sonda.record.target import ProgramTarget
from sonda.record.workload import Workload
from sonda.targets.instrument import AROUND, Circumstances, Launcher, Observation
from sonda.targets.instruments.registry import instruments_for
from sonda.targets.pipeline import make_run


class Script(Launcher):
    """Runs one line after the other; a line that fails ends it."""

    kind, offers = "script", frozenset({AROUND})

    def __init__(self, path: Path) -> None:
        self.path, self.lines = path, [line for line in path.read_text().splitlines() if line.strip()]

    def launch(self, plan, environment) -> None:
        self.times = [perf_counter_ns()]
        for line in self.lines:
            with subprocess.Popen(["sh", "-c", line], env={**os.environ, **environment}, stdout=sys.stderr) as shell:
                plan.processes.add(shell.pid)
            if shell.returncode:
                raise SondaError(f"{line!r} failed", "see its output above")
            self.times.append(perf_counter_ns())

    def observe(self, plan) -> Observation:
        begins, ends = np.array(self.times[:1] + self.times[:-1]), np.array(self.times[-1:] + self.times[1:])
        numbers = {"start": begins - begins[0], "duration": ends - begins, "parent": [-1] + [0] * len(self.lines)}
        spans = Spans(numbers, {"kind": Words.of(["run"] + ["step"] * len(self.lines))})
        about, place = Workload(name=self.path.name), ProgramTarget(spec="", device="cpu")
        return Observation(spans, about, place, Circumstances(now(), {}, {}), begin=self.times[0], end=self.times[-1])


if __name__ == "__main__":
    script = Script(Path(sys.argv[1]))
    print(make_run(script, instruments_for(sys.argv[2:], script), Store()).id)
