"""Measures what each planted cause costs, by removing it: `python -m benchmarks.verdicts.measure [NAME ...]`.

A program runs as it is and without its cause, in turns, in processes of their own. The share that is saved is written
into the truth, with the machine. Programs by contention run with and without their competitors.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.bar import machine_line, paired_interval
from benchmarks.verdicts.cores import map_side_by_side
from benchmarks.verdicts.truth import GOOD, PROGRAMS, Truth, read_truths

ROUNDS = 3
LONGEST = 300.0
"""Seconds that a program may take."""
BUSY = "while True: pass"


@contextmanager
def compete(count: int) -> Iterator[None]:
    """So many busy processes beside what runs inside."""
    others = [subprocess.Popen([sys.executable, "-S", "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def time_program(program: Path, truth: Truth, competitors: int) -> float:
    """Seconds that a program takes, its imports included. Raises CalledProcessError where it fails."""
    with compete(competitors):
        begin = time.perf_counter()
        subprocess.run(
            [sys.executable, program.name, *truth.arguments],
            cwd=program.parent,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=LONGEST,
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        )
        return time.perf_counter() - begin


def time_imports() -> float:
    """Seconds that starting Python and importing PyTorch take, which no cause is part of."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.perf_counter() - begin


def measure_share(truth: Truth, rounds: int) -> tuple[float, float, float]:
    """Part of the program's time after its imports that removing the cause saves, with a 95 % interval over rounds."""
    shares = []
    with tempfile.TemporaryDirectory(prefix="sonda-verdicts-") as folder:
        bare = truth.copy_without_cause(Path(folder))
        for _ in range(rounds):
            start = time_imports()
            planted = time_program(truth.program, truth, truth.competitors) - start
            clean = time_program(bare, truth, 0) - start
            shares.append(1 - clean / planted)
    interval = paired_interval(shares)
    return interval.median, interval.low, interval.high


def try_share(truth: Truth, rounds: int) -> tuple[tuple[float, float, float] | None, str]:
    """What removing the cause saves, or why that is not known."""
    try:
        return measure_share(truth, rounds), ""
    except subprocess.CalledProcessError as error:
        return None, f"fails: {error.stderr.decode(errors='replace').strip().splitlines()[-1:]}"
    except subprocess.TimeoutExpired:
        return None, f"took longer than {LONGEST:g} s"


def write_share(truth: Truth, share: tuple[float, float, float]) -> None:
    """Write what was measured at the end of the truth, in place of what stood there."""
    path = truth.program.with_suffix(".toml")
    text = re.sub(r"\n*\[measured\]\n(?:(?!\[).*\n?)*", "\n", path.read_text()).rstrip("\n")
    median, low, high = share
    path.write_text(
        f"{text}\n\n[measured]\nshare = {median:.2f}\ninterval = [{low:.2f}, {high:.2f}]\n"
        f'machine = "{machine_line().split(", load")[0]}"\n'
    )


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    options.add_argument("--rounds", type=int, default=ROUNDS)
    options.add_argument("--at-once", type=int, default=1, help="programs side by side, each on two cores of its own")
    options.add_argument("--programs", type=Path, default=PROGRAMS, help="folder of planted programs")
    options.add_argument("names", nargs="*", help="domain/name; all without")
    given = options.parse_args()
    truths = [
        truth
        for truth in read_truths(given.device, given.programs)
        if truth.cause != GOOD and (not given.names or truth.name in given.names)
    ]
    for truth, (share, failure) in map_side_by_side(
        lambda truth: try_share(truth, given.rounds), truths, given.at_once
    ):
        if share is None:
            print(f"{truth.name}: {failure}", flush=True)
            continue
        write_share(truth, share)
        print(f"{truth.name:40} {truth.cause:20} {share[0]:6.0%} [{share[1]:.0%}, {share[2]:.0%}]", flush=True)


if __name__ == "__main__":
    main()
