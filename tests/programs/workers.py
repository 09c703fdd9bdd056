"""Batches from worker processes; the data set computes with PyTorch, modules included.

Arguments: how they are started, fork or spawn, and how many they are; two of fork where nothing is said.
"""

import sys

import torch
from digest import report
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):
    def __init__(self):
        self.mix = nn.Linear(4, 4).requires_grad_(False)

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return self.mix(torch.full((4,), float(index))), torch.tensor(float(index % 2))


if __name__ == "__main__":
    torch.manual_seed(0)
    kind, workers = (*sys.argv[1:], *("fork", "2")[len(sys.argv) - 1 :])
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    loader = DataLoader(Noise(), batch_size=3, num_workers=int(workers), multiprocessing_context=kind)
    losses = []
    for x, y in loader:
        loss = (model(x).squeeze(1) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, model)
