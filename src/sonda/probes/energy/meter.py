"""The energy probe: a sampler runs in a process of its own while a program runs; its readings become a measurement."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import msgspec
import numpy as np

from sonda.probes.energy.readings import GAP, ChannelSeries, EnergyReadings, read_rows
from sonda.probes.energy.regions import VARIABLE
from sonda.probes.energy.sampler import LONGEST_INTERVAL, READ, READY, SamplerSettings
from sonda.record.errors import SondaError
from sonda.record.readings import EnergyCounter, EnergyLack, ProbeState, StoredEnergy
from sonda.record.samples import Sample

INTERVAL_S = 0.5
SHORTEST_S = 0.01
"""Reading a GPU takes 4 ms."""
NAME = "energy"
LONGEST_IDLE_S = 600.0
DEAD_WITHIN_S = 0.5
"""Before a program starts, a counter is not called dead sooner: the machine may be asleep."""
FEW_UPDATES = 10
"""A window of fewer updates of its counter than this is known to no better than 10 %."""


@dataclass
class EnergyMeasurement:
    """The energy that was read while a program ran. Times are ns since `origin`."""

    samples: list[Sample]
    facts: StoredEnergy
    """`metered` of a run's `target`, but for the devices used and the regions."""
    notes: list[str]
    states: list[ProbeState]
    readings: EnergyReadings
    origin: int
    regions: list[tuple[str, int, int]] = field(default_factory=list)
    """Name, beginning and end of every region that the program announced."""


class EnergySampler:
    """Reads energy from `__enter__` to `__exit__`; the program runs in between, with `environment` added to its own.

    `idle` s are watched first, while nothing of ours runs. `root` stands in for `/`.
    """

    def __init__(
        self,
        directory: Path,
        interval: float = INTERVAL_S,
        idle: float = 0.0,
        *,
        root: Path = Path("/"),
        gpus: bool = True,
        model: str = "",
    ) -> None:
        """The sampler's files are written into `directory`. Raises SondaError for an interval below 10 ms."""
        check_times(interval, idle)
        self._rows = directory / "energy.rows"
        self._regions = directory / "regions"
        self._errors = directory / "energy.errors"
        self._idle = idle
        self._idle_window = (0, 0)
        self._settings = SamplerSettings(
            interval=interval, file=str(self._rows), regions=str(self._regions), root=str(root), gpus=gpus, model=model
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.environment = {VARIABLE: str(self._regions.resolve())}

    def __enter__(self) -> EnergySampler:
        """Start reading; returns after the first reading and the idle time. Raises SondaError where it cannot."""
        self._regions.touch()
        # -P: a file in the user's directory that is named like a module must not be imported. A session of its own:
        # what a terminal sends to the program must not end its measurement.
        command = [sys.executable, "-P", "-m", "sonda.probes.energy.sampler"]
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
            )
        self._send(msgspec.json.encode(self._settings) + b"\n")
        begin = time.perf_counter_ns()
        if self._idle:
            time.sleep(self._idle)
            self._idle_window = (begin, time.perf_counter_ns())
        # A reading just before the program begins, as there is one just after its end.
        self._send(READ)
        return self

    def _send(self, line: bytes) -> None:
        """Write a line to the sampler, and wait until it has taken a reading. Raises SondaError where it has ended."""
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, which the missing answer shows
        if self._process.stdout.read(len(READY)) != READY:
            self._stop()
            raise SondaError(f"the energy sampler failed: {self._last_error()}", "run without the energy probe")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def check_readable(self) -> ProbeState:
        """Whether anything can be read, as far as the readings up to now show; call it inside the context."""
        with self._rows.open("rb") as rows:
            readings = read_rows(rows, self._settings.interval)
        counters = [series for series in readings.series if series.channel.total]
        watched = max(
            ((series.times[-1] - series.times[0]) / 1e9 for series in counters if len(series.times)), default=0.0
        )
        return _judge_probe(readings) if not counters or watched > DEAD_WITHIN_S else ProbeState(NAME, "ok")

    @property
    def process(self) -> int:
        """The sampler's process id."""
        assert self._process is not None
        return self._process.pid

    def _stop(self) -> None:
        if self._process is None or self._process.stdin is None or self._process.stdin.closed:
            return
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _last_error(self) -> str:
        """The last line that the sampler wrote to stderr."""
        lines = self._errors.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it ended without a word"

    def result(self, begin: int, end: int) -> EnergyMeasurement:
        """The measurement, after `__exit__`; the program ran from `begin` to `end` (ns, `perf_counter_ns`)."""
        with self._rows.open("rb") as rows:
            readings = read_rows(rows, self._settings.interval)
        notes = _describe_doubts(readings, (end - begin) / 1e9)
        if readings.cpu is None:
            notes.append(f"energy: the sampler ended before the program did ({self._last_error()})")
        facts = StoredEnergy(
            interval=self._settings.interval,
            readings=readings.rows,
            largest_gap=readings.largest_gap,
            idle=[moment - begin for moment in self._idle_window] if self._idle else [],
            counters=[_counter_facts(series) for series in readings.series if series.channel.kind == "counter"],
            missing=[EnergyLack(**msgspec.structs.asdict(lack)) for lack in readings.lacks],
            devices=readings.about,
            model=self._settings.model,
            cpu=readings.cpu or 0.0,
        )
        samples = [sample for series in readings.series for sample in _make_samples(series, begin)]
        regions, doubts = _pair_marks(readings, begin, end)
        return EnergyMeasurement(samples, facts, [*notes, *doubts], [_judge_probe(readings)], readings, begin, regions)


