"""What reading energy costs: the sampler's own processor time at 500 ms, on a fake tree of a server with two packages.

The sampler is the real process. Its processor time is its own report (getrusage from the first reading to the last),
held against the same from outside (`/proc/PID/stat`); rounds are processes of their own. GPUs are read apart, where
there are any: NVML takes about 4 ms a read on an H200, most of it waiting for the driver.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.bar import Bar, at_most, paired_interval
from sonda.probes.energy.meter import INTERVAL_S, EnergySampler
from sonda.probes.energy.nvml import open_nvml

ROUNDS, SECONDS = 7, 5.0
LIMIT = 0.5
"""% of one processor."""
FAST_S = 0.01
ZONES = ("package-0", "core", "dram"), ("package-1", "core", "dram")
READS = 50


def run() -> list[Bar]:
    """Measure, print, and hold the 500 ms sampler against its bar."""
    found: dict[float, list[float]] = {INTERVAL_S: [], FAST_S: []}
    outside = []
    for _ in range(ROUNDS):
        for interval, shares in found.items():
            own, seen = _share(interval, SECONDS)
            shares.append(own)
            if interval == INTERVAL_S:
                outside.append(seen)
    print(f"{ROUNDS} processes of {SECONDS:g} s each, two packages with core and dram; % of one processor")
    for interval, shares in found.items():
        print(f"{f'every {interval * 1e3:g} ms':>16}{paired_interval(shares).text(3):>24}")
    print(f"{'from outside':>16}{paired_interval(outside).text(3):>24}  (whole ticks of 10 ms only)")
    _gpus()
    interval = paired_interval(found[INTERVAL_S])
    return [at_most("processor time of the 500 ms energy sampler", interval, LIMIT, " %", 3)]


def _share(interval: float, seconds: float) -> tuple[float, float]:
    """% of a processor that the sampler took from its first reading to its last: its own report, and the kernel's."""
    with tempfile.TemporaryDirectory() as directory:
        root, scratch = Path(directory, "root"), Path(directory, "scratch")
        scratch.mkdir()
        counters = list(_tree(root))
        with EnergySampler(scratch, interval, root=root, gpus=False) as sampler:
            begin, before = time.perf_counter_ns(), _ticks(sampler.process)
            for number in range(int(seconds / 0.1)):
                time.sleep(0.1)
                for counter in counters:
                    counter.write_text(f"{(number + 2) * 10_000_000}\n")
            end, after = time.perf_counter_ns(), _ticks(sampler.process)
        energy = sampler.result(begin, end)
    wall = (end - begin) / 1e9
    return 100 * energy.facts.cpu / wall, 100 * (after - before) / wall


def _tree(root: Path) -> list[Path]:
    counters = []
    for package, zones in enumerate(ZONES):
        for number, name in enumerate(zones):
            zone = root / "sys/class/powercap" / f"intel-rapl:{package}{f':{number - 1}' if number else ''}"
            zone.mkdir(parents=True)
            (zone / "name").write_text(f"{name}\n")
            (zone / "max_energy_range_uj").write_text("262143328850\n")
            counters.append(zone / "energy_uj")
            counters[-1].write_text("10000000\n")
    return counters


def _ticks(process: int) -> float:
    """s of processor time that the kernel counted."""
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _gpus() -> None:
    """What a reading of each GPU takes."""
    sources = open_nvml()
    readers = [reader for reader in sources.readers if reader.channels]
    if not readers:
        print(f"GPUs: {sources.lacks[0].reason if sources.lacks else 'none'}")
    for reader in readers:
        taken = []
        for _ in range(READS):
            begin = time.perf_counter_ns()
            reader.read()
            taken.append((time.perf_counter_ns() - begin) / 1e6)
        print(f"{reader.channels[0].device}: {np.median(taken):.1f} ms a reading of {len(reader.channels)} sensors")
    sources.close()
