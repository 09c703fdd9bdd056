"""Nsight Compute: its version, whether it can count here, its command line, and a program that runs under it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sonda.probes.kernel_files import read_text
from sonda.probes.ncu.failure import ADMINISTRATORS, PARAMETERS, permission_error
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState

PROGRAM = "ncu"
OLDEST = (2022, 3)
"""The first for compute capability 9.0; older ones spell options and metrics in other ways."""
REMEDY = "install Nsight Compute 2022.3 or later (it comes with the CUDA toolkit) and put ncu on PATH"
CACHES = {"all": "caches emptied before every pass", "none": "caches left as they are"}
VERSION = re.compile(r"Version (\d+)\.(\d+)(\S*)")


@dataclass(frozen=True)
class NcuSettings:
    """How to count. Clocks are always left alone, so that counts belong to the clock that the program runs at."""

    cache: str = "all"
    bracketed: bool = True
    """The program calls cudaProfilerStart and cudaProfilerStop around what is to be counted."""
    stalls: bool = False
    """Count stalls of every kernel in the first run, not only those of outlying kernels in a second one."""
    limit_s: float = 600.0
    """Seconds that one run may take."""
    whole: bool = False
    """The command is a user's program: it runs from its beginning to its end every time, with all side effects."""
    program: str = PROGRAM


@dataclass(frozen=True)
class NcuOutcome:
    """What ncu and the program under it wrote, and the exit code."""

    log: list[str]
    """Its messages and its table, line by line."""
    output: str
    """What the program wrote to stderr."""
    code: int


def ncu_version(program: str = PROGRAM) -> str:
    """`2025.3.1.0`; raises SondaError where it is missing, cannot be run or is too old."""
    if shutil.which(program) is None:
        raise SondaError("the probe ncu needs Nsight Compute, which is not installed", REMEDY)
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise SondaError(f"ncu cannot be run: {error}", REMEDY) from None
    return parse_ncu_version(done.stdout or done.stderr)


def parse_ncu_version(text: str) -> str:
    """The version in the answer of `ncu --version`; raises SondaError where it is too old or there is none."""
    match = VERSION.search(text)
    if match is None:
        raise SondaError(f"ncu --version says {' '.join(text.split())[:60]!r}", REMEDY)
    version = f"{match[1]}.{match[2]}{match[3]}"
    if (int(match[1]), int(match[2])) < OLDEST:
        raise SondaError(f"Nsight Compute {version} is too old for the probe ncu", REMEDY)
    return version


def ncu_state(program: str = PROGRAM, root: Path = Path("/")) -> ProbeState:
    """Whether kernels can be counted on this machine, as far as that shows without running one."""
    if read_text(root / "proc/driver/nvidia/version") is None:
        return ProbeState("ncu", "missing", "there is no NVIDIA driver", "use a machine with an NVIDIA GPU")
    try:
        version = ncu_version(program)
    except SondaError as error:
        return ProbeState("ncu", "missing", error.cause, error.remedy)
    if ADMINISTRATORS.search(read_text(root / PARAMETERS) or "") and os.geteuid():
        refused = permission_error(root)
        return ProbeState("ncu", "missing", refused.cause, refused.remedy)
    return ProbeState("ncu", "ok", f"Nsight Compute {version}")


def ncu_command(metrics: Sequence[str], log: Path, settings: NcuSettings, kernels: Sequence[str] = ()) -> list[str]:
    """The words to put before the program's own. `kernels` are the symbols of the kernels to count; none means all."""
    if settings.cache not in CACHES:
        raise SondaError(f"--cache-control {settings.cache!r} does not exist", f"use one of {', '.join(CACHES)}")
    words = [
        settings.program, "--target-processes", "all", "--kill", "no", "--replay-mode", "kernel",
        "--clock-control", "none", "--cache-control", settings.cache,
        "--profile-from-start", "off" if settings.bracketed else "on",
        "--csv", "--page", "raw", "--print-units", "base", "--print-fp", "--print-kernel-base", "mangled",
        "--log-file", str(log), "--metrics", ",".join(metrics),
    ]  # fmt: skip
    if kernels:
        choice = "|".join(re.escape(name) for name in kernels)
        words += ["--kernel-name-base", "mangled", "--kernel-name", f"regex:^({choice})$"]
    return words


def run_under_ncu(
    command: Sequence[str], stdin: bytes, metrics: Sequence[str], settings: NcuSettings, kernels: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> NcuOutcome:  # fmt: skip
    """Run a program under ncu to its end; what it prints is not shown. Raises SondaError where that takes too long."""
    with tempfile.TemporaryDirectory(prefix="sonda-ncu-") as directory:
        log, output = Path(directory) / "log.csv", Path(directory) / "stderr"
        words = [*ncu_command(metrics, log, settings, kernels), *command]
        with open(output, "wb") as errors:
            try:
                child = subprocess.Popen(
                    words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True,
                    env=dict(environment) if environment is not None else None,
                )  # fmt: skip
            except OSError as error:
                raise SondaError(f"cannot start {words[0]}: {error.strerror}", REMEDY) from None
            with child:
                try:
                    child.communicate(stdin, timeout=settings.limit_s)
                except subprocess.TimeoutExpired:
                    raise SondaError(
                        f"counting kernels took more than {settings.limit_s:g} s",
                        "let the program take fewer steps: it is run to its end"
                        if settings.whole
                        else "count a smaller step: a smaller --batch, or fewer layers",
                    ) from None
                finally:
                    # The program is a child of ncu's and outlives it where ncu crashes, so the whole group has to go.
                    with suppress(ProcessLookupError):
                        os.killpg(child.pid, signal.SIGKILL)
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        stderr = output.read_text(encoding="utf-8", errors="replace")
        # Where ncu failed before it opened its log, its messages are among the program's.
        return NcuOutcome((text or stderr).splitlines(keepends=True), stderr, child.returncode)
