"""Reports of Nsight Compute: every launch becomes a kernel with what was counted in it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

import msgspec
import numpy as np

from sonda.imports import report_child
from sonda.imports.ncu_metrics import counted, duration, not_kept, precisions, roofs
from sonda.imports.ncu_table import Launch, read_launches
from sonda.record.errors import SondaError
from sonda.record.quantity import Metric
from sonda.record.span import Spans, Words

EXACT = 1 << 53
"""Whole numbers below are kept exactly."""
HALF = (
    "half-precision FLOPs are counted by instruction, and one that works on two packed numbers counts once: there may "
    "be up to twice as many"
)
COMMAND = ("--csv", "--page", "raw", "--print-units", "base", "--print-fp")


def read_csv(path: Path) -> Iterator[Launch]:
    """Launches of a table; raises SondaError when there are none."""
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        yield from read_launches(file)


def read_report(path: Path) -> Iterator[Launch]:
    """Launches of an `.ncu-rep` file, through ncu itself or NVIDIA's `ncu_report`. Raises SondaError without both."""
    program = shutil.which("ncu")
    if program is not None:
        done = subprocess.run(
            [program, "-i", str(path), *COMMAND], capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode:
            last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["no reason given"]
            raise SondaError(
                f"ncu cannot read {path.name}: {last[0][:200]}", "use the ncu that wrote it, or a newer one"
            )
        yield from read_launches(done.stdout.splitlines(keepends=True))
        return
    yield from _from_child(path)


def _from_child(path: Path) -> Iterator[Launch]:
    """Launches as NVIDIA's `ncu_report` reads them."""
    command = [sys.executable, "-P", report_child.__file__, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == report_child.NOT_INSTALLED:
        raise SondaError(
            f"{path.name} needs a reader of NVIDIA's",
            f"pip install ncu-report, or where ncu is: ncu -i {path.name} {' '.join(COMMAND)} > launches.csv",
        )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
        raise SondaError(
            f"{path.name} is no report that ncu_report can read: {last[:200]}", "upgrade ncu-report, or use ncu itself"
        )
    lines = done.stdout.splitlines()
    for number, line in enumerate(lines):
        about = msgspec.json.decode(line)
        launch = Launch(number, about["name"], "", 0, 0, "", "")
        for name, text, unit in about["metrics"]:
            launch.take(name, text, unit)
        launch.device = int(launch.values.get("launch__device_id", Decimal(0)))
        launch.stream = int(launch.values.get("launch__stream_id", Decimal(0)))
        yield launch
    if not lines:
        raise SondaError(f"{path.name} holds no launch", "profile a kernel with ncu")


def launch_spans(launches: Iterator[Launch]) -> tuple[Spans, list[str]]:
    """A span per launch, one behind the other because ncu does not say when they ran, and what to know about them."""
    found = list(launches)
    values = [counted(launch) for launch in found]
    lengths = [duration(launch) for launch in found]
    metrics = metric_columns(values, "counted") | metric_columns([roofs(launch) for launch in found], "derived")
    durations = np.array([length or 0 for length in lengths], dtype=np.int64)
    devices = [f"cuda:{launch.device}" for launch in found]
    spans = Spans(
        {
            "start": np.concatenate([[0], np.cumsum(durations)[:-1]]) if len(found) else durations,
            "duration": durations,
            "stream": np.array([launch.stream for launch in found]),
        },
        {
            "kind": Words.constant("kernel", len(found)),
            "name": Words.of(launch.kernel for launch in found),
            "pass": Words.constant("kernels", len(found)),
            "clock": Words.constant("device", len(found)),
            "device": Words.of(devices),
        },
        metrics,
    )
    return spans, _remarks(found, values, lengths)


def metric_columns(values: Sequence[Mapping[str, Decimal]], source: str) -> dict[str, np.ndarray]:
    """Columns `quantity:source` from one dictionary per row; NaN where a row has no value."""
    return {
        str(Metric(name, source)): np.array([float(one[name]) if name in one else np.nan for one in values])
        for name in dict.fromkeys(name for one in values for name in one)
    }


def _remarks(found: list[Launch], values: list[dict[str, Decimal]], lengths: list[int | None]) -> list[str]:
    said = ["times under ncu are those of replayed kernels: take counts from here and times from a trace"]
    numbers = [launch.number for launch in found]
    absent = sorted(set(range(numbers[0], numbers[-1])) - set(numbers)) if numbers == sorted(numbers) else []
    if absent:
        said.append(f"launches are missing from the table: {listed([str(number) for number in absent])}")
    kinds = list(dict.fromkeys(kind for launch in found for kind in precisions(launch)))
    if kinds:
        said.append(f"FLOPs were counted in: {', '.join(kinds)}")
    if any("flops" not in one for one in values):
        said.append(
            "FLOPs are missing where fadd, fmul and ffma of a precision, or a tensor cores' type, were not all counted"
        )
    if None in lengths:
        said.append(f"{lengths.count(None):,} launches have no duration: gpu__time_duration.sum was not asked for")
    if any(one.get("flops_half") for one in values):
        said.append(HALF)
    lacking = sorted({name for launch in found for name in launch.missing if not _unasked(name)})
    if lacking:
        said.append(f"ncu had no number for {listed(lacking)}")
    if any(value >= EXACT for one in values for name, value in one.items() if name.startswith("flops")):
        said.append("counts of 2^53 and more are rounded")
    extra = not_kept(dict.fromkeys(name for launch in found for name in launch.values))
    if extra:
        said.append(f"{len(extra)} metrics are not kept: {listed(extra)}")
    return said


def _unasked(name: str) -> bool:
    """Whether ncu prints a metric of its own accord."""
    return name.startswith(("device__", "launch__", "profiler__", "nvlink__", "c2clink__", "numa__"))


def listed(words: Sequence[str], most: int = 5) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more
