"""Hidden factors of asset returns: a denoising autoencoder with a fit method."""

import logging

import torch
from torch import nn

log = logging.getLogger("factors")


class FactorModel(nn.Module):
    def __init__(self, assets=768, width=1024, factors=32):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(assets, width), nn.ReLU(), nn.Linear(width, factors))
        self.decoder = nn.Sequential(nn.Linear(factors, width), nn.ReLU(), nn.Linear(width, assets))

    def forward(self, returns):
        return self.decoder(self.encoder(returns))

    def fit(self, returns, steps, batch, noise=0.2):
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-3)
        for step in range(1, steps + 1):
            day = torch.randint(len(returns), (batch,))
            clean = returns[day]
            loss = nn.functional.mse_loss(self(clean + noise * torch.randn_like(clean)), clean)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                log.info("step %d: loss %.4f", step, loss.item())
        return self


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(103)
    loadings = torch.randn(16, 768)
    history = torch.randn(4000, 16) @ loadings / 4 + 0.3 * torch.randn(4000, 768)
    FactorModel().fit(history, steps=80, batch=512)
