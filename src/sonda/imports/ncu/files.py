"""Files of Nsight Compute: launches from its tables and its reports."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path

import msgspec

from sonda.imports.ncu import report_child
from sonda.imports.ncu.tables import Damage, Launch, read_launches
from sonda.imports.text_lines import TextLines
from sonda.record.errors import SondaError

COMMAND = ("--csv", "--page", "raw", "--print-units", "base", "--print-fp")
LARGEST_ID = 1 << 31
"""Of a device or a stream; ncu's tables have small numbers for both."""


def read_csv(path: Path, damage: Damage | None = None) -> Iterator[Launch]:
    """Launches of a table, packed by gzip or not; raises SondaError when there are none."""
    lines = TextLines(path)
    yield from read_launches((line.decode("utf-8", "replace") for line in lines), damage)
    if lines.cut and damage is not None:
        damage.cut = True


def read_report(path: Path, damage: Damage | None = None) -> Iterator[Launch]:
    """Launches of an `.ncu-rep` file, through ncu itself or NVIDIA's `ncu_report`. Raises SondaError without both."""
    program = shutil.which("ncu")
    if program is None:
        yield from _from_child(path)
        return
    with _Child([program, "-i", str(path), *COMMAND]) as child:
        try:
            yield from read_launches(child.lines(), damage)
        except SondaError:
            if not child.code():
                raise
        if child.code():
            raise SondaError(
                f"ncu cannot read {path.name}: {child.last_line()}", "use the ncu that wrote it, or a newer one"
            )


def _from_child(path: Path) -> Iterator[Launch]:
    """Launches as NVIDIA's `ncu_report` reads them."""
    number = 0
    with _Child([sys.executable, "-P", report_child.__file__, str(path)]) as child:
        for number, line in enumerate(child.lines(), 1):
            if line.endswith("\n"):
                yield _launch_of(line, number - 1)
        code = child.code()
        if code == report_child.NOT_INSTALLED:
            raise SondaError(
                f"{path.name} needs a reader of NVIDIA's",
                f"pip install ncu-report, or where ncu is: ncu -i {path.name} {' '.join(COMMAND)} > launches.csv",
            )
        if code:
            why = child.last_line()
            raise SondaError(
                f"{path.name} is no report that ncu_report can read: {why}", "upgrade ncu-report, or use ncu itself"
            )
    if not number:
        raise SondaError(f"{path.name} holds no launch", "profile a kernel with ncu")


def _launch_of(line: str, number: int) -> Launch:
    about = msgspec.json.decode(line)
    launch = Launch(number, about["name"], "", 0, 0, "", "")
    for name, text, unit in about["metrics"]:
        launch.take(name, text, unit)
    launch.device, launch.stream = (
        int(value) if (value := launch.values.get(name, Decimal(0))) < LARGEST_ID else 0
        for name in ("launch__device_id", "launch__stream_id")
    )
    return launch


class _Child:
    """A program that prints launches, read while it prints them."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._last = ""

    def __enter__(self) -> _Child:
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            encoding="utf-8", errors="replace",
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def lines(self) -> Iterator[str]:
        for line in self._process.stdout or ():
            self._last = line.strip()[:200] or self._last
            yield line

    def code(self) -> int:
        """How it ended; waits for it, and passes over what it still prints."""
        for _ in self.lines():
            pass
        return self._process.wait()

    def last_line(self) -> str:
        """The last line that it wrote about an error, or its last line at all."""
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:200] if lines else self._last or f"it ended with {self.code()}"
