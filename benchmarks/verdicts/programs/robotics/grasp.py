"""Predict whether a grasp will hold, from joints, touch and a small depth image."""

import torch
from rig.session import Rig, Session
from torch import nn
from torch.nn import functional as F


class GraspNet(nn.Module):
    def __init__(self, rig, width=256):
        super().__init__()
        self.depth = nn.Sequential(
            nn.Conv2d(rig.cameras, 16, 5, stride=2), nn.SiLU(), nn.Conv2d(16, 24, 3, stride=2), nn.SiLU(), nn.Flatten()
        )
        self.body = nn.Sequential(nn.Linear(rig.joints + rig.tactile, width), nn.SiLU(), nn.Linear(width, width))
        self.merge = nn.Sequential(nn.Linear(24 * 5 * 5 + width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, depth, body):
        return self.merge(torch.cat([self.depth(depth), self.body(body)], dim=1)).squeeze(1)


def attempts(rig, count, size=256):
    for _ in range(count):
        depth = torch.rand(size, rig.cameras, 28, 28)
        body = torch.randn(size, rig.joints + rig.tactile)
        held = (depth.mean((1, 2, 3)) * 10 - 5 + body[:, 0] > 0).float()
        yield depth, body, held


def learn(rig, steps=36):
    net = GraspNet(rig)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    running = 0.7
    for number, (depth, body, held) in enumerate(attempts(rig, steps), 1):
        loss = F.binary_cross_entropy_with_logits(net(depth, body), held)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running = 0.95 * running + 0.05 * loss.item()
        if number % 12 == 0:
            print(f"{number:4d} attempts x 256, loss {running:.4f}")


if __name__ == "__main__":
    with Session(Rig()) as session:
        learn(session.rig)
