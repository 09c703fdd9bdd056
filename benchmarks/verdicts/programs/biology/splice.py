"""Where a gene is cut: sites of splicing in windows of one-hot bases."""

import torch
from torch import nn

BASES = 4
WINDOW = 200


class SpliceNet(nn.Module):
    def __init__(self, channels=96, hidden=768):
        super().__init__()
        self.motifs = nn.Sequential(
            nn.Conv1d(BASES, channels, 11, padding=5), nn.ReLU(), nn.Conv1d(channels, channels, 3, padding=1), nn.ReLU()
        )
        self.flat = nn.Flatten()
        self.hidden = nn.Linear(channels * WINDOW, hidden)
        self.kinds = nn.Linear(hidden, 3)

    def forward(self, bases):
        features = self.flat(self.motifs(bases))
        return self.kinds(torch.relu(self.hidden(features)))


def windows(count):
    codes = torch.randint(BASES, (count, WINDOW))
    kind = torch.randint(3, (count,))
    codes[kind == 1, 99] = 2
    codes[kind == 1, 100] = 3
    codes[kind == 2, 99] = 0
    codes[kind == 2, 100] = 2
    return nn.functional.one_hot(codes, BASES).transpose(1, 2).float().contiguous(), kind


def main():
    torch.manual_seed(2)
    bases, kinds = windows(4000)
    model = SpliceNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(45):
        rows = torch.randint(len(bases), (160,))
        logits = model(bases[rows])
        loss = nn.functional.cross_entropy(logits, kinds[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 14:
            right = (logits.argmax(1) == kinds[rows]).float().mean()
            print(f"step {step + 1}: loss {loss.item():.3f}, right {right.item():.1%}")


if __name__ == "__main__":
    main()
