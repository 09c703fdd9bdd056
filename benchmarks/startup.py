"""What starting costs: `sonda --help` against `python -c "import typer"`, interleaved."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import perf_counter_ns

import numpy as np

from benchmarks.bar import Bar, at_most, paired_interval

ROUNDS = 40
LIMIT = 1.5


def run() -> list[Bar]:
    """Measure, print the medians and minima as ratios, and hold them against the bar."""
    script = Path(sys.executable).parent / "sonda"
    sonda = [str(script)] if script.exists() else [sys.executable, "-m", "sonda"]
    commands = {"sonda --help": [*sonda, "--help"], "import typer": [sys.executable, "-c", "import typer"],
                "nothing": [sys.executable, "-c", ""]}  # fmt: skip
    times: dict[str, list[int]] = {name: [] for name in commands}
    for number in range(ROUNDS + 2):
        for name in list(commands) if number % 2 else reversed(commands):
            begin = perf_counter_ns()
            subprocess.run(commands[name], stdout=subprocess.DEVNULL, check=True)
            if number >= 2:  # the first ones write and read the byte code
                times[name].append(perf_counter_ns() - begin)
    base = np.array(times["import typer"], dtype=np.float64)
    for name, values in times.items():
        median, least = np.median(values), np.min(values)
        ratios = f"median {median / np.median(base):5.2f}x   minimum {least / base.min():5.2f}x"
        print(f"{name:14} {ratios}   ({median / 1e6:.0f} ms)")
    ratio = paired_interval(np.array(times["sonda --help"]) / base)
    return [at_most("sonda --help / import typer", ratio, LIMIT, "x")]
