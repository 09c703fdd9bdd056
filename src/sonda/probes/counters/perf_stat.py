"""`perf stat` around a command: a second source for counts, as new as the distribution's perf.

Its output (`-j`) is one JSON object per line; values are texts, `<not supported>` and `<not counted>` among them.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sonda.probes.counters.command_counter import CountedCommand, EventCount
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState

SHORTEST = 0.01
"""s. perf refuses shorter intervals than a millisecond and warns below ten."""
USER = ("cycles", "instructions")
"""Asked for in user mode only, as our own counters of the PMU are."""
WHOLE = ("page-faults", "context-switches", "cpu-migrations")
"""Events that happen in the kernel too, or only there. Where an ordinary user's perf leaves the kernel out, it adds
`:u` to the event's name and says nothing else."""
USER_ONLY = "perf may count in user mode only: kernel.perf_event_paranoid is above 1"


class PerfStat:
    """Counts a command with the perf that is installed."""

    name = "perf stat"

    def __init__(self, program: str = "perf") -> None:
        self._program = program

    def state(self) -> ProbeState:
        if shutil.which(self._program) is None:
            return ProbeState(self.name, "missing", "perf is not installed", "apt install linux-perf")
        answer = subprocess.run([self._program, "--version"], capture_output=True, text=True, check=False)
        words = answer.stdout.split()
        if answer.returncode or not words:
            return ProbeState(self.name, "missing", "perf does not start", "install the perf of the running kernel")
        return ProbeState(self.name, "ok", f"version {words[-1]}")

    def count(
        self, command: Sequence[str], events: Sequence[str], interval: float = 0.0,
        environment: Mapping[str, str] | None = None,
    ) -> CountedCommand:  # fmt: skip
        """See `CommandCounter.count`. With an interval `code` is perf's own, which does not pass on the command's."""
        state = self.state()
        if state.state != "ok":
            raise SondaError(state.reason, state.remedy)
        if interval and interval < SHORTEST:
            raise SondaError(f"an interval of {interval:g} s is too short for perf stat", f"give {SHORTEST:g} or more")
        with tempfile.TemporaryDirectory() as directory:
            output = Path(directory) / "stat.json"
            wanted = [f"{name}:u" if name in USER else name for name in events]
            words = [self._program, "stat", "-j", "-o", str(output), "-e", ",".join(wanted)]
            if interval:
                words += ["-I", str(round(interval * 1000))]
            try:
                ended = subprocess.run([*words, "--", *command], check=False, env=environment)
            except OSError as error:
                raise SondaError(f"cannot start perf: {error.strerror}", "apt install linux-perf") from None
            text = output.read_text(encoding="utf-8", errors="replace") if output.exists() else ""
        if not text.strip():
            raise SondaError(f"perf stat wrote nothing (its code was {ended.returncode})", "see its output above")
        return parse_output(text, ended.returncode)


def parse_output(text: str, code: int = 0) -> CountedCommand:
    """The counts that `perf stat -j [-I ms]` wrote. Lines that hold no counter are left out.

    Raises SondaError where no line holds one.
    """
    counts: dict[str, EventCount] = {}
    missing: dict[str, str] = {}
    series: dict[float, dict[str, EventCount]] = {}
    objects = 0
    for line in text.splitlines():
        try:
            entry = msgspec.json.decode(line)
        except msgspec.DecodeError:
            continue  # perf begins with a comment, and warns among the objects
        if not isinstance(entry, dict) or "event" not in entry:
            continue
        objects += 1
        name, _, mode = str(entry["event"]).partition(":")
        count = _parse_count(entry)
        if name in WHOLE and mode == "u":
            missing[name] = USER_ONLY
        elif count is None:
            missing[name] = str(entry.get("counter-value", "")).strip("<>")
        elif "interval" in entry:
            # A line has what was counted since the line before it.
            counts[name] = _add_counts(counts.get(name), count)
        else:
            counts[name] = count
        if "interval" in entry and name in counts:
            # An interval in which the program slept is `<not counted>`: nothing was added.
            series.setdefault(float(entry["interval"]), {})[name] = counts[name]
    if not objects:
        raise SondaError("perf stat wrote no counters", "perf 5.17 or later is needed for -j")
    return CountedCommand(code, counts, sorted(series.items()), {k: v for k, v in missing.items() if k not in counts})


def _parse_count(entry: dict[str, Any]) -> EventCount | None:
    try:
        value = float(entry["counter-value"])
        running = int(float(entry.get("event-runtime", 0)))
        percent = float(entry.get("pcnt-running", 100.0))
    except (KeyError, TypeError, ValueError):
        return None
    # perf has scaled the value already and gives the share of the time as a rounded percentage. Its task clock is in
    # ms, which it says.
    factor = {"msec": 1e6}.get(str(entry.get("unit", "")), 1.0)
    enabled = running if percent >= 100 or percent <= 0 else round(running * 100 / percent)
    return EventCount(value * factor, enabled, running)


def _add_counts(before: EventCount | None, count: EventCount) -> EventCount:
    if before is None:
        return count
    return EventCount(before.value + count.value, before.enabled + count.enabled, before.running + count.running)
