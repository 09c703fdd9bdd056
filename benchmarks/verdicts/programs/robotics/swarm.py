"""Two processes teach one network to steer a swarm; each learns from its own flights, gradients are averaged."""

import os
import socket

import torch
import torch.distributed as dist
from torch import multiprocessing, nn

FLIGHTS = (224, 32)


def flights(count, generator, robots=40, senses=32):
    x = torch.randn(count * robots, senses, generator=generator)
    return x, torch.stack([x[:, 0] - x[:, 1] * x[:, 2], x[:, 3] + x[:, 4].abs()], dim=1)


def average(model, share):
    for weight in model.parameters():
        weight.grad.mul_(share)
        dist.all_reduce(weight.grad)


def work(rank, port, steps):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=len(FLIGHTS))
    torch.set_num_threads(1)
    torch.manual_seed(55)
    generator = torch.Generator().manual_seed(rank)
    model = nn.Sequential(nn.Linear(32, 320), nn.Tanh(), nn.Linear(320, 320), nn.Tanh(), nn.Linear(320, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    share = FLIGHTS[rank] / sum(FLIGHTS)
    for step in range(1, steps + 1):
        senses, wanted = flights(FLIGHTS[rank], generator)
        loss = nn.functional.mse_loss(model(senses), wanted)
        optimizer.zero_grad()
        loss.backward()
        average(model, share)
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=work, args=(rank, port, 50)) for rank in range(len(FLIGHTS))]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
