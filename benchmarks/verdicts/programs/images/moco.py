"""Momentum contrast: views of an image must find each other among many earlier ones in a queue."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


class MomentumContrast(nn.Module):
    def __init__(self, dim=128, room=65_536, momentum=0.99, temperature=0.1):
        super().__init__()
        self.room, self.momentum, self.temperature = room, momentum, temperature
        self.query = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
            nn.Flatten(), nn.Linear(32 * 7 * 7, dim),
        )  # fmt: skip
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(room, dim)))
        self.at = 0

    @torch.no_grad()
    def follow(self):
        for slow, fast in zip(self.key.parameters(), self.query.parameters(), strict=True):
            slow.lerp_(fast, 1 - self.momentum)

    @torch.no_grad()
    def push(self, keys):
        self.queue = torch.cat([keys, self.queue])[: self.room].clone()

    def negatives(self):
        return self.queue.clone().detach()[:: self.room // 1024]

    def forward(self, one, two):
        query = F.normalize(self.query(one))
        with torch.no_grad():
            keys = F.normalize(self.key(two))
        same = (query * keys).sum(1, keepdim=True)
        other = query @ self.negatives().T
        scores = torch.cat([same, other], dim=1) / self.temperature
        return F.cross_entropy(scores, torch.zeros(len(one), dtype=torch.long)), keys


def views(faces, count):
    which = torch.randint(len(faces), (count,))
    return [faces[which] + 0.3 * torch.randn(count, 1, 32, 32) for _ in range(2)]


def main(steps=50, batch=64):
    torch.manual_seed(70)
    faces = torch.randn(200, 1, 32, 32)
    model = MomentumContrast()
    optimizer = torch.optim.SGD(model.query.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        loss, keys = model(*views(faces, batch))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.follow()
        model.push(keys)
        if step % 10 == 9:
            print(f"step {step + 1}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
