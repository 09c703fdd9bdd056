"""Activity of molecules in several assays from their fingerprints: one body, one head for each family of assays."""

import argparse

import torch
from torch import nn

FAMILIES = {"toxicity": 12, "solubility": 1, "binding": 20}


class MultiTask(nn.Module):
    def __init__(self, bits, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(bits, width),
            nn.LayerNorm(width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.LayerNorm(width),
            nn.GELU(),
        )
        self.heads = nn.ModuleDict({name: nn.Linear(width, outputs) for name, outputs in FAMILIES.items()})

    def forward(self, prints):
        h = self.body(prints)
        return {name: head(h) for name, head in self.heads.items()}


def library(count, bits):
    prints = (torch.rand(count, bits) < 0.1).float()
    truth = {name: prints @ torch.randn(bits, outputs) / bits**0.5 for name, outputs in FAMILIES.items()}
    return prints, truth


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bits", type=int, default=2048)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--batch", type=int, default=768)
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args()
    torch.manual_seed(105)
    prints, truth = library(6000, options.bits)
    model = MultiTask(options.bits, options.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
    for step in range(options.steps):
        rows = torch.randint(len(prints), (options.batch,))
        answers = model(prints[rows])
        losses = {name: nn.functional.mse_loss(answer, truth[name][rows]) for name, answer in answers.items()}
        loss = sum(losses.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(step + 1, {name: round(value.item(), 4) for name, value in losses.items()})


if __name__ == "__main__":
    main()
