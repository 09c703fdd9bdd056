"""Trains a small network for six steps; a counter of its own, opened around everything, says what the whole counted.

Argument: the file for what that counter said: at the first phase's begin and after the last phase's end.
"""

from __future__ import annotations

import json
import mmap
import sys

import torch
from _sonda.collector.counters.perf_event import Event, attach

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
groups, _ = attach([Event("page_faults", 1, 2, kernel=True), Event("switches", 1, 3, kernel=True)])
for group in groups:
    group.enable()
before = [group.read().values for group in groups]
for _ in range(6):
    own = mmap.mmap(-1, 256 * 4096)
    for page in range(256):
        own[page * 4096] = 1  # faults that belong to no phase
    own.close()
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(torch.randn(4096, 64)), torch.zeros(4096, 8))
    loss.backward()
    optimizer.step()
after = [group.read().values for group in groups]
with open(sys.argv[1], "w") as file:
    json.dump([sum(b[at] - a[at] for a, b in zip(before, after, strict=True)) for at in (0, 1)], file)
