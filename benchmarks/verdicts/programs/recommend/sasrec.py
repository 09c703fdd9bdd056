"""Self-attentive sequential recommendation on top of given item vectors."""

import torch
from sasrec_parts.vectors import item_vectors
from torch import nn


class NextItem(nn.Module):
    def __init__(self, vectors, length):
        super().__init__()
        width = vectors.shape[1]
        self.items = nn.Embedding.from_pretrained(torch.from_numpy(vectors), freeze=True)
        self.places = nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, 2, width * 2, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.register_buffer("mask", torch.triu(torch.ones(length, length, dtype=torch.bool), 1), persistent=False)
        self.to(self.items.weight.dtype)

    def forward(self, history):
        x = self.items(history) + self.places.weight
        x = self.encoder(x, mask=self.mask)
        return x[:, -1] @ self.items.weight.T


def histories(steps, batch, length, items, generator):
    for _ in range(steps):
        start = torch.randint(items, (batch, 1), generator=generator)
        walk = (start + 17 * torch.arange(length + 1)) % items
        yield walk[:, :-1], walk[:, -1]


if __name__ == "__main__":
    torch.manual_seed(14)
    length = 32
    vectors = item_vectors(3000, 128)
    model = NextItem(vectors, length)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    generator = torch.Generator().manual_seed(14)
    for step, (history, following) in enumerate(histories(50, 32, length, 3000, generator), start=1):
        loss = nn.functional.cross_entropy(model(history), following)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: {loss.item():.3f}")
