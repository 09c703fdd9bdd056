"""A small network for the field learns to foresee outages from a large one that is already trained."""

import itertools

import torch
from outages_parts.guide import Guide
from torch import nn


def stack(*widths):
    layers = []
    for inward, outward in itertools.pairwise(widths):
        layers += [nn.Linear(inward, outward), nn.SiLU()]
    return nn.Sequential(*layers[:-1])


class Telemetry:
    def __init__(self, lines=6000, readings=256):
        self.readings = torch.randn(lines, readings)
        self.failed = (self.readings[:, ::16].sum(dim=1) > 3).long()

    def __iter__(self):
        while True:
            rows = torch.randint(len(self.readings), (512,))
            yield self.readings[rows], self.failed[rows]


torch.manual_seed(0)
student = stack(256, 896, 896, 2)
guide = Guide(stack(256, 1280, 1280, 1280, 2))
optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)
feed = iter(Telemetry())

step = 0
while step < 48:
    readings, failed = next(feed)
    own = student(readings)
    loss = nn.functional.cross_entropy(own, failed) + guide.disagreement(own, readings)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if step % 12 == 0:
        print(f"{step:4d}  {loss.item():.4f}")
