"""Screen electrocardiograms for an arrhythmia with a dilated convolutional network."""

import torch
from scores.curves import auroc
from torch import nn


class Dilated(nn.Module):
    def __init__(self, width=32, layers=5):
        super().__init__()
        self.enter = nn.Conv1d(2, width, 7, stride=2, padding=3)
        self.layers = nn.ModuleList(
            nn.Conv1d(width, width, 3, padding=2**number, dilation=2**number) for number in range(layers)
        )
        self.out = nn.Linear(width, 1)

    def forward(self, leads):
        h = self.enter(leads)
        for layer in self.layers:
            h = h + torch.relu(layer(h))
        return self.out(h.mean(dim=2)).squeeze(1)


def beats(count, length=160):
    time = torch.linspace(0, 8, length)
    sick = (torch.rand(count) < 0.45).float()
    jitter = 1 + 0.15 * sick[:, None] * torch.sin(3 * time + 6 * torch.rand(count, 1))
    lead = torch.exp(10 * (torch.cos(6.28 * time * jitter) - 1))
    return torch.stack([lead, -0.5 * lead], dim=1) + 0.1 * torch.randn(count, 2, length), sick


def fit(model, steps=70, batch=400, show=14):
    optimizer = torch.optim.NAdam(model.parameters(), lr=2e-3)
    history = {"loss": [], "auroc": []}
    for step in range(1, steps + 1):
        leads, sick = beats(batch)
        scores = model(leads)
        loss = nn.functional.binary_cross_entropy_with_logits(scores, sick)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history["loss"].append(loss.item())
        history["auroc"].append(auroc(scores.detach(), sick))
        if step % show == 0:
            print(f"step {step}: loss {history['loss'][-1]:.4f}, AUROC {history['auroc'][-1]:.3f}")
    return history


if __name__ == "__main__":
    torch.manual_seed(23)
    fit(Dilated(width=20, layers=3), batch=800)
