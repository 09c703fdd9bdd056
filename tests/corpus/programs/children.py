"""A pool of forked processes, each of which trains; one is killed."""

import os
import signal
from multiprocessing import get_context

import torch
from torch import nn


def learn(seed: int) -> float:
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(20):
        loss = model(torch.randn(16, 32)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss)


def learn_and_die() -> None:
    learn(9)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    context = get_context("fork")
    with context.Pool(2) as pool:
        pool.map(learn, range(4))
    victim = context.Process(target=learn_and_die)
    victim.start()
    victim.join()
