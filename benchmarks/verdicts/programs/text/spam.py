"""Spam filter over message embeddings, with a small mixture of linear experts."""

import torch
from spam_parts.records import recorded
from torch import nn


class Filter(nn.Module):
    def __init__(self, words=8000, width=128, experts=4):
        super().__init__()
        self.embedding = nn.EmbeddingBag(words, width, mode="mean", sparse=True)
        self.experts = nn.ModuleList([nn.Linear(width, width) for _ in range(experts)])
        self.route = nn.Linear(width, experts)
        self.verdict = nn.Linear(width, 2)

    @recorded
    def gates(self, x):
        return torch.softmax(self.route(x), dim=-1)

    @recorded
    def hidden(self, x):
        mixed = torch.stack([expert(x) for expert in self.experts], dim=1)
        return torch.relu((self.gates(x).unsqueeze(-1) * mixed).sum(1))

    @recorded
    def forward(self, words):
        return self.verdict(self.hidden(self.embedding(words)))


def messages(steps, batch=128, length=40):
    for _ in range(steps):
        words = torch.randint(0, 8000, (batch, length))
        spam = torch.rand(batch) < 0.4
        words[spam, :4] %= 50
        yield words, spam.long()


torch.manual_seed(9)
model = Filter()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
seen = right = 0
for words, labels in messages(200):
    scores = model(words)
    loss = nn.functional.cross_entropy(scores, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    right += (scores.argmax(1) == labels).sum().item()
    seen += len(labels)
print(f"accuracy {right / seen:.3f} over {seen} messages")
