"""Files of Nsight Compute: launches from its tables and its reports."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import msgspec

from sonda.imports import report_child
from sonda.imports.ncu_table import Damage, Launch, read_launches
from sonda.imports.text_lines import TextLines
from sonda.record.errors import SondaError

COMMAND = ("--csv", "--page", "raw", "--print-units", "base", "--print-fp")


def read_csv(path: Path, damage: Damage | None = None) -> Iterator[Launch]:
    """Launches of a table, packed by gzip or not; raises SondaError when there are none."""
    lines = TextLines(path)
    yield from read_launches((line.decode("utf-8", "replace") for line in lines), damage)
    if lines.cut and damage is not None:
        damage.cut = True


def read_report(path: Path, damage: Damage | None = None) -> Iterator[Launch]:
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
        yield from read_launches(done.stdout.splitlines(keepends=True), damage)
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
