"""Simulating against the reference's own user seconds, per mode and size; all reference runs; compiling; memory.

A call has its operands ready and its code compiled, and remembers nothing of the call before; its time is CPU time.
The reference's seconds were recorded on one core of another machine, +-20 %. Compiling is measured in fresh processes
with an empty cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import process_time_ns
from typing import Any

import numpy as np

from benchmarks.bar import Bar, Interval, at_least, at_most, paired_interval
from benchmarks.process import cpu_times, highest_memory

DATA = Path(__file__).parent.parent / "tests" / "data" / "stonne"
CALLS = 100
LONG = 1.0
"""User seconds of the reference from which a run counts for the bars."""
LIMIT_RATIO = 5_000.0
LIMIT_RATIO_MEMORY = 500.0
LIMIT_GOLDEN = 2.0
LIMIT_COMPILING = 10.0
PASSES = 7
FRESH = 5
"""Compilations of the slowest engine, each with an empty cache."""
ENGINES = {
    "flexible dense": "DenseGEMM",
    "flexible dense, through memory": "memory",
    "bitmap sparse": "SparseGEMM",
    "compressed rows": "SparseDense",
    "mesh": "TPU",
    "outer product": "OuterProduct_SST",
    "Gustavson": "Gustavson_SST",
}


def run() -> list[Bar]:
    """Print the tables and hold speed, all reference runs and compiling against their bars."""
    return [*_speed(), *_golden(), *_compiling()]


def _speed() -> list[Bar]:
    from sonda.accelerators.formats.stonne.reference import reference_run

    entries = json.loads((DATA / "perf.json").read_bytes())
    print(f"{'run':18}{'size':>22}{'cycles':>10}{'reference s':>13}{'Sonda µs':>10}{'ratio':>32}")
    least: dict[float, tuple[str, Interval]] = {}
    for place, entry in enumerate(entries):
        made = reference_run(entry, place)
        result = made.simulate()
        if result.cycles != entry["cycles"]:
            raise SystemExit(f"{made.name}: {result.cycles} cycles, the reference has {entry['cycles']}")
        times = cpu_times(made.simulate, CALLS)
        ratio = paired_interval(entry["user_s"] * 1e9 / times)
        size = _size(entry["argv"])
        print(f"{entry['tag']:18}{size:>22}{result.cycles:>10,}{entry['user_s']:>13.3f}{np.median(times) / 1e3:>10.1f}"
              f"{_short(ratio):>32}")  # fmt: skip
        limit = LIMIT_RATIO_MEMORY if made.trailing else LIMIT_RATIO
        if entry["user_s"] >= LONG and (limit not in least or ratio.median < least[limit][1].median):
            least[limit] = (f"{entry['tag']} {size}", ratio)
    names = {LIMIT_RATIO: "runs of 1 s and more", LIMIT_RATIO_MEMORY: "the same, folding through memory"}
    return [at_least(f"{names[limit]}, the least ({where})", ratio, limit, "x", 0)
            for limit, (where, ratio) in least.items()]  # fmt: skip


def _size(argv: str) -> str:
    given = dict(word.lstrip("-").partition("=")[::2] for word in argv.split())
    if "CONV" in given:
        return f"{given['R']}x{given['S']}x{given['C']} on {given['X']}x{given['Y']}, {given['num_ms']}"
    return f"{given['M']}x{given['N']}x{given['K']} on {given['num_ms']}"


def _short(ratio: Interval) -> str:
    return f"{ratio.median:,.0f}x [{ratio.low:,.0f}, {ratio.high:,.0f}]"


def _golden() -> list[Bar]:
    from sonda.accelerators.formats.stonne.verification import verify_stonne

    reports = [verify_stonne(DATA / "golden.json") for _ in range(PASSES)]
    first = reports[0]
    print(f"\nall reference runs: {first.exact} of {first.total} exact")
    for mode in first.modes:
        seconds = paired_interval([1e3 * report.modes[mode].seconds for report in reports])
        print(f"{mode:18}{first.modes[mode].total:>5} runs   {seconds.text(1, ' ms')}")
    together = paired_interval([report.seconds for report in reports])
    return [at_most("simulating all reference runs, CPU seconds", together, LIMIT_GOLDEN, " s", 3)]


# ---- compiling ------------------------------------------------------------------------------------------------------


def _compiling() -> list[Bar]:
    print(f"\n{'first use of an engine':32}{'compiling':>12}{'from cache':>12}{'memory':>10}   (CPU seconds)")
    found: dict[str, list[float]] = {}
    for name, which in ENGINES.items():
        with tempfile.TemporaryDirectory() as cache:
            new, again = (_child(which, cache) for _ in range(2))
        found[name] = [new["first"]]
        print(f"{name:32}{new['first']:>10.2f} s{again['first']:>10.2f} s{again['memory']:>7.0f} MB")
    slowest = max(found, key=lambda name: found[name][0])
    for _ in range(FRESH - 1):
        with tempfile.TemporaryDirectory() as cache:
            found[slowest].append(_child(ENGINES[slowest], cache)["first"])
    seconds = paired_interval(found[slowest])
    return [at_most(f"first use of an engine, the slowest ({slowest}), CPU seconds", seconds, LIMIT_COMPILING, " s")]


def _child(which: str, cache: str) -> dict[str, float]:
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run([sys.executable, "-m", "benchmarks.stonne", which], capture_output=True, text=True,
                          check=True, env=environment)  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _first_use(which: str) -> dict[str, float]:
    """CPU seconds of the first call less those of the second, in this process; numba's import is in the first."""
    from sonda.accelerators.formats.stonne.reference import reference_run

    entries: Sequence[dict[str, Any]] = json.loads((DATA / "golden.json").read_bytes())
    for place, entry in enumerate(entries):
        mode = "DenseGEMM" if which == "memory" else which
        if entry["status"] != "ok" or entry["mode"] != mode:
            continue
        made = reference_run(entry, place)
        if bool(made.trailing) == (which == "memory"):
            break
    times = []
    for _ in range(2):
        begin = process_time_ns()
        made.simulate()
        times.append(process_time_ns() - begin)
    return {"first": (times[0] - times[1]) / 1e9, "memory": highest_memory()}


if __name__ == "__main__":
    print(json.dumps(_first_use(sys.argv[1])))
