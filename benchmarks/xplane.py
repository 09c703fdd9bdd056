"""A profile of 500 MB, constructed from a real one: read and broken down by Sonda and by xprof with a cold cache.

xprof lives in an environment of its own, whose interpreter $SONDA_XPROF_PYTHON names; where it is not there, its bars
are left out, and that is said. $SONDA_PROFILE_MB makes the profile smaller. xprof takes about 36 bytes of memory for a
byte of the file: both read a smaller one where that would be more than half of what is free.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil

from benchmarks.bar import Bar, Interval, at_least, at_most
from benchmarks.importing import child, interval, show
from benchmarks.profile_maker import ProfileMaker

INTERPRETER = "SONDA_XPROF_PYTHON"
MEGABYTES = "SONDA_PROFILE_MB"
XPROF_BYTES = 36
"""Of memory for a byte of the file, measured at 50 MB."""
ROUNDS = 3
SMALLER = 8
"""A second profile is so many times smaller."""
FASTER = 2.0
FLAT = 1.1
CLOSE = 0.01
"""Of the mean step."""

OURS = """
import json, resource, sys, time
from pathlib import Path
from sonda.analysis.traces.summary import summarise_trace
from sonda.targets.imported.launcher import import_files
began = time.perf_counter()
run = import_files([Path(sys.argv[1])], Path(sys.argv[2]))
found = summarise_trace(run).profile
ended = time.perf_counter()
with open("/proc/self/status") as file:
    own = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
processor = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
inner = found.steps[0].durations[1:-1]
print(json.dumps({"seconds": ended - began, "processor": processor, "bytes": 1024 * own,
                  "step_ms": sum(inner) / len(inner) / 1e6, "steps": len(inner)}))
"""
THEIRS = """
import json, os, resource, sys, tempfile, time
from xprof.convert.raw_to_tool_data import xspace_to_tool_data
with tempfile.TemporaryDirectory(dir=os.path.dirname(sys.argv[1])) as place:
    path = os.path.join(place, "host.xplane.pb")
    os.link(sys.argv[1], path)
    began = time.perf_counter()
    tables = [json.loads(xspace_to_tool_data([path], tool, {})[0])
              for tool in ("overview_page", "input_pipeline_analyzer", "framework_op_stats")]
    ended = time.perf_counter()
with open("/proc/self/status") as file:
    own = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
steps = [row for table in tables[1] if any(column["id"] == "stepnum" for column in table["cols"])
         for row in table["rows"]]
times = [row["c"][-1]["v"] for row in steps]
print(json.dumps({"seconds": ended - began, "processor": sum(resource.getrusage(resource.RUSAGE_SELF)[:2]),
                  "bytes": 1024 * own, "step_ms": sum(times) / len(times), "steps": len(times)}))
"""


def run() -> list[Bar]:
    """Print both side by side; different step times end the benchmark, speed and memory are held to bars."""
    size = int(os.environ.get(MEGABYTES) or 500) * 10**6
    maker = ProfileMaker()
    bars: list[Bar] = []
    with tempfile.TemporaryDirectory(prefix="sonda-profiles-") as name:
        place = Path(name)
        small = _measured(maker, place, size // SMALLER)
        large = _measured(maker, place, size)
        growth = large["bytes"] / small["bytes"]
        bars.append(at_most(f"memory at {SMALLER} times the size / at once", Interval(growth, growth, growth), FLAT))
        interpreter = os.environ.get(INTERPRETER, "")
        if not Path(interpreter).is_file():
            print(f"xprof is not there: {INTERPRETER} {'names no file' if interpreter else 'is not set'}. To have it:")
            print("  python -m venv xprof && xprof/bin/pip install xprof")
            print(f"  {INTERPRETER}=xprof/bin/python python -m benchmarks xplane")
            return bars
        bars += _beside(maker, place, min(size, psutil.virtual_memory().available // 2 // XPROF_BYTES), interpreter)
    return bars


def _measured(maker: ProfileMaker, place: Path, size: int) -> dict[str, Any]:
    profile = place / "ours.xplane.pb"
    maker.write(profile, size)
    found = _ours(profile, place)
    show("Sonda", profile.stat().st_size, found)
    profile.unlink()
    return found


def _beside(maker: ProfileMaker, place: Path, size: int, interpreter: str) -> list[Bar]:
    profile = place / "both.xplane.pb"
    maker.write(profile, size)
    length = profile.stat().st_size
    # xprof stands between rounds of ours, so that a machine that gets busier harms both.
    rounds = [_ours(profile, place)]
    theirs = child([interpreter, "-W", "ignore", "-c", THEIRS, str(profile)])
    rounds += [_ours(profile, place) for _ in range(ROUNDS - 1)]
    for one in rounds:
        show("Sonda", length, one)
    show("xprof", length, theirs)
    mine = statistics.median(one["step_ms"] for one in rounds)
    if theirs["steps"] != rounds[0]["steps"] or abs(mine / theirs["step_ms"] - 1) > CLOSE:
        raise SystemExit(f"xprof says {theirs['steps']} steps of {theirs['step_ms']} ms, Sonda {rounds[0]}")
    print(f"{theirs['steps']:,} steps; their mean is {theirs['step_ms']:.6f} ms by xprof, {mine:.6f} ms by Sonda")
    best = interval([one["processor"] for one in rounds])
    ratio = Interval(theirs["processor"] / best.median, theirs["processor"] / best.high, theirs["processor"] / best.low)
    memory = max(one["bytes"] for one in rounds) / theirs["bytes"]
    return [
        at_least("xprof's processor time / Sonda's, profile to breakdown", ratio, FASTER, "x", 1),
        at_most("Sonda's memory / xprof's", Interval(memory, memory, memory), 1.0, "", 3),
    ]


def _ours(profile: Path, place: Path) -> dict[str, Any]:
    return child([sys.executable, "-c", OURS, str(profile), str(place / "runs")])
