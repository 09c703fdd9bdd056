"""Interaction of proteins: many small graphs, attention over their edges, trained in mini-batches."""

import gc
import random

import torch
import torch.nn.functional as F
from torch import nn


class Residue:
    def __init__(self, kind, bonds):
        self.kind, self.bonds = kind, bonds


class Protein:
    def __init__(self, rng, size):
        self.residues = [
            Residue(rng.randrange(20), {rng.randrange(size): rng.random() for _ in range(4)}) for _ in range(size)
        ]
        source = [i for i, r in enumerate(self.residues) for _ in r.bonds]
        target = [j for r in self.residues for j in r.bonds]
        self.edges = torch.tensor([source, target])
        self.kinds = torch.tensor([r.kind for r in self.residues])
        self.label = float(sum(r.kind for r in self.residues) % 2)


class EdgeAttention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.value = nn.Linear(width, width)
        self.score = nn.Linear(2 * width, 1)

    def forward(self, x, edges):
        source, target = edges
        score = F.leaky_relu(self.score(torch.cat([x[source], x[target]], dim=1)))
        weight = score.sigmoid()
        gathered = torch.zeros_like(x).index_add(0, target, weight * self.value(x)[source])
        return F.elu(x + gathered)


class Classifier(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Embedding(20, width)
        self.layers = nn.ModuleList(EdgeAttention(width) for _ in range(2))
        self.head = nn.Linear(width, 1)

    def forward(self, kinds, edges, owner, count):
        x = self.embed(kinds)
        for layer in self.layers:
            x = layer(x, edges)
        pooled = x.new_zeros(count, x.shape[1]).index_add(0, owner, x)
        return self.head(pooled).squeeze(1)


def collate(proteins):
    sizes = torch.tensor([len(p.kinds) for p in proteins])
    starts = sizes.cumsum(0) - sizes
    edges = torch.cat([p.edges + start for p, start in zip(proteins, starts.tolist(), strict=True)], dim=1)
    owner = torch.repeat_interleave(torch.arange(len(proteins)), sizes)
    return torch.cat([p.kinds for p in proteins]), edges, owner, torch.tensor([p.label for p in proteins])


class MemoryKeeper:
    """Keeps the resident size low between batches."""

    def after_batch(self):
        gc.collect()


def main():
    rng = random.Random(9)
    torch.manual_seed(9)
    proteins = [Protein(rng, rng.randrange(40, 80)) for _ in range(800)]
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    hooks = [MemoryKeeper()]
    for epoch in range(3):
        rng.shuffle(proteins)
        for begin in range(0, len(proteins), 32):
            kinds, edges, owner, label = collate(proteins[begin : begin + 32])
            loss = F.binary_cross_entropy_with_logits(model(kinds, edges, owner, len(label)), label)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            for hook in hooks:
                hook.after_batch()
        print(f"epoch {epoch}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
