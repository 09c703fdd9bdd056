"""A character model that learns to make up names."""

import random
import string

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ALPHABET = "." + string.ascii_lowercase
LENGTH = 12
BATCH_SIZE = 2


def invent(count, rng):
    starts = ["ka", "mi", "to", "ben", "ra", "su", "el", "jo", "vi", "ster"]
    ends = ["na", "rin", "mas", "ta", "lo", "lia", "dra", "ko", "ren"]
    return ["".join([rng.choice(starts), rng.choice(ends), rng.choice(ends)])[:LENGTH] for _ in range(count)]


def encode(names):
    rows = [[ALPHABET.index(c) for c in name.ljust(LENGTH, ".")] for name in names]
    return torch.tensor(rows)


class NameModel(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.embed = nn.Embedding(len(ALPHABET), width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, len(ALPHABET))

    def forward(self, x):
        return self.head(self.rnn(self.embed(x))[0])


def main():
    torch.manual_seed(12)
    table = encode(invent(1600, random.Random(12)))
    loader = DataLoader(TensorDataset(table), batch_size=BATCH_SIZE, shuffle=True, drop_last=True)
    model = NameModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    for epoch in range(1):
        for step, (names,) in enumerate(loader):
            before = F.pad(names[:, :-1], (1, 0))
            loss = F.cross_entropy(model(before).flatten(0, 1), names.flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if step % 200 == 199:
                print(f"epoch {epoch} step {step + 1} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
