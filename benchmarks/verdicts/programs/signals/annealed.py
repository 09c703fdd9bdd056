"""Sparse coding of signals with a threshold that grows while training; the network is compiled."""

import torch
from torch import nn


class SparseCoder(nn.Module):
    """Codes below a threshold vanish; the threshold rises with the number of batches seen."""

    def __init__(self, length=256, atoms=512, top=0.3, rise=200):
        super().__init__()
        self.analyse = nn.Linear(length, atoms)
        self.refine = nn.Linear(atoms, atoms)
        self.build = nn.Linear(atoms, length)
        self.top, self.rise = top, rise
        self.seen = 0

    def forward(self, signals):
        threshold = self.top * min(1.0, self.seen / self.rise)
        codes = nn.functional.softshrink(self.analyse(signals), 0.0)
        codes = codes + torch.tanh(self.refine(codes))
        codes = torch.sign(codes) * torch.relu(codes.abs() - threshold)
        return self.build(codes), codes.abs().mean()


def tones(count, length=256):
    pitch = 0.05 + torch.rand(count, 3, 1)
    return torch.sin(pitch * torch.arange(length)).sum(1) + 0.1 * torch.randn(count, length)


def main():
    torch.manual_seed(90)
    coder = SparseCoder()
    fast = torch.compile(coder, backend="aot_eager")
    optimizer = torch.optim.SGD(coder.parameters(), lr=0.05, momentum=0.9)
    for step in range(60):
        signals = tones(256)
        rebuilt, density = fast(signals)
        loss = nn.functional.mse_loss(rebuilt, signals) + 0.01 * density
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        coder.seen += 1
        if step % 12 == 11:
            print(f"step {step + 1}: loss {loss.item():.4f}, density {density.item():.4f}")


if __name__ == "__main__":
    main()
