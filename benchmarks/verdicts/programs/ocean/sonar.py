"""Echoes of the sonar and the objects they come from, embedded side by side by contrast."""

import torch
from torch import nn
from torch.nn import functional as F


def tower(inputs, width=1024, out=256):
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, out))


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.echo, self.form = tower(768), tower(384)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, echoes, forms):
        echo = F.normalize(self.echo(echoes), dim=1)
        form = F.normalize(self.form(forms), dim=1)
        return self.scale.exp() * echo @ form.T


def main():
    torch.manual_seed(90)
    forms = torch.randn(8192, 384)
    scatter = torch.randn(384, 768) / 384**0.5
    pair = Pair()
    optimizer = torch.optim.AdamW(pair.parameters(), lr=3e-4, fused=True)
    target = torch.arange(512)
    for step in range(45):
        rows = torch.randperm(len(forms))[:512]
        echoes = forms[rows] @ scatter + 0.3 * torch.randn(512, 768)
        scores = pair(echoes, forms[rows])
        loss = (F.cross_entropy(scores, target) + F.cross_entropy(scores.T, target)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 14:
            print(f"step {step + 1}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
