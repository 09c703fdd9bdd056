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
from sonda.targets.instrument import AROUND, Contribution, EndedRun, Instrument, RunPlan

SHORTEST = 0.01
"""s between two readings at least: a probe must not disturb what it watches."""
PATIENCE = 5.0
"""s that the last reading may take."""


@dataclass
class WatchedProbe:
    """One probe and its readings so far, each with its moment in ns on the host's clock."""

    name: str
    probe: Probe
    read: list[tuple[int, tuple[Reading, ...]]] = field(default_factory=list)
    failure: str = ""

    def read_once(self) -> bool:
        """Read the probe once; False where that failed. A probe that failed is not read again."""
        try:
            readings = tuple(self.probe.read())
            if not all(isinstance(reading, Reading) for reading in readings):
                raise TypeError("read() gives something that is no Reading")
        except Exception as error:
            self.failure = named_line(error)
            return False
        self.read.append((perf_counter_ns(), readings))
        return True

    def read_until(self, ended: threading.Event) -> None:
        """Read the probe every interval until `ended` is set, and once more then."""
        interval = max(SHORTEST, float(getattr(self.probe, "interval", 0.5)))
        going = not self.failure
        while going:
            last = ended.wait(interval)
            going = self.read_once() and not last

    def state(self) -> ProbeState:
        if self.failure:
            return ProbeState(self.name, "dead", self.failure, "mend or uninstall the package that adds it")
        return ProbeState(self.name, "ok", f"read {len(self.read)} times")

    def samples(self, begin: int) -> list[Sample]:
        """Every reading at its moment since `begin`, ns; the first one, just before the program began, is at 0."""
        return [
            Sample(
                max(0, moment - begin),
                f"{self.name}: {reading.sensor}",
                float(reading.value),
                reading.unit,
                reading.source,
                device=reading.device,
            )
            for moment, readings in self.read
            for reading in readings
        ]

    def summarise(self) -> list[dict[str, Any]]:
        """A record of every sensor for the run's `target`: mean, least and most of its readings, or its growth."""
        series: dict[tuple[str, str], list[Reading]] = {}
        for _, readings in self.read:
            for reading in readings:
                series.setdefault((reading.sensor, reading.device), []).append(reading)
        return [{"probe": self.name, "sensor": sensor, "device": device, **_summarise_sensor(readings)}
                for (sensor, device), readings in series.items()]  # fmt: skip


def _summarise_sensor(readings: Sequence[Reading]) -> dict[str, Any]:
    values = [float(reading.value) for reading in readings]
    summary = {"unit": readings[0].unit, "source": readings[0].source, "readings": len(values)}
    if readings[0].total:
        return {**summary, "growth": values[-1] - values[0]}
    least, most = min(values), max(values)
    # The mean of equal readings may be rounded past them.
    return {**summary, "mean": min(max(fmean(values), least), most), "least": least, "most": most}


class PluginInstrument(Instrument):
    """All added probes of a run, each read in a thread of its own while the program runs."""

    needs = frozenset({AROUND})

    def __init__(self, probes: Sequence[tuple[str, Probe]]) -> None:
        """Probes with the names by which they were asked for."""
        self.probes = probes
        self.watched: list[WatchedProbe] = []
        self.unreadable: list[ProbeState] = []
        """States of those that cannot be read here."""

    def prepare(self, plan: RunPlan) -> Mapping[str, str]:
        for name, probe in self.probes:
            state = _ask_state(name, probe)
            if state.state == "ok":
                self.watched.append(WatchedProbe(name, probe))
            else:
                self.unreadable.append(state)
        return {}

    @contextmanager
    def around(self, plan: RunPlan) -> Iterator[None]:
        ended = threading.Event()
        threads = [threading.Thread(target=watched.read_until, args=(ended,), daemon=True) for watched in self.watched]
        for watched in self.watched:
            watched.read_once()
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            for watched, thread in zip(self.watched, threads, strict=True):
                thread.join(PATIENCE)
                if thread.is_alive():
                    watched.failure = watched.failure or f"a reading took more than {PATIENCE:g} s"

    def collect(self, ended_run: EndedRun) -> Contribution:
        summaries = [row for watched in self.watched for row in watched.summarise()]
        return Contribution(
            target={"probed": summaries} if summaries else {},
            states=[*self.unreadable, *(watched.state() for watched in self.watched)],
            samples=[sample for watched in self.watched for sample in watched.samples(ended_run.observation.begin)],
        )


def _ask_state(name: str, probe: Any) -> ProbeState:
    """The state of a probe, under the name by which it was asked for. Raises SondaError where it states none."""
    try:
        state = probe.state()
        return ProbeState(name, state.state, state.reason, state.remedy)
    except Exception as error:
        raise SondaError(
            f"the probe {name} does not say its state: {named_line(error)}",
            "mend or uninstall the package that adds it",
        ) from error
