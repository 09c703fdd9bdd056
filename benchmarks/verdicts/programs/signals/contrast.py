"""Contrastive learning of vibration signals: two noisy views of a window must find each other."""

import torch
from measures.health import Health
from torch import nn
from torch.nn import functional as F


def encoder(length, width=320):
    return nn.Sequential(
        nn.Linear(length, width),
        nn.LayerNorm(width),
        nn.SiLU(),
        nn.Linear(width, width),
        nn.SiLU(),
        nn.Linear(width, 384),
    )


def windows(machines, count, length):
    which = torch.randint(len(machines), (count,))
    phase = torch.rand(count, 1) * 6.3
    time = torch.arange(length)
    return torch.sin(machines[which, :1] * time + phase) + torch.sin(machines[which, 1:] * time)


def view(x):
    return x * (0.8 + 0.4 * torch.rand(len(x), 1)) + 0.2 * torch.randn_like(x)


def agree(one, two, temperature=0.2):
    scores = F.normalize(one) @ F.normalize(two).T / temperature
    wanted = torch.arange(len(one))
    return 0.5 * (F.cross_entropy(scores, wanted) + F.cross_entropy(scores.T, wanted))


class Pretrainer:
    def __init__(self, length=384, lr=1e-3):
        self.length = length
        self.net = encoder(length)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=lr * 30, momentum=0.9)
        self.health = Health()

    def step(self, x):
        one, two = self.net(torch.cat([view(x), view(x)])).chunk(2)
        loss = agree(one, two)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach(), one.detach()

    def fit(self, machines, steps, batch):
        for number in range(1, steps + 1):
            loss, points = self.step(windows(machines, batch, self.length))
            self.health.observe(points)
            if number % self.health.keep == 0:
                print(f"step {number}: loss {loss.item():.3f}, {self.health.line()}")


if __name__ == "__main__":
    torch.manual_seed(29)
    Pretrainer().fit(0.05 + torch.rand(300, 2), steps=80, batch=512)
