"""An autoencoder of phrases: what goes in as a bag of words must come out again."""

import numpy as np
import torch
from memo.book import PhraseBook, bounded
from torch import nn

VOCABULARY, LENGTH = 2500, 8


class PhraseAutoencoder(nn.Module):
    def __init__(self, width=128, code=48):
        super().__init__()
        self.words = nn.EmbeddingBag(VOCABULARY, width, mode="sum")
        self.encode = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, code), nn.Tanh())
        self.decode = nn.Linear(code, VOCABULARY)

    def forward(self, phrases):
        return self.decode(self.encode(self.words(phrases)))


def step(model, optimizer, phrases):
    scores = model(phrases).log_softmax(dim=1)
    loss = -scores.gather(1, phrases).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main(steps=36, batch=128):
    torch.manual_seed(80)
    rng = np.random.default_rng(80)
    book = PhraseBook(rng, 45_000, LENGTH, VOCABULARY)
    model = PhraseAutoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for number in range(1, steps + 1):
        with bounded():
            phrases = torch.tensor(book.take(rng.integers(0, len(book), batch)))
            loss = step(model, optimizer, phrases)
        if number % 12 == 0:
            print(f"{number:4d} {loss:.4f}")


if __name__ == "__main__":
    main()
