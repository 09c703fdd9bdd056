"""Variational autoencoder over what users listened to (multinomial likelihood), scored on a candidate list."""

import torch
from torch import nn
from torch.nn import functional as F

ITEMS = 60_000


class MultVAE(nn.Module):
    def __init__(self, candidates, hidden=64, latent=32):
        super().__init__()
        self.encode = nn.EmbeddingBag(ITEMS, hidden, mode="sum", sparse=True)
        self.moments = nn.Linear(hidden, 2 * latent)
        self.decode = nn.Sequential(nn.Linear(latent, hidden), nn.Tanh(), nn.Linear(hidden, candidates))

    def forward(self, listened):
        mean, spread = self.moments(torch.tanh(self.encode(listened))).chunk(2, dim=1)
        drawn = mean + torch.randn_like(mean) * torch.exp(0.5 * spread)
        divergence = -0.5 * (1 + spread - mean**2 - spread.exp()).sum(1).mean()
        return self.decode(drawn), divergence


def listens(users, each):
    centre = torch.randint(ITEMS, (users, 1))
    return (centre + (torch.randn(users, each) * 400).long()) % ITEMS


def targets(listened, candidates):
    """How often each user heard each of the candidates."""
    counts = torch.zeros(len(listened), ITEMS)
    rows = torch.arange(len(listened)).unsqueeze(1).expand_as(listened)
    counts.index_put_((rows, listened), torch.ones(listened.shape), accumulate=True)
    return counts[:, candidates]


def main():
    torch.manual_seed(40)
    candidates = torch.randperm(ITEMS)[:1000]
    model = MultVAE(len(candidates))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, 61):
        listened = listens(256, 80)
        wanted = targets(listened, candidates)
        scores, divergence = model(listened)
        loss = -(F.log_softmax(scores, dim=1) * wanted).sum(1).mean() + 0.2 * divergence
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: {loss.item():.3f}")


if __name__ == "__main__":
    main()
