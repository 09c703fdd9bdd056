"""Grade heartbeats: a one-dimensional network, judged by rank correlation with the cardiologists' scores."""

import functools

import pandas as pd
import torch
from torch import nn


def tracked(window):
    """Keep a step's predictions and targets, and how well they agree of late."""

    def decorate(function):
        seen = []

        @functools.wraps(function)
        def wrapper(*arguments):
            loss, predicted, target = function(*arguments)
            seen.append((predicted.detach(), target))
            del seen[:-window]
            table = pd.DataFrame(torch.cat([p for p, _ in seen]).numpy())
            truth = pd.DataFrame(torch.cat([t for _, t in seen]).numpy())
            wrapper.agreement = table.rank().corrwith(truth.rank()).mean()
            return loss

        return wrapper

    return decorate


class Grader(nn.Module):
    def __init__(self, scores=24):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(2, 16, 9, stride=4), nn.ReLU(), nn.Conv1d(16, 32, 9, stride=4), nn.ReLU(),
            nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(128, scores),
        )  # fmt: skip

    def forward(self, beats):
        return self.layers(beats)


model = None
optimizer = None


@tracked(window=30)
def step(beats, scores):
    predicted = model(beats)
    loss = nn.functional.mse_loss(predicted, scores)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach(), predicted, scores


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Grader()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    beats = torch.randn(600, 2, 400)
    scores = beats.mean(2) @ torch.randn(2, 24) + 0.1 * torch.randn(600, 24)
    for number in range(240):
        chosen = torch.randint(600, (32,))
        loss = step(beats[chosen], scores[chosen])
        if number % 60 == 59:
            print(f"step {number + 1}: loss {loss.item():.4f}, agreement {step.agreement:.3f}")
