"""Vibrations of several machines, each with a model of its own, trained side by side."""

import argparse
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn


def model(width=256):
    return nn.Sequential(
        nn.Linear(128, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, 16),
    )  # fmt: skip


class Machine:
    def __init__(self, number):
        self.generator = torch.Generator().manual_seed(number)
        self.model = model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def step(self):
        signal = torch.randn(256, 144, generator=self.generator).cumsum(1) / 12
        loss = nn.functional.mse_loss(self.model(signal[:, :128]), signal[:, 128:])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--machines", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=120)
    parser.add_argument("--threads", type=int, default=16, help="threads of each product")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    machines = [Machine(number) for number in range(options.machines)]
    with ThreadPoolExecutor(options.machines) as pool:
        for number in range(options.rounds):
            losses = list(pool.map(Machine.step, machines))
            if number % 20 == 0:
                print(f"round {number}: {torch.stack(losses).mean().item():.4f}")


if __name__ == "__main__":
    main()
