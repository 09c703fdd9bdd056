"""Link mentions in text to entries of an encyclopedia; the hardest wrong entries are looked up by sketches."""

import torch
from torch import nn
from torch.nn import functional as F


class Sketches:
    """Short codes of all entries, which find rivals quickly."""

    def __init__(self, entries, size=8):
        self.project = torch.randn(entries.shape[1], size) / size**0.5
        self.codes = entries @ self.project

    def rivals(self, mentions, right):
        closeness = torch.mm(mentions @ self.project, self.codes.t())
        closeness.scatter_(1, right[:, None], -torch.inf)
        return closeness.argmax(dim=1)


class MentionEncoder(nn.Module):
    def __init__(self, words, size):
        super().__init__()
        self.words = nn.EmbeddingBag(words, 96)
        self.body = nn.Sequential(nn.Linear(96, 192), nn.GELU(), nn.Linear(192, size))

    def forward(self, mentions):
        return self.body(self.words(mentions))


class Linker:
    def __init__(self, entries, words=4000):
        self.entries = F.normalize(entries)
        self.sketches = Sketches(self.entries)
        self.encoder = MentionEncoder(words, entries.shape[1])
        self.optimizer = torch.optim.Adam(self.encoder.parameters(), lr=1e-3)

    def step(self, mentions, right):
        points = F.normalize(self.encoder(mentions))
        rivals = self.sketches.rivals(points.detach(), right)
        good = (points * self.entries[right]).sum(1)
        bad = (points * self.entries[rivals]).sum(1)
        loss = F.softplus(8 * (bad - good + 0.1)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    torch.manual_seed(71)
    linker = Linker(torch.randn(36_000, 64))
    total = 0.0
    for number in range(1, 61):
        entry = torch.randint(36_000, (640,))
        words = (entry[:, None] * torch.tensor([7, 13, 29, 31, 57]) + torch.randint(3, (640, 5))) % 4000
        total += linker.step(words, entry)
        if number % 12 == 0:
            print(f"{number} batches, loss {total / 12:.4f}")
            total = 0.0
