"""Span-extracting reader: question and passage through a convolutional encoder, start and end scored."""

import torch
from qa_reader_parts.store import PassageStore
from torch import nn


class Reader(nn.Module):
    def __init__(self, words=5000, width=64):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.convolutions = nn.Sequential(
            nn.Conv1d(width, width, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, padding=2),
            nn.ReLU(),
        )
        self.question = nn.Linear(width, width)
        self.ends = nn.Linear(width, 2)

    def forward(self, passage, question):
        encoded = self.convolutions(self.embedding(passage).transpose(1, 2)).transpose(1, 2)
        asked = self.question(self.embedding(question).mean(1))
        return self.ends(encoded * asked.unsqueeze(1)).unbind(-1)


class Training:
    def __init__(self, store, lr=1e-3):
        self.store = store
        self.model = Reader()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)

    def step(self, passage, question, start, end):
        first, last = self.model(passage, question)
        loss = nn.functional.cross_entropy(first, start) + nn.functional.cross_entropy(last, end)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def run(self, steps):
        losses = [self.step(*self.store.fetch()) for _ in range(steps)]
        print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")


if __name__ == "__main__":
    torch.manual_seed(6)
    with PassageStore(batch=16, length=96) as store:
        Training(store).run(90)
