"""Records torch.profiler traces of four ranks on gloo that communicate in pairs: tensor by data parallelism.

python record_groups.py DIRECTORY
"""

from __future__ import annotations

import gzip
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule

RANKS, SLOW, STEPS = 4, 2, 3


def work(rank: int, directory: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29611")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    tensor = [dist.new_group(ranks, group_desc="tp") for ranks in ([0, 1], [2, 3])][rank // 2]
    data = [dist.new_group(ranks, group_desc="dp") for ranks in ([0, 2], [1, 3])][rank % 2]
    path = Path(directory) / f"rank{rank}.json"
    values = torch.ones(1000)
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=STEPS)) as profiler:
        for _ in range(2 + STEPS):
            matrix = torch.randn(200, 200)
            for _ in range(30 if rank == SLOW else 3):
                matrix = matrix @ matrix.T * 0.001
            dist.all_reduce(values, group=tensor)
            dist.all_reduce(values, group=tensor)
            dist.all_gather([torch.empty(1000) for _ in range(2)], values, group=tensor)
            dist.all_reduce(values, group=data)
            dist.all_reduce(values)
            dist.barrier(group=data)
            profiler.step()
    profiler.export_chrome_trace(str(path))
    path.with_suffix(".json.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    path.unlink()
    dist.destroy_process_group()


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    torch.multiprocessing.spawn(work, (sys.argv[1],), RANKS)
