"""Ranks that did not come to an exchange: which they are, and what they do instead.

A rank that has waited in vain asks the other ranks of its machine what they do. Every rank leaves its process number
and answers a signal with its stack. `faulthandler` writes the stack, so that a rank answers even where it hangs.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

from sonda.targets.ranks.outcomes import read_outcome

STACK_SIGNAL = signal.SIGUSR2
PATIENCE_S = 1.0
"""How long a rank may take to answer."""
POLL_S = 0.02
FRAME = re.compile(r'\s*File "(.*)", line (\d+) in (.*)')
EXCHANGE_PATHS = ("torch/distributed/", "sonda/frameworks/torch/parallel/")
"""Parts of paths: a rank whose innermost frame is there waits for others too."""
CALIBRATING = "keep_company"
"""The function in which a rank computes until the others have been calibrated."""
NOT_USERS = ("/sonda/", "/site-packages/", "/lib/python", "<frozen")
"""Parts of paths that are not of the user's files."""


@dataclass(frozen=True)
class Absence:
    """A rank that did not come, and what it does instead, such as `is stopped by a signal`."""

    rank: int
    doing: str
    remedy: str


def answer_signals(directory: Path, rank: int) -> None:
    """Have this process answer `STACK_SIGNAL` with its stack, and leave its process number in the directory."""
    faulthandler.register(STACK_SIGNAL, _stack_file(directory, rank).open("wb"), all_threads=False, chain=False)
    _process_file(directory, rank).write_text(str(os.getpid()))


def find_absences(directory: Path, others: Iterable[int]) -> list[Absence]:
    """Which of `others`, ranks of this machine, do not wait in an exchange although this rank waits for them."""
    signalled, absences = {}, []
    for rank in others:
        outcome = read_outcome(directory, rank)
        if outcome is not None and (outcome.late or outcome.lost):
            continue
        state, number = _process_state(directory, rank)
        if state in ("T", "t"):
            absences.append(Absence(rank, "is stopped by a signal", "see who stopped it, and start again"))
        elif outcome is not None or state in ("Z", "X"):
            absences.append(Absence(rank, "has ended", "see its output above"))
        elif not number:
            absences.append(Absence(rank, "has not begun", "see its output above, or give it longer with @timeout="))
        else:
            _request_stack(number)
            signalled[rank] = number
    until = monotonic() + PATIENCE_S
    for rank in signalled:
        frames: list[tuple[str, int, str]] = []
        # A stack is written word by word: it is whole when the next look finds the same.
        while (seen := _read_frames(directory, rank)) != frames or not seen:
            frames = seen
            if monotonic() > until:
                break
            sleep(POLL_S)
        if not _is_waiting(frames):
            absences.append(
                Absence(rank, _describe_frames(frames), "see whether it hangs, or give it longer with @timeout=")
            )
    return sorted(absences, key=lambda absence: absence.rank)


def _process_file(directory: Path, rank: int) -> Path:
    return directory / f"process-{rank}"


def _stack_file(directory: Path, rank: int) -> Path:
    return directory / f"stack-{rank}"


def _process_state(directory: Path, rank: int) -> tuple[str, int]:
    """The kernel's letter for the state of a rank's process, X where it is gone, and its number; '' and 0 before."""
    try:
        number = int(_process_file(directory, rank).read_text())
    except (FileNotFoundError, ValueError):
        return "", 0
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0], number
    except OSError:
        return "X", number


def _request_stack(number: int) -> None:
    try:
        os.kill(number, STACK_SIGNAL)
    except OSError:
        pass  # it has just ended


def _read_frames(directory: Path, rank: int) -> list[tuple[str, int, str]]:
    """File, line and function of a rank's frames, the innermost first; empty as long as it has not answered."""
    try:
        text = _stack_file(directory, rank).read_text(errors="replace")
    except FileNotFoundError:
        return []
    matches = [FRAME.fullmatch(line) for line in text.splitlines()]
    return [(match[1], int(match[2]), match[3]) for match in matches if match is not None]


def _is_waiting(frames: list[tuple[str, int, str]]) -> bool:
    """Whether a rank with this stack waits for other ranks too."""
    exchanging = bool(frames) and any(part in frames[0][0] for part in EXCHANGE_PATHS)
    return exchanging or any(function == CALIBRATING and EXCHANGE_PATHS[1] in file for file, _, function in frames)


def _describe_frames(frames: list[tuple[str, int, str]]) -> str:
    """What a rank does, in words: its innermost frame in a file of the user's, else its innermost frame."""
    if not frames:
        return "does not answer"
    users_frames = [frame for frame in frames if not any(part in frame[0] for part in NOT_USERS)]
    file, line, function = (users_frames or frames)[0]
    return f"is in {function} of {Path(file).name}, line {line}"
