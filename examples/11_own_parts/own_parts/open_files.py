"""A probe of the measured processes: the files that they hold open, `sonda run mlp --probe open-files`."""

import os
import threading
from contextlib import contextmanager
from time import perf_counter_ns

from sonda.record.run import ProbeState
from sonda.record.samples import Sample
from sonda.targets.instrument import AROUND, Contribution, EndedRun, Instrument, RunPlan


class OpenFiles(Instrument):
    """Counts the open files of all processes of the program; `open-files:1s` does so every second."""

    needs = frozenset({AROUND})

    def __init__(self, options: list[str]) -> None:
        self.interval = float(options[0].removesuffix("s")) if options else 0.1
        self.counts: list[tuple[int, int]] = []

    @contextmanager
    def around(self, plan: RunPlan):
        ended = threading.Event()

        def count() -> None:
            while not ended.wait(self.interval):
                self.counts.append((perf_counter_ns(), sum(map(count_files, plan.processes.living()))))

        thread = threading.Thread(target=count)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def collect(self, ended: EndedRun) -> Contribution:
        begin = ended.observation.begin
        samples = [Sample(moment - begin, "open files", files, "1", "counted") for moment, files in self.counts]
        notes = [f"at most {max(files for _, files in self.counts)} files were open at once"] if samples else []
        return Contribution(states=[ProbeState("open-files", "ok")], notes=notes, samples=samples)


def count_files(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:  # it has ended meanwhile
        return 0
