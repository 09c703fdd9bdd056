"""Inference that answers questions about batches. Argument: how."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 4)).eval()
batches = [torch.randn(8, 16) for _ in range(20)]
encoder, decoder = nn.GRU(16, 8, batch_first=True), nn.GRUCell(8, 8)


class Answer:
    def __init__(self, x):
        self.x = x

    @property
    def scores(self):
        return model(self.x)

    def kind(self):
        return self.scores.argmax(1)

    def sureness(self):
        return self.scores.max(1).values  # again


def ask_twice():
    return [(Answer(x).kind().sum() + Answer(x).sureness().sum()).item() for x in batches]


def ask_once():
    return [model(x).sum().item() for x in batches]


def measure():
    return [model(batches[0]).sum().item() for _ in range(60)]


def measure_epochs():
    return [model(x).sum().item() for _ in range(30) for x in batches[:4]]


def sample():
    model.train()
    return [model(x).sum().item() for x in batches for _ in range(5)]


def decode():
    total = []
    for x in batches:
        state = torch.zeros(8, 8)
        for _ in range(4):
            memory = encoder(x.unsqueeze(1))[0]  # again
            state = decoder(memory[:, 0], state)
        total.append(state.sum().item())
    return total


with torch.inference_mode():
    print(*[value.hex() for value in globals()[sys.argv[1]]()])
