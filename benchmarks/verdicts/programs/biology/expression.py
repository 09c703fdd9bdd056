"""Variational autoencoder of gene expression in single cells, with a trainer that knows callbacks."""

import torch
from expression_parts.callbacks import Progress, SafetyNet
from torch import nn
from torch.nn import functional as F


class ExpressionVAE(nn.Module):
    def __init__(self, genes=3000, width=1024, latent=32):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(genes, width), nn.ReLU(), nn.Linear(width, 2 * latent))
        self.decode = nn.Sequential(nn.Linear(latent, width), nn.ReLU(), nn.Linear(width, genes))

    def forward(self, counts):
        mean, spread = self.encode(torch.log1p(counts)).chunk(2, dim=1)
        latent = mean + torch.randn_like(mean) * (0.5 * spread).exp()
        divergence = -0.5 * (1 + spread - mean.square() - spread.exp()).sum(dim=1)
        return self.decode(latent), divergence.mean()


class Trainer:
    def __init__(self, model, cells, callbacks, rate=1e-3):
        self.model, self.cells = model, cells
        self.optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
        self.callbacks = callbacks
        self.step = 0

    def fit(self, steps, size=64):
        for self.step in range(1, steps + 1):
            counts = self.cells[torch.randint(len(self.cells), (size,))]
            log_rate, divergence = self.model(counts)
            loss = F.poisson_nll_loss(log_rate, counts) + 1e-3 * divergence
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.loss = loss.item()
            for callback in self.callbacks:
                callback.after_step(self)


if __name__ == "__main__":
    torch.manual_seed(17)
    programs = torch.rand(20, 3000).pow(6)
    cells = torch.poisson(3 * torch.rand(3000, 20) @ programs)
    resampled = cells[torch.randint(len(cells), (12_000,))]
    trainer = Trainer(ExpressionVAE(), resampled, [Progress(every=20), SafetyNet()])
    trainer.fit(steps=80)
