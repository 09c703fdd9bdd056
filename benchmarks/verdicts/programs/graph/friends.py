"""Prediction of links in a social graph, watched by the area under the ROC curve."""

import torch
import torch.nn.functional as F
from torch import nn


def area(positive, negative):
    """Share of pairs in which the true link has the higher score."""
    wins = 0.0
    ordered = sorted(negative.tolist())
    for score in positive.tolist():
        below = 0
        for other in ordered:
            if other >= score:
                break
            below += 1
        wins += below
    return wins / (len(positive) * len(negative))


class LinkPredictor(nn.Module):
    def __init__(self, people, width=96):
        super().__init__()
        self.person = nn.Parameter(torch.randn(people, width) * 0.1)
        self.mix = nn.Linear(width, width)
        self.score = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, adjacency, a, b):
        h = torch.relu(self.mix(torch.sparse.mm(adjacency, self.person)))
        return self.score(h[a] * h[b]).squeeze(1)


def main(people=3000, steps=50, batch=512):
    torch.manual_seed(5)
    circle = torch.randint(40, (people,))
    order = circle.argsort()
    a = torch.randint(people, (24000,))
    b = (a + torch.randint(1, 60, a.shape)) % people
    a, b = order[a], order[b]
    edges = torch.stack([torch.cat([a, b]), torch.cat([b, a])])
    adjacency = torch.sparse_coo_tensor(edges, torch.full((edges.shape[1],), 1 / 16), (people, people))
    adjacency = adjacency.coalesce().to_sparse_csr()
    model = LinkPredictor(people)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    mean_area = 0.0
    for step in range(steps):
        chosen = torch.randint(len(a), (batch,))
        head = torch.cat([a[chosen], torch.randint(people, (batch,))])
        tail = torch.cat([b[chosen], torch.randint(people, (batch,))])
        wanted = torch.cat([torch.ones(batch), torch.zeros(batch)])
        scores = model(adjacency, head, tail)
        loss = F.binary_cross_entropy_with_logits(scores, wanted)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        mean_area += area(scores.detach()[:batch], scores.detach()[batch:]) / steps
        if step % 10 == 9:
            print(f"step {step + 1}: loss {loss.item():.4f}")
    print(f"area {mean_area:.3f}")


if __name__ == "__main__":
    main()
