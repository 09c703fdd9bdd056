"""One try: an unmodified program for a few steps, in a process of its own, with one remedy or with none.

The program runs in its own folder and with its own arguments. The process is ended after the last step, and before
anything that a try must not do (`frameworks/torch/observe/trial/guard.py`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from sonda.frameworks import INJECT
from sonda.record.trials import TrialProcess
from sonda.targets.signals import describe_exit, end_with_parent

RESULT = "trial.json"
LEAST_BLOCKS = 3
"""Timed blocks without which a process says nothing."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
TOO_LONG = "it took longer than the time that was left"


@dataclass(frozen=True)
class TrialPlan:
    """How many steps warm up, how many are timed, and whether an optimizer ends them."""

    warmup: int = 3
    steps: int = 10
    optimizer: bool = True


@dataclass(frozen=True)
class TrialOutcome:
    """What became of one process."""

    process: TrialProcess | None = None
    """None where it was not measured."""
    failure: str = ""
    """Why not."""
    refused: str = ""
    """What it was about to do when it was ended."""
    seen: int = 0
    """Steps, warm-up included."""
    applied: int = 0
    """Places that the remedy changed."""
    starting_s: float = 0.0
    """Until the first step had ended."""
    survey: dict[str, Any] = field(default_factory=dict)
    """What the program asks of PyTorch; see `frameworks/torch/observe/trial/survey.py`."""


def run_trial(
    command: Sequence[str], plan: TrialPlan, remedy: str = "", value: int | None = None, limit: float = 60.0
) -> TrialOutcome:
    """Run the program for some steps, with a remedy or as it is, for `limit` s at the most."""
    with tempfile.TemporaryDirectory(prefix="sonda-try-") as directory:
        said = Path(directory) / "said"
        trial = {
            "remedy": remedy,
            "value": value,
            "warmup": plan.warmup,
            "steps": plan.steps,
            "optimizer": plan.optimizer,
        }
        path = os.pathsep.join(entry for entry in (str(INJECT), os.environ.get("PYTHONPATH", "")) if entry)
        environment = {
            **os.environ,
            "PYTHONPATH": path,
            "SONDA_COLLECT": msgspec.json.encode({"directory": directory, "trial": trial}).decode(),
            **(dict.fromkeys(THREAD_VARIABLES, str(value)) if remedy == "threads" else {}),
        }
        code = _run_group(command, environment, said, limit)
        return read_outcome(Path(directory), code, said)


def run_patched(
    command: Sequence[str], sources: Mapping[Path, str], plan: TrialPlan, limit: float = 60.0
) -> TrialOutcome | None:
    """Run the program for some steps with other texts of some of its files, which stay as they are.

    None where it is not started by a script above these files.
    """
    at = next((i for i, word in enumerate(command) if i and word.endswith(".py") and Path(word).is_file()), 0)
    root = Path(command[at]).resolve().parent
    if not at or not all(file.is_relative_to(root) for file in sources):
        return None
    with tempfile.TemporaryDirectory(prefix="sonda-try-") as directory:
        _mirror(root, Path(directory), sources)
        script = Path(directory) / Path(command[at]).resolve().name
        return run_trial([*command[:at], str(script), *command[at + 1 :]], plan, limit=limit)


def _mirror(root: Path, copy: Path, sources: Mapping[Path, str]) -> None:
    """Links to all that a folder holds, but for files that have another text and the folders around them."""
    for entry in root.iterdir():
        if entry in sources:
            (copy / entry.name).write_text(sources[entry], encoding="utf-8")
        elif any(entry in file.parents for file in sources):
            (copy / entry.name).mkdir()
            _mirror(entry, copy / entry.name, sources)
        else:
            (copy / entry.name).symlink_to(entry)


def _run_group(command: Sequence[str], environment: Mapping[str, str], said: Path, limit: float) -> int | None:
    """Run a command in a group of its own and end all of the group, whatever happens; None where time was up."""
    own = os.getpid()
    with said.open("wb") as output:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=dict(environment),
            start_new_session=True, preexec_fn=lambda: end_with_parent(signal.SIGKILL, own),
        )  # fmt: skip
        try:
            return child.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end_group(child)


def _end_group(child: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    child.wait()


def read_outcome(directory: Path, code: int | None, said: Path) -> TrialOutcome:
    """What a process left behind; `code` is how it ended, None where its time was up."""
    for path in directory.glob("refused-*.json"):
        return TrialOutcome(refused=str(_read(path).get("refused", "")))
    result = _read(directory / RESULT)
    blocks = result.get("blocks", [])
    process = None
    if len(blocks) >= LEAST_BLOCKS:
        steps = sum(block["steps"] for block in blocks)
        samples = sum(block["samples"] * block["steps"] for block in blocks) / steps
        process = TrialProcess(ns=[block["ns"] for block in blocks], samples=samples, losses=result["losses"])
    refused, seen = str(result.get("refused", "")), int(result.get("seen", 0))
    failure = ""
    if code is None:
        failure, process = TOO_LONG, None
    elif code:
        failure, process = last_words(said) or f"it {describe_exit(code)}", None
    elif process is None and not refused:
        failure = f"it made {seen} steps, too few" if result else "it did not import PyTorch"
    return TrialOutcome(
        process, failure, refused, seen, int(result.get("applied", 0)), float(result.get("first_ns", 0)) * 1e-9,
        result.get("survey", {}),
    )  # fmt: skip


def _read(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return document


def last_words(said: Path) -> str:
    """The last line that a program wrote, which of an exception is its message; shortened."""
    try:
        lines = said.read_bytes()[-8192:].decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    errors = [line for line in lines if line and not line.startswith(" ") and "Error" in line.partition(":")[0]]
    line = (errors or lines or [""])[-1].strip()
    return line if len(line) <= 120 else f"{line[:117]}..."
