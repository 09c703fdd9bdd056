"""Texture synthesis: a stack of convolutions turns noise into pictures with given channel statistics."""

import torch
import torch.nn.functional as F
from torch import nn


class Synthesizer(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.stem = nn.Conv2d(8, width, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.norms = nn.ModuleList(nn.GroupNorm(4, width) for _ in range(3))
        self.paint = nn.Conv2d(width, 3, 1)

    def forward(self, z):
        h = self.stem(z)
        for conv, norm in zip(self.blocks, self.norms, strict=True):
            h = h + F.silu(norm(conv(h)))
        return torch.sigmoid(self.paint(h))


def statistics(picture):
    flat = picture.flatten(2)
    return flat.mean(dim=2), flat @ flat.mT / flat.shape[2]


def main():
    torch.manual_seed(0)
    model = Synthesizer()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    wanted = torch.rand(8, 3, 64, 64).square()
    means, grams = statistics(wanted)
    for step in range(50):
        made = model(torch.randn(8, 8, 64, 64))
        mean, gram = statistics(made)
        loss = F.mse_loss(mean, means) + F.mse_loss(gram, grams)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1}: loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
