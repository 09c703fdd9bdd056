"""Word-level language model: embedding, GRU, projection onto the vocabulary."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    vocabulary: int = 24_000
    used: int = 2_000  # words of the corpus after the rare ones became <unk>
    width: int = 96
    hidden: int = 128
    batch: int = 12
    length: int = 16
    steps: int = 40
    lr: float = 0.5


class LanguageModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.encoder = nn.Embedding(config.vocabulary, config.width, sparse=True)
        self.rnn = nn.GRU(config.width, config.hidden, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.decoder = nn.Linear(config.hidden, config.vocabulary)

    def forward(self, words, state=None):
        out, state = self.rnn(self.encoder(words), state)
        return self.decoder(self.drop(out)), state


def corpus(config, generator):
    ranks = torch.rand(config.batch, config.length * config.steps + 1, generator=generator)
    return (ranks.pow(3) * config.used).long()


def train(config):
    torch.manual_seed(0)
    stream = corpus(config, torch.Generator().manual_seed(17))
    model = LanguageModel(config)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
    state = None
    for step in range(config.steps):
        at = step * config.length
        words = stream[:, at : at + config.length]
        following = stream[:, at + 1 : at + 1 + config.length]
        scores, state = model(words, state)
        state = state.detach()
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), following.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 10 == 0:
            print(f"step {step + 1}  perplexity {loss.exp().item():.1f}")


if __name__ == "__main__":
    train(Config())
