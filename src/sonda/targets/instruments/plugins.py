"""Probes that other packages add, through the entry-point group `sonda.probes`: read beside a program, kept in its run.

An entry makes a probe (`record.protocols.Probe`) of the options after its name: `--probe weather:berlin+5s` calls it
with `["berlin", "5s"]`. It may make an `Instrument` instead, which is called like Sonda's own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import fmean
from time import perf_counter_ns
from typing import Any

from sonda.record.errors import SondaError, named_line
from sonda.record.protocols import Probe
from sonda.record.run import ProbeState
from sonda.record.samples import Reading, Sample
from sonda.targets.instrument import AROUND, Contribution, Instrument, RunPlan, Seen

SHORTEST = 0.01
"""s between two readings at least: a probe must not disturb what it watches."""
PATIENCE = 5.0
"""s that the last reading may take."""


@dataclass
class Watched:
    """One probe and what it has read: moments (ns on the host's clock) with their readings."""

    name: str
    probe: Probe
    read: list[tuple[int, tuple[Reading, ...]]] = field(default_factory=list)
    failure: str = ""

    def take(self) -> bool:
        """Read once; False where that failed, after which it is not read again."""
        try:
            found = tuple(self.probe.read())
            if not all(isinstance(one, Reading) for one in found):
                raise TypeError("read() gives something that is no Reading")
        except Exception as error:
            self.failure = named_line(error)
            return False
        self.read.append((perf_counter_ns(), found))
        return True

    def watch(self, ended: threading.Event) -> None:
        """Read every interval, and once more at the end."""
        interval = max(SHORTEST, float(getattr(self.probe, "interval", 0.5)))
        going = not self.failure
        while going:
            last = ended.wait(interval)
            going = self.take() and not last

    def state(self) -> ProbeState:
        if self.failure:
            return ProbeState(self.name, "dead", self.failure, "mend or uninstall the package that adds it")
        return ProbeState(self.name, "ok", f"read {len(self.read)} times")

    def samples(self, begin: int) -> list[Sample]:
        """Every reading at its moment; the first, taken just before the program began, stands at 0."""
        return [
            Sample(max(0, moment - begin), f"{self.name}: {one.sensor}", float(one.value), one.unit, one.source,
                   device=one.device)
            for moment, found in self.read for one in found
        ]  # fmt: skip

    def kept(self) -> list[dict[str, Any]]:
        """Of every sensor, for the run's `target`: mean, least and most of its readings, or by how much it grew."""
        series: dict[tuple[str, str], list[Reading]] = {}
        for _, found in self.read:
            for one in found:
                series.setdefault((one.sensor, one.device), []).append(one)
        return [{"probe": self.name, "sensor": sensor, "device": device, **_told(readings)}
                for (sensor, device), readings in series.items()]  # fmt: skip


def _told(readings: Sequence[Reading]) -> dict[str, Any]:
    values = [float(one.value) for one in readings]
    about = {"unit": readings[0].unit, "source": readings[0].source, "readings": len(values)}
    if readings[0].total:
        return {**about, "growth": values[-1] - values[0]}
    least, most = min(values), max(values)
    # The mean of equal readings may be rounded past them.
    return {**about, "mean": min(max(fmean(values), least), most), "least": least, "most": most}


class PluginInstrument(Instrument):
    """All added probes of a run, each read in a thread of its own while the program runs."""

    needs = frozenset({AROUND})

    def __init__(self, probes: Sequence[tuple[str, Probe]]) -> None:
        """Probes with the names by which they were asked for."""
        self.probes = probes
        self.watched: list[Watched] = []
        self.unreadable: list[ProbeState] = []
        """States of those that cannot be read here."""

    def prepare(self, plan: RunPlan) -> Mapping[str, str]:
        for name, probe in self.probes:
            state = _state(name, probe)
            if state.state == "ok":
                self.watched.append(Watched(name, probe))
            else:
                self.unreadable.append(state)
        return {}

    @contextmanager
    def around(self, plan: RunPlan) -> Iterator[None]:
        ended = threading.Event()
        threads = [threading.Thread(target=one.watch, args=(ended,), daemon=True) for one in self.watched]
        for one in self.watched:
            one.take()
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            for one, thread in zip(self.watched, threads, strict=True):
                thread.join(PATIENCE)
                if thread.is_alive():
                    one.failure = one.failure or f"a reading took more than {PATIENCE:g} s"

    def collect(self, seen: Seen) -> Contribution:
        kept = [row for one in self.watched for row in one.kept()]
        return Contribution(
            target={"probed": kept} if kept else {},
            states=[*self.unreadable, *(one.state() for one in self.watched)],
            samples=[sample for one in self.watched for sample in one.samples(seen.observation.begin)],
        )


def _state(name: str, probe: Any) -> ProbeState:
    """What a probe says of itself, under the name by which it was asked for."""
    try:
        said = probe.state()
        return ProbeState(name, said.state, said.reason, said.remedy)
    except Exception as error:
        raise SondaError(
            f"the probe {name} does not say its state: {named_line(error)}",
            "mend or uninstall the package that adds it",
        ) from error
