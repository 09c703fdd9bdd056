"""A trace of 1 GB, made from a real one: read and broken down by Sonda and by Holistic Trace Analysis; memory at 4 GB.

HTA lives in an environment of its own, whose interpreter $SONDA_HTA_PYTHON names; where it is not there, its bars are
left out, and that is said. $SONDA_TRACE_MB makes the traces smaller.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.bar import Bar, Interval, at_least, at_most
from benchmarks.trace_maker import TraceMaker

INTERPRETER = "SONDA_HTA_PYTHON"
MEGABYTES = "SONDA_TRACE_MB"
LARGER = 4
"""The second trace is so many times the first."""
ROUNDS = 3
FASTER = 10.0
SMALLER = 0.1
"""Of HTA's memory."""
FLAT = 1.1
"""Memory of the larger trace over that of the smaller: no more than the noise of an allocator."""
CLOSE = 1e-6
"""HTA adds up doubles of 4·10^12 µs, whose last digit is half a ns."""

OURS = """
import json, resource, sys, time
from pathlib import Path
from sonda.analysis.traces.summary import device_work
from sonda.targets.imported.launcher import import_files
began = time.perf_counter()
run = import_files([Path(sys.argv[1])], Path(sys.argv[2]))
read = time.perf_counter()
device, = device_work(run).devices
ended = time.perf_counter()
with open("/proc/self/status") as file:
    own = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
helper = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
processor = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
figures = [device.idle / 1e3, device.compute / 1e3, device.non_compute / 1e3, device.window / 1e3]
print(json.dumps({"seconds": ended - began, "breakdown": ended - read, "processor": processor,
                  "bytes": 1024 * (own + helper), "figures": figures,
                  "run": str(run.directory)}))
"""
REST = """
import json, resource, sys, time
from pathlib import Path
from sonda.analysis.traces.summary import summarise_trace
from sonda.record.run import Run
from sonda.report.trace.chrome import write_trace
run = Run.load(Path(sys.argv[1]))
summarise_trace(run)
summary = time.process_time()
write_trace(Path(sys.argv[2]), run)
with open("/proc/self/status") as file:
    own = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
print(json.dumps({"summary": summary, "export": time.process_time() - summary, "bytes": 1024 * own}))
"""
THEIRS = """
import json, logging, os, resource, sys, time
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
began = time.perf_counter()
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, include_last_profiler_step=True)
row = analysis.get_temporal_breakdown(visualize=False).iloc[0]
ended = time.perf_counter()
with open("/proc/self/status") as file:
    own = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
helper = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
processor = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
names = ("idle_time(us)", "compute_time(us)", "non_compute_time(us)", "kernel_time(us)")
print(json.dumps({"seconds": ended - began, "processor": processor, "bytes": 1024 * (own + helper),
                  "figures": [float(row[name]) for name in names]}))
"""


def run() -> list[Bar]:
    """Print both side by side; different figures end the benchmark, speed and memory are held to bars."""
    size = int(os.environ.get(MEGABYTES) or 1000) * 10**6
    maker = TraceMaker()
    bars: list[Bar] = []
    with tempfile.TemporaryDirectory(prefix="sonda-traces-") as name:
        place = Path(name)
        trace = place / "trace.json"
        maker.write(trace, size)
        length = trace.stat().st_size
        # HTA stands between rounds of ours, so that a machine that gets busier harms both.
        rounds = [_ours(trace, place)]
        theirs = _theirs(trace)
        rounds += [_ours(trace, place) for _ in range(ROUNDS - 1)]
        for one in rounds:
            show("Sonda", length, one)
        best = interval([one["seconds"] for one in rounds])
        memory = max(one["bytes"] for one in rounds)
        if theirs is not None:
            show("HTA", length, theirs)
            for mine, other in zip(rounds[0]["figures"], theirs["figures"], strict=True):
                if abs(mine - other) > CLOSE * max(abs(mine), 1.0):
                    raise SystemExit(f"HTA says {theirs['figures']} µs, Sonda {rounds[0]['figures']}")
            print("idle, compute, non-compute and kernel time are equal")
            times = theirs["seconds"]
            ratio = Interval(times / best.median, times / best.high, times / best.low)
            bars.append(at_least("HTA's time / Sonda's, trace to breakdown", ratio, FASTER, "x", 1))
            share = memory / theirs["bytes"]
            bars.append(at_most("Sonda's memory / HTA's", Interval(share, share, share), SMALLER, "", 3))
        rest = _rest(rounds[0], place)
        trace.unlink()
        maker.write(trace, LARGER * size)
        larger = _ours(trace, place)
        show("Sonda", trace.stat().st_size, larger)
        growth = larger["bytes"] / memory
        bars.append(at_most(f"memory at {LARGER} times the size / at once", Interval(growth, growth, growth), FLAT))
        growth = _rest(larger, place)["bytes"] / rest["bytes"]
        bars.append(at_most("the same of summary, critical path and export", Interval(growth, growth, growth), FLAT))
    return bars


def interval(values: list[float]) -> Interval:
    """The middle and the ends of few rounds."""
    ordered = sorted(values)
    return Interval(ordered[len(ordered) // 2], ordered[0], ordered[-1])


def show(who: str, length: int, found: dict[str, Any]) -> None:
    """One line on a measured reading of `length` bytes."""
    rate = length / 1e6 / found["seconds"]
    print(
        f"{who:6} {length / 1e6:8,.0f} MB  {found['seconds']:7.2f} s ({found['processor']:.2f} s of processors)"
        f"  {rate:6.1f} MB/s  {found['bytes'] / 1e6:8,.0f} MB of memory ({found['bytes'] / length:.2f} bytes a byte)"
    )


def _ours(trace: Path, place: Path) -> dict[str, Any]:
    return child([sys.executable, "-c", OURS, str(trace), str(place / "runs")])


def _rest(found: dict[str, Any], place: Path) -> dict[str, Any]:
    """What is done with a run that was read: the summary with its critical path, and the trace for Perfetto."""
    done = child([sys.executable, "-c", REST, found["run"], str(place / "exported.json")])
    print(
        f"       summary and critical path {done['summary']:.1f} s, export {done['export']:.1f} s of a processor, "
        f"{done['bytes'] / 1e6:,.0f} MB of memory"
    )
    return done


def _theirs(trace: Path) -> dict[str, Any] | None:
    interpreter = os.environ.get(INTERPRETER) or (sys.executable if find_spec("hta") else "")
    if not Path(interpreter).is_file():
        print(f"HTA is not there: {INTERPRETER} {'names no file' if interpreter else 'is not set'}. To have it:")
        print("  python -m venv hta && hta/bin/pip install HolisticTraceAnalysis")
        print(f"  {INTERPRETER}=hta/bin/python python -m benchmarks importing")
        return None
    return child([interpreter, "-W", "ignore", "-c", THEIRS, str(trace)])


def child(command: list[str]) -> dict[str, Any]:
    """The last line that a program writes, as JSON; where it fails, its last words end the benchmark."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise SystemExit(f"{command[0]} failed: {last}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found
