"""Credit default: a network on standardised applications, decisions kept for the auditors."""

import csv
import tempfile

import torch
from torch import nn

COLUMNS = [f"c{i:02d}" for i in range(24)]


class Ledger:
    """One record per application seen."""

    def __init__(self):
        self.file = tempfile.NamedTemporaryFile("w", suffix=".csv", newline="")  # noqa: SIM115
        self.writer = csv.writer(self.file)
        self.writer.writerow(["step", *COLUMNS, "score", "defaulted"])
        self.count = 0

    def add(self, step, x, scores, y):
        for row, score, label in zip(x.tolist(), scores.tolist(), y.tolist(), strict=True):
            self.writer.writerow([step, *(f"{value:.6f}" for value in row), f"{score:.6f}", int(label)])
            self.file.flush()
            self.count += 1

    def close(self):
        self.file.close()


def applications(count):
    x = torch.randn(count, len(COLUMNS))
    risk = x[:, 0] - 0.7 * x[:, 3] * x[:, 5] + 0.3 * torch.randn(count)
    return x, (risk > 0.5).float()


def train(epochs=9, size=256):
    torch.manual_seed(30)
    x, y = applications(6400)
    model = nn.Sequential(
        nn.Linear(24, 256), nn.BatchNorm1d(256), nn.SiLU(), nn.Linear(256, 256), nn.SiLU(), nn.Linear(256, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    ledger = Ledger()
    step = 0
    for epoch in range(epochs):
        for rows in torch.randperm(len(x)).split(size):
            scores = model(x[rows]).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(scores, y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            ledger.add(step, x[rows], scores.detach(), y[rows])
        print(f"epoch {epoch}: loss {loss.item():.4f}, {ledger.count} records")
    ledger.close()


if __name__ == "__main__":
    train()
