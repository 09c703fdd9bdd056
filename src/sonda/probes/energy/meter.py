"""The energy probe: a sampler in a process of its own around whatever runs, and what it found."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import numpy as np

from sonda.probes.energy.readings import GAP, Reading, Readings, read_rows
from sonda.probes.energy.regions import VARIABLE
from sonda.probes.energy.sampler import LONGEST_INTERVAL, READ, READY, Settings
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState
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
class Energy:
    """What was read of energy around a program. Times are ns since `origin`."""

    samples: list[Sample]
    facts: dict[str, Any]
    """`metered` of a run's `target`."""
    notes: list[str]
    states: list[ProbeState]
    readings: Readings
    origin: int
    regions: list[tuple[str, int, int]] = field(default_factory=list)
    """Name, begin and end of every region that the program announced."""


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
        self._settings = Settings(
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
        self._tell(msgspec.json.encode(self._settings) + b"\n")
        begin = time.perf_counter_ns()
        if self._idle:
            time.sleep(self._idle)
            self._idle_window = (begin, time.perf_counter_ns())
        # A reading just before the program begins, as there is one just after its end.
        self._tell(READ)
        return self

    def _tell(self, line: bytes) -> None:
        """Write a line to the sampler, and wait until it has read. Raises SondaError where it does not any more."""
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # what it says, or does not say, tells
        if self._process.stdout.read(len(READY)) != READY:
            self._stop()
            raise SondaError(f"the energy sampler failed: {self._failure()}", "run without the energy probe")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def available(self) -> ProbeState:
        """Whether anything can be read, as far as the readings up to now tell; call it inside the context."""
        with self._rows.open("rb") as rows:
            readings = read_rows(rows, self._settings.interval)
        counters = [one for one in readings.readings if one.channel.total]
        watched = max(((one.times[-1] - one.times[0]) / 1e9 for one in counters if len(one.times)), default=0.0)
        return _state(readings) if not counters or watched > DEAD_WITHIN_S else ProbeState(NAME, "ok")

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

    def _failure(self) -> str:
        lines = self._errors.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it ended without a word"

    def result(self, begin: int, end: int) -> Energy:
        """What was read, after `__exit__`; the program ran from `begin` to `end` (ns, `perf_counter_ns`)."""
        with self._rows.open("rb") as rows:
            readings = read_rows(rows, self._settings.interval)
        idle = tuple(moment - begin for moment in self._idle_window) if self._idle else ()
        notes = _notes(readings, (end - begin) / 1e9)
        facts: dict[str, Any] = {
            "interval": self._settings.interval,
            "readings": readings.rows,
            "largest_gap": readings.largest_gap,
            "idle": list(idle),
            "counters": [_fact(one) for one in readings.readings if one.channel.kind == "counter"],
            "missing": [msgspec.to_builtins(lack) for lack in readings.lacks],
            "devices": readings.about,
        }
        if readings.cpu is not None:
            facts["cpu"] = readings.cpu
        else:
            notes.append(f"energy: the sampler ended before the program did ({self._failure()})")
        if self._settings.model:
            facts["model"] = self._settings.model
        samples = [sample for one in readings.readings for sample in _samples(one, begin)]
        regions, doubts = _regions(readings, begin, end)
        return Energy(samples, facts, [*notes, *doubts], [_state(readings)], readings, begin, regions)


def check_times(interval: float, idle: float) -> None:
    """Raise SondaError for what the sampler cannot do (s)."""
    if not SHORTEST_S <= interval <= LONGEST_INTERVAL:
        raise SondaError(f"an interval of {interval:g} s is out of range", "give 10ms to 10s")
    if not 0 <= idle <= LONGEST_IDLE_S:
        raise SondaError(f"{idle:g} s of idling are out of range", "give 0 to 600 s")


def _fact(reading: Reading) -> dict[str, Any]:
    """A counter as `run.json` keeps it: which, from where, and whether it can be believed."""
    channel = reading.channel
    return {
        "sensor": channel.sensor,
        "device": channel.device,
        "origin": channel.origin,
        "source": channel.source,
        "covers": channel.covers,
        "total": channel.total,
        "update": channel.update,
        "highest": channel.highest,
        "state": reading.state,
        **({"reason": reading.reason} if reading.reason else {}),
        **({"wraps": reading.wraps} if reading.wraps else {}),
        **({"uncertain": channel.uncertain} if channel.uncertain else {}),
    }


def _samples(reading: Reading, origin: int) -> list[Sample]:
    """A sample for every reading; of a state, for every change and for the last."""
    channel = reading.channel
    if not reading.usable:
        return []
    kept = np.ones(len(reading.values), dtype=bool)
    if channel.kind == "state":
        kept[1:-1] = reading.values[1:-1] != reading.values[:-2]
    return [
        Sample(int(time) - origin, channel.sensor, float(value), channel.unit, channel.source, device=channel.device)
        for time, value in zip(reading.times[kept], reading.values[kept], strict=True)
    ]


def _state(readings: Readings) -> ProbeState:
    """The probe as a whole: ok where any counter of a sum moves, or the power of a device without one can be read."""
    counters = [one for one in readings.readings if one.channel.total]
    if any(one.usable for one in counters):
        devices = dict.fromkeys(f"{one.channel.device}: {one.channel.origin}" for one in counters if one.usable)
        return ProbeState(NAME, "ok", "; ".join(devices))
    powers = [one for one in readings.readings if one.channel.kind == "power" and len(one.values)]
    if powers:
        said = [f"{one.channel.device}: integral of {one.channel.origin}" for one in powers]
        return ProbeState(NAME, "ok", "; ".join(said))
    broken = [one for one in readings.readings if one.channel.kind == "counter" and not one.usable]
    if broken:
        what = "; ".join(f"{one.channel.sensor}: {one.reason}" for one in broken)
        if any(one.state == "dead" for one in broken):
            remedy = "use a bare-metal machine: a hypervisor shows counters without a sensor"
            return ProbeState(NAME, "dead", what, remedy)
        return ProbeState(NAME, "missing", what, "repeat the work until it takes seconds, and run again")
    said = list(dict.fromkeys(f"{lack.what}: {lack.reason}" for lack in readings.lacks))
    remedies = [lack.remedy for lack in readings.lacks if lack.remedy]
    return ProbeState(NAME, "missing", "; ".join(said) or "no energy counter", remedies[0] if remedies else "")


def _notes(readings: Readings, seconds: float) -> list[str]:
    """What a reader of the numbers must know, in sentences."""
    said = []
    for one in readings.readings:
        channel = one.channel
        name = f"{channel.device} {channel.sensor}"
        if channel.kind != "counter" or not (channel.total or channel.sensor.startswith("psys")):
            continue
        if one.state == "dead":
            said.append(f"{name} is dead: {one.reason}")
        elif one.reason:
            said.append(f"{name} is missing: {one.reason}")
        elif seconds < FEW_UPDATES * channel.update:
            said.append(
                f"{name}: the program ran for {seconds * 1e3:.0f} ms, {FEW_UPDATES} updates of the counter or fewer "
                f"(every {channel.update * 1e3:g} ms); repeat the work until it takes seconds"
            )
    if readings.largest_gap > GAP * readings.interval:
        said.append(
            f"energy was not read for {readings.largest_gap:.1f} s, though it was to be every {readings.interval:g} s: "
            "the sampler was suspended, or the machine overloaded"
        )
    return said


def _regions(readings: Readings, begin: int, end: int) -> tuple[list[tuple[str, int, int]], list[str]]:
    """The regions that were announced, in order of their beginning; one that was not ended ends with the program."""
    found: list[tuple[str, int, int]] = []
    doubts: list[str] = []
    open_: list[tuple[str, int]] = []
    for mark in sorted(readings.marks, key=lambda one: one.time):
        moment = min(max(mark.time, begin), end) - begin
        if mark.begins:
            open_.append((mark.name, moment))
            continue
        at = next((at for at in reversed(range(len(open_))) if open_[at][0] == mark.name), None)
        if at is None:
            doubts.append(f"region {mark.name!r} ended without having begun")
        else:
            found.append((*open_.pop(at), moment))
    for name, since in open_:
        doubts.append(f"region {name!r} was not ended: it is taken to end with the program")
        found.append((name, since, end - begin))
    return sorted(found, key=lambda one: one[1]), list(dict.fromkeys(doubts))
