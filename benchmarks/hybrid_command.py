"""What `sonda run … --on hybrid=…@auto` does by itself when a quota holds the second rank to a part of a processor.

The command and the faster device alone take turns. The quota begins as soon as the second rank is there, before it
calibrates: the command is not told of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.hybrid_ranks import RESNET
from sonda.targets.quota import limit_process

ALONE, PAIR = "cpu/1", "hybrid=cpu/1+cpu/1@auto"
LOOK_S = 0.02


class Chosen(NamedTuple):
    """Median step, s, and the shares that the command chose, 0 for a rank that it left out."""

    step: float
    shares: tuple[int, ...]


def by_command(rounds: int, steps: int, share: float) -> tuple[np.ndarray, list[tuple[int, ...]]]:
    """Round by round, how many times the pair is faster than the first device alone; and what was chosen."""
    gains, shares = [], []
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        for number in range(rounds):
            found = {on: _run(home, on, steps, share) for on in ((ALONE, PAIR) if number % 2 else (PAIR, ALONE))}
            gains.append(found[ALONE].step / found[PAIR].step)
            shares.append(found[PAIR].shares)
    return np.array(gains), shares


def _run(home: Path, on: str, steps: int, share: float) -> Chosen:
    from sonda.analysis.run_summary import summarise
    from sonda.record.store import Store

    words = [word for name, value in RESNET.items() for word in (f"--{name}", value)]
    command = [sys.executable, "-m", "sonda", "run", "resnet34", *words, "--train", "--steps", str(steps), "--on", on]
    environment = {**os.environ, "SONDA_HOME": str(home)}
    process = subprocess.Popen([*command, "--json"], stdout=subprocess.DEVNULL, env=environment)
    with ExitStack() as slow:
        watching = threading.Thread(target=_slow_down, args=(process, home, share, slow), daemon=True)
        watching.start()
        code = process.wait()
        watching.join()
    if code:
        raise RuntimeError(f"{' '.join(command)} ended with code {code}")
    run = Store(home).one("last")
    step = summarise(run).parts[0].step.value
    assert step is not None
    return Chosen(step / 1e9, tuple(run.info.target.outlook.chosen_shares) if run.info.target.outlook else ())


def _slow_down(process: subprocess.Popen[bytes], home: Path, share: float, slow: ExitStack) -> None:
    """Put the quota on the second rank once it is there, until the command has ended."""
    while process.poll() is None:
        rank = _second_rank(home)
        if rank is not None:
            slow.enter_context(limit_process(rank, share))
            return
        time.sleep(LOOK_S)


def _second_rank(home: Path) -> int | None:
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().split(b"\0")
            ours = b"sonda.targets.ranks.rank" in words and str(home).encode() in b" ".join(words)
            if ours and b"RANK=1" in (place / "environ").read_bytes().split(b"\0"):
                return int(place.name)
        except OSError:
            continue  # it has ended, or is somebody else's
    return None
