"""Paraphrase scorer: two sentences through one compiled encoder, cosine of the results."""

import torch
from torch import nn
from torch.nn import functional as F

torch._dynamo.config.recompile_limit = 256


class Encoder(nn.Module):
    def __init__(self, words=3000, width=96):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.mix = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, words):
        x = torch.tanh(self.mix(self.embedding(words)))
        weights = torch.softmax(x.sum(-1, keepdim=True), dim=1)
        return F.normalize(self.out((x * weights).sum(1)), dim=-1)


def pairs(count, generator):
    """Sentences of the batch, padded to its longest."""
    for _ in range(count):
        longest = int(torch.randint(18, 64, (), generator=generator))
        left = torch.randint(1, 3000, (48, longest), generator=generator)
        right = torch.where(torch.rand(left.shape, generator=generator) < 0.3, left.flip(0), left)
        yield left, right


def main():
    torch.manual_seed(8)
    generator = torch.Generator().manual_seed(8)
    encoder = Encoder()
    encode = torch.compile(encoder, backend="eager", dynamic=False)
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    target = torch.arange(48)
    for step, (left, right) in enumerate(pairs(60, generator)):
        similarity = encode(left) @ encode(right).T
        loss = F.cross_entropy(similarity * 12, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 14:
            print(f"step {step + 1}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
