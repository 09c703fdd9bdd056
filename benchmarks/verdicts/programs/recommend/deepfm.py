"""DeepFM: factorisation machine and a deep tower over the same embeddings."""

import torch
from torch import nn


class DeepFM(nn.Module):
    def __init__(self, fields=24, values=300, width=16):
        super().__init__()
        self.first = nn.EmbeddingBag(fields * values, 1, mode="sum", sparse=True)
        self.second = nn.Embedding(fields * values, width, sparse=True)
        self.deep = nn.Sequential(
            nn.Linear(fields * width, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1)
        )

    def forward(self, codes):
        vectors = self.second(codes)
        pairs = 0.5 * (vectors.sum(1).square() - vectors.square().sum(1)).sum(1)
        return self.first(codes).squeeze(1) + pairs + self.deep(vectors.flatten(1)).squeeze(1)


def main():
    torch.manual_seed(50)
    codes = torch.randint(300, (64_000, 24)) + torch.arange(24) * 300
    clicked = ((codes[:, 0] + codes[:, 1]) % 3 == 0).float()
    model = DeepFM()
    nn.init.normal_(model.second.weight, std=0.05)
    dense = torch.optim.Adam(model.deep.parameters(), lr=1e-3, fused=True)
    sparse = torch.optim.SparseAdam([model.first.weight, model.second.weight], lr=1e-3)
    for step, rows in enumerate(torch.randperm(len(codes)).split(1000), start=1):
        loss = nn.functional.binary_cross_entropy_with_logits(model(codes[rows]), clicked[rows])
        dense.zero_grad(set_to_none=True)
        sparse.zero_grad(set_to_none=True)
        loss.backward()
        dense.step()
        sparse.step()
        if step % 16 == 0:
            print(f"step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
