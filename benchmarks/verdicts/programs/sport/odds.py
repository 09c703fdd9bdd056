"""Odds of football matches from the form of both teams: a residual network, and a ranked probability score."""

import torch
from odds_parts.journal import Journal
from torch import nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x):
        return x + self.inner(x)


def ranked_score(logits, outcome):
    """How far the cumulative odds of home, draw and away are from what happened."""
    wanted = nn.functional.one_hot(outcome, 3).cumsum(1).float()
    return (logits.softmax(1).cumsum(1) - wanted).square().sum(1).mean()


def seasons(matches, features):
    form = torch.randn(matches, features)
    better = form[:, :8].sum(1) - form[:, 8:16].sum(1) + torch.randn(matches)
    outcome = torch.bucketize(better, torch.tensor([-1.0, 1.0]))
    return form, outcome


def main(epochs=4, batch=1024):
    torch.manual_seed(77)
    form, outcome = seasons(12288, 96)
    model = nn.Sequential(nn.Linear(96, 384), *(Residual(384) for _ in range(3)), nn.Linear(384, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.02)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 10)
    step = 0
    with Journal() as journal:
        for epoch in range(epochs):
            for matches in torch.randperm(len(form)).split(batch):
                loss = ranked_score(model(form[matches]), outcome[matches])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                warm.step()
                journal.note(step, loss, model)
                step += 1
            print(f"season {epoch}: ranked probability score {loss.item():.4f}")


if __name__ == "__main__":
    main()
