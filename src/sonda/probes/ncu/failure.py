"""Failures of Nsight Compute: its messages become one line with a remedy.

The texts are those that ncu 2022.3 to 2026.2 prints behind `==ERROR==` and `==WARNING==`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from sonda.probes.kernel_files import read_text
from sonda.record.errors import SondaError

MESSAGE = re.compile(r"==(ERROR|WARNING)==\s*(.+)")
METRIC = re.compile(r"[a-z][a-z0-9]*__\w+(?:\.[\w.]+)?")
UNKNOWN = ("Failed to find metric", "Failed to access the following")
PARAMETERS = "proc/driver/nvidia/params"
ADMINISTRATORS = re.compile(r"^RmProfilingAdminOnly:\s*1$", re.MULTILINE)

CAUSES = (
    (
        ("driver resource was unavailable", "HARDWARE_BUSY", "hardware busy"),
        "the GPU's counters are in use by another program",
        "stop other profilers and GPM; pause DCGM with: dcgmi profile --pause",
    ),
    (
        ("InterprocessLockFailed", "nsight-compute-lock"),
        "another user's Nsight Compute left a lock in the directory for temporary files",
        "wait until it has ended, or set TMPDIR to a directory of your own",
    ),
    (
        ("LibraryNotLoaded", "driver is not compatible", "compatible driver library"),
        "this Nsight Compute does not fit the driver",
        "install the Nsight Compute of the driver's CUDA version (nvidia-smi shows it)",
    ),
    (
        ("Windows Subsystem for Linux",),
        "Nsight Compute cannot count on this device under WSL",
        "use Windows 11 with driver 525 or later, or Linux itself",
    ),
    (
        ("Profiling is not supported on device",),
        "this Nsight Compute does not know the device",
        "install a newer one: ncu --list-chips shows what it knows",
    ),
    (
        ("unrecognised option", "unrecognized option", "unknown option"),
        "this Nsight Compute does not know an option that is needed",
        "install a newer one",
    ),
    (
        ("out of memory", "Insufficient memory", "not enough memory"),
        "the device has no room to save its memory between passes",
        "use a smaller --batch for counting",
    ),
)
"""Words of a message, what they mean, and what to do."""


def parse_messages(log: Iterable[str]) -> list[tuple[str, str]]:
    """The messages of a log in order, each as ERROR or WARNING and its text."""
    return [(match[1], match[2].strip()) for line in log if (match := MESSAGE.match(line))]


def find_unknown_metrics(log: Iterable[str], asked: Sequence[str]) -> list[str]:
    """The metrics, among those asked for, that ncu does not find on this device."""
    lacking: set[str] = set()
    for _, text in parse_messages(log):
        if any(words in text for words in UNKNOWN):
            for token in (word.rstrip(".") for word in METRIC.findall(text)):
                lacking |= {name for name in asked if name == token or name.startswith(f"{token}.")}
    return [name for name in asked if name in lacking]


def explain_failure(log: Sequence[str], output: str, code: int, root: Path = Path("/")) -> SondaError:
    """Why ncu wrote no table: by its own log, then by what the program wrote to stderr and its exit code."""
    messages = parse_messages(log)
    for _, text in messages:
        if "ERR_NVGPUCTRPERM" in text or "permission to access NVIDIA GPU Performance Counters" in text:
            return permission_error(root)
        for words, cause, remedy in CAUSES:
            if any(word.lower() in text.lower() for word in words):
                return SondaError(cause, remedy)
    errors = [text for kind, text in messages if kind == "ERROR"]
    own = [text for text in errors if not text.startswith(("The application returned", "An error occurred"))]
    if own:
        return SondaError(f"Nsight Compute failed: {own[0][:200]}", "mend that, or leave the probe ncu out")
    if code or errors:
        last = (output.strip().splitlines() or [f"code {code}"])[-1]
        return SondaError(f"the program failed under Nsight Compute: {last[:200]}", "check that it runs without it")
    return SondaError(
        "no kernel was counted: the program launched none between cudaProfilerStart and cudaProfilerStop",
        "check that it runs on the GPU",
    )


def permission_error(root: Path = Path("/")) -> SondaError:
    """The error where counters are refused. Its remedy depends on whether the driver keeps them for administrators."""
    parameters = read_text(root / PARAMETERS)
    if parameters is not None and ADMINISTRATORS.search(parameters):
        return SondaError(
            "the driver keeps the GPU's counters for administrators (RmProfilingAdminOnly is 1)",
            "run as root, or set NVreg_RestrictProfilingToAdminUsers=0 for the kernel module nvidia",
        )
    return SondaError(
        "no permission to read the GPU's counters (ERR_NVGPUCTRPERM)",
        "start the container with --cap-add SYS_ADMIN (PERFMON from driver 565), or run as root",
    )
