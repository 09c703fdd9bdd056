"""Points of an exploration per second, over DLRM and ResNet-50.

(a) Every point is a new engine: nothing can be shared but one go for all designs and operations. Of DLRM with the
    preset of a published study, on which the bar stands, the dense engine of the perceptrons varies alone. Where the
    best tiles are searched, every operation on every design is a search of its own.
(b) Most of what varies is the memory behind the buffer, or engines vary apart from each other: designs are shared.
Nothing is remembered between rounds; looking at the model's operations and compiling are not counted.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from time import perf_counter, process_time

import numpy as np

from benchmarks.bar import Bar, at_least, paired_interval
from sonda.accelerators.description.accelerator import load_accelerator
from sonda.accelerators.description.settings import parse_settings
from sonda.accelerators.designs.work import EngineWork
from sonda.accelerators.mapping.candidate_tiles import combinations
from sonda.accelerators.mapping.rules import _stonne_tile
from sonda.accelerators.operations.program import ModelProgram
from sonda.studies.explore.pareto import pareto_front
from sonda.studies.explore.space import parse_space
from sonda.targets.job import Job
from sonda.targets.simulated.design_space import explore
from sonda.targets.simulated.program import make_program

ROUNDS = 7
LIMIT = 1000
"""Points per second of grids whose points share designs."""
NEW = 2000
"""Points per CPU second where each is a new dense engine for DLRM."""
MEMORY = "clock_GHz=1 memory.dram=hbm2"
MEMORIES = ["memory.buffer_KiB=16..4096*2", "memory.bytes_per_cycle=1..64*2", "memory.latency_cycles=10..100+10"]


@dataclass(frozen=True)
class Grid:
    name: str
    workload: str
    on: str
    vary: list[str]
    fixed: str = ""
    shared: bool = True
    preset: str = ""
    mapping: str = ""

    def job(self) -> Job:
        return Job(workload=self.workload, options={"preset": self.preset} if self.preset else {}, threads=1)


GRIDS = (
    Grid("(a) the dense engine of DLRM", "dlrm", "dlrm-hybrid",
         [f"perceptrons.{one}" for one in ("multipliers=64..1024*2", "dn_bw=2..64*2", "rn_bw=2..64*2")],
         shared=False, preset="5-1M-20-100"),
    Grid("(a) the same, best tiles", "dlrm", "dlrm-hybrid",
         [f"perceptrons.{one}" for one in ("multipliers=64..1024*2", "dn_bw=2..64*2", "rn_bw=2..64*2")],
         shared=False, preset="5-1M-20-100", mapping="best"),
    Grid("(a) both engines of DLRM together", "dlrm", "dlrm-hybrid",
         ["multipliers=64..1024*2", "dn_bw=8..64*2", "rn_bw=8..64*2"], shared=False),
    Grid("(a) the mesh of ResNet-50", "resnet50", "tpu-16x16",
         ["read_ports=1..32*2", "write_ports=16..256*2"], shared=False),
    Grid("(a) the dense engine of ResNet-50", "resnet50", "maeri-256",
         ["multipliers=64..1024*2", "dn_bw=4..64*2", "rn_bw=8..64*2"], shared=False),
    Grid("(a) the same, best tiles", "resnet50", "maeri-256",
         ["multipliers=64..256*2", "dn_bw=16,64", "rn_bw=8..64*2"], shared=False, mapping="best"),
    Grid("(b) both engines of DLRM apart", "dlrm", "dlrm-hybrid",
         [f"{engine}.{one}" for engine in ("perceptrons", "embeddings")
          for one in ("multipliers=64..1024*2", "dn_bw=8..64*2", "rn_bw=8..64*2")]),
    Grid("(b) memory behind DLRM", "dlrm", "dlrm-hybrid", [*MEMORIES, "dn_bw=32,64,128"], MEMORY),
    Grid("(b) memory behind ResNet-50, mesh", "resnet50", "tpu-16x16", [*MEMORIES, "dn_bw=8,16,32"], MEMORY),
    Grid("(b) memory behind ResNet-50, dense", "resnet50", "maeri-256", [*MEMORIES, "dn_bw=32,64,128"], MEMORY),
)  # fmt: skip


def run() -> list[Bar]:
    """Measure every grid, print points, simulations and rates, and hold some of them against a bar."""
    workloads = {(one.workload, one.preset): one.job() for one in GRIDS}
    programs = {name: make_program(job, frozenset()) for name, job in workloads.items()}
    bars = []
    print(f"{'grid':36} {'points':>7} {'simulations':>12} {'points/s':>22} {'per CPU second':>15} {'simulations':>12}")
    for grid in GRIDS:
        walls, cpus, points, simulations = _measure(grid, programs[grid.workload, grid.preset])
        rate = paired_interval(points / np.array(walls))
        cpu = np.median(cpus)
        print(f"{grid.name:36} {points:7,} {simulations:12,} {rate.text(0):>22} {points / cpu:15,.0f} "
              f"{simulations / cpu:12,.0f}")  # fmt: skip
        if grid.shared:
            bars.append(at_least(f"explore, {grid.name}", rate, LIMIT, " points/s", 0))
        if grid.preset and not grid.mapping:
            bars.append(
                at_least(f"explore, {grid.name}", paired_interval(points / np.array(cpus)), NEW, " per CPU s", 0)
            )
    chance = np.random.default_rng(0)
    many = chance.random((1_000_000, 3))
    begin = perf_counter()
    front = int(pareto_front(many).sum())
    print(f"Pareto front of 1,000,000 random points ({front} on it): {perf_counter() - begin:.2f} s")
    return bars


def _measure(grid: Grid, program: ModelProgram) -> tuple[list[float], list[float], int, int]:
    """Wall and CPU seconds of every round, points, and distinct simulations of a round."""
    accelerator, space, fixed = load_accelerator(grid.on), parse_space(grid.vary), parse_settings(grid.fixed)
    walls, cpus = [], []
    points = simulations = 0
    for number in range(ROUNDS + 1):
        work = EngineWork(program)
        _stonne_tile.cache_clear()
        combinations.cache_clear()
        gc.collect()
        begin, cpu = perf_counter(), process_time()
        found = explore(work, accelerator, space, grid.mapping, fixed)
        if number:  # the first one compiles
            walls.append(perf_counter() - begin)
            cpus.append(process_time() - cpu)
        points, simulations = len(found.cycles), work.simulations
    return walls, cpus, points, simulations