def check_times(interval: float, idle: float) -> None:
    """Raise SondaError for an interval or an idle time (s) that the sampler cannot keep."""
    if not SHORTEST_S <= interval <= LONGEST_INTERVAL:
        raise SondaError(f"an interval of {interval:g} s is out of range", "give 10ms to 10s")
    if not 0 <= idle <= LONGEST_IDLE_S:
        raise SondaError(f"{idle:g} s of idling are out of range", "give 0 to 600 s")


def _counter_facts(series: ChannelSeries) -> EnergyCounter:
    """A counter as `run.json` keeps it: which, from where, and whether it can be believed."""
    channel = series.channel
    return EnergyCounter(
        sensor=channel.sensor,
        device=channel.device,
        origin=channel.origin,
        source=channel.source,
        covers=channel.covers,
        total=channel.total,
        update=channel.update,
        highest=channel.highest,
        state=series.state,
        reason=series.reason,
        uncertain=channel.uncertain,
    )


def _make_samples(series: ChannelSeries, origin: int) -> list[Sample]:
    """A sample for every reading. A state has one where it changes and one at its end."""
    channel = series.channel
    if not series.usable:
        return []
    changed = np.ones(len(series.values), dtype=bool)
    if channel.kind == "state":
        changed[1:-1] = series.values[1:-1] != series.values[:-2]
    return [
        Sample(int(time) - origin, channel.sensor, float(value), channel.unit, channel.source, device=channel.device)
        for time, value in zip(series.times[changed], series.values[changed], strict=True)
    ]


def _judge_probe(readings: EnergyReadings) -> ProbeState:
    """The state of the probe. It is ok where a counter of a sum moves, or where the power of a device can be read."""
    counters = [series for series in readings.series if series.channel.total]
    if any(series.usable for series in counters):
        usable = [series.channel for series in counters if series.usable]
        devices = dict.fromkeys(f"{channel.device}: {channel.origin}" for channel in usable)
        return ProbeState(NAME, "ok", "; ".join(devices))
    powers = [series for series in readings.series if series.channel.kind == "power" and len(series.values)]
    if powers:
        integrals = [f"{series.channel.device}: integral of {series.channel.origin}" for series in powers]
        return ProbeState(NAME, "ok", "; ".join(integrals))
    broken = [series for series in readings.series if series.channel.kind == "counter" and not series.usable]
    if broken:
        reason = "; ".join(f"{series.channel.sensor}: {series.reason}" for series in broken)
        if any(series.state == "dead" for series in broken):
            remedy = "use a bare-metal machine: a hypervisor shows counters without a sensor"
            return ProbeState(NAME, "dead", reason, remedy)
        return ProbeState(NAME, "missing", reason, "repeat the work until it takes seconds, and run again")
    reasons = list(dict.fromkeys(f"{lack.what}: {lack.reason}" for lack in readings.lacks))
    remedies = [lack.remedy for lack in readings.lacks if lack.remedy]
    return ProbeState(NAME, "missing", "; ".join(reasons) or "no energy counter", remedies[0] if remedies else "")


def _describe_doubts(readings: EnergyReadings, seconds: float) -> list[str]:
    """Sentences about what makes the numbers doubtful. `seconds` is how long the program ran."""
    notes = []
    for series in readings.series:
        channel = series.channel
        name = f"{channel.device} {channel.sensor}"
        if channel.kind != "counter" or not (channel.total or channel.sensor.startswith("psys")):
            continue
        if series.state == "dead":
            notes.append(f"{name} is dead: {series.reason}")
        elif series.reason:
            notes.append(f"{name} is missing: {series.reason}")
        elif seconds < FEW_UPDATES * channel.update:
            notes.append(
                f"{name}: the program ran for {seconds * 1e3:.0f} ms, {FEW_UPDATES} updates of the counter or fewer "
                f"(every {channel.update * 1e3:g} ms); repeat the work until it takes seconds"
            )
    if readings.largest_gap > GAP * readings.interval:
        notes.append(
            f"energy was not read for {readings.largest_gap:.1f} s, though it was to be every {readings.interval:g} s: "
            "the sampler was suspended, or the machine overloaded"
        )
    return notes


def _pair_marks(readings: EnergyReadings, begin: int, end: int) -> tuple[list[tuple[str, int, int]], list[str]]:
    """Regions (name, beginning, end; ns since `begin`) in order of their beginning, and doubts about them.

    A region that the program did not end is taken to end with the program.
    """
    regions: list[tuple[str, int, int]] = []
    doubts: list[str] = []
    begun: list[tuple[str, int]] = []
    for mark in sorted(readings.marks, key=lambda mark: mark.time):
        moment = min(max(mark.time, begin), end) - begin
        if mark.begins:
            begun.append((mark.name, moment))
            continue
        place = next((place for place in reversed(range(len(begun))) if begun[place][0] == mark.name), None)
        if place is None:
            doubts.append(f"region {mark.name!r} ended without having begun")
        else:
            regions.append((*begun.pop(place), moment))
    for name, since in begun:
        doubts.append(f"region {name!r} was not ended: it is taken to end with the program")
        regions.append((name, since, end - begin))
    return sorted(regions, key=lambda region: region[1]), list(dict.fromkeys(doubts))
