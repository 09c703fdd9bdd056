"""Records torch.profiler traces of two ranks on gloo that communicate in one of several ways.

python record_gloo.py CASE DIRECTORY
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule

STEPS, RANKS, SLEEP = 4, 2, 0.1
Step = Callable[[], None]


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 8))


def training(model: nn.Module, sleep: float = 0.0) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step() -> None:
        inputs = torch.randn(64, 256)
        time.sleep(sleep)
        model(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def straggler(rank: int) -> Step:
    """DistributedDataParallel; rank 1 sleeps in every step."""
    model = nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=1)
    return training(model, SLEEP if rank == 1 else 0.0)


def fsdp(_: int) -> Step:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh, model = init_device_mesh("cpu", (RANKS,)), network()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return training(model)


def collectives(rank: int) -> Step:
    """One of each, awaited."""
    weights, data = torch.randn(512, 512), torch.randn(1 << 20)

    def step() -> None:
        weights @ weights
        dist.all_reduce(data)
        shares = [torch.empty_like(data) for _ in range(RANKS)]
        dist.all_gather(shares, data)
        dist.all_gather_into_tensor(torch.empty(RANKS << 20), data)
        dist.reduce_scatter_tensor(torch.empty((1 << 20) // RANKS), data)
        dist.broadcast(data, 0)
        dist.reduce(data, 0)
        dist.all_to_all_single(torch.empty_like(data), data)
        dist.gather(data, shares if rank == 0 else None, 0)
        dist.scatter(torch.empty_like(data), shares if rank == 0 else None, 0)
        if rank == 0:
            dist.send(data, 1)
        else:
            dist.recv(data, 0)
        dist.barrier()
        dist.all_gather_object([None] * RANKS, {"rank": rank})

    return step


def asynchronous(_: int) -> Step:
    """An all-reduce behind matrix products, awaited in an annotation."""
    weights, data = torch.randn(1024, 1024), torch.randn(1 << 22)

    def step() -> None:
        work = dist.all_reduce(data, async_op=True)
        product = weights
        for _ in range(6):
            product = torch.tanh(product @ weights)
        with record_function("waiting"):
            work.wait()
        data.mul_(0.5)

    return step


def functional(_: int) -> Step:
    import torch.distributed._functional_collectives as collectives

    weights, data = torch.randn(512, 512), torch.randn(1 << 21)

    def step() -> None:
        reduced = collectives.all_reduce(data, "sum", dist.group.WORLD)
        weights @ weights
        reduced + 1
        collectives.all_gather_tensor(weights, 0, dist.group.WORLD) * 2

    return step


CASES = {case.__name__: case for case in (straggler, fsdp, collectives, asynchronous, functional)}


def work(rank: int, case: str, directory: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=RANKS)
    step, path, times = CASES[case](rank), Path(directory) / f"rank{rank}.json", []
    when = schedule(wait=0, warmup=2, active=STEPS, repeat=1)
    with profile(
        activities=[ProfilerActivity.CPU], schedule=when, on_trace_ready=lambda one: one.export_chrome_trace(str(path))
    ) as profiler:
        for _ in range(2 + STEPS):
            begin = time.perf_counter()
            step()
            times.append(time.perf_counter() - begin)
            profiler.step()
    (Path(directory) / f"times{rank}.json").write_text(json.dumps(times))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    Path(sys.argv[2]).mkdir(parents=True)
    torch.multiprocessing.spawn(work, (sys.argv[1], sys.argv[2]), RANKS)
