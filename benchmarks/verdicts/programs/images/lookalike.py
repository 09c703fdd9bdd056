"""Metric learning on small portraits: triplets are picked within each batch, then pulled and pushed."""

import torch
from torch import nn
from torch.nn import functional as F

PEOPLE, SIDE = 40, 24


def embedder():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 5 * 5, 64),
    )  # fmt: skip


def pick_triplets(points, who, margin=0.3):
    """For each pair of one person a stranger who is farther away than the partner, but not by the margin."""
    apart = torch.cdist(points, points).tolist()
    who = who.tolist()
    triplets = []
    for anchor, row in enumerate(apart):
        strangers = [other for other in range(len(who)) if who[other] != who[anchor]]
        for partner, near in enumerate(row):
            if partner == anchor or who[partner] != who[anchor]:
                continue
            fitting = [other for other in strangers if near < row[other] < near + margin]
            if fitting:
                triplets.append((anchor, partner, min(fitting, key=row.__getitem__)))
    return torch.tensor(triplets, dtype=torch.long).reshape(-1, 3).unbind(1)


def portraits(faces, count):
    who = torch.randint(PEOPLE, (count,))
    return faces[who] + 2.5 * torch.randn(count, 1, SIDE, SIDE), who


def main(steps=80, batch=256):
    torch.manual_seed(2)
    faces = torch.randn(PEOPLE, 1, SIDE, SIDE)
    net = embedder()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for step in range(steps):
        images, who = portraits(faces, batch)
        points = F.normalize(net(images))
        anchor, partner, stranger = pick_triplets(points.detach(), who)
        near = (points[anchor] - points[partner]).square().sum(1)
        far = (points[anchor] - points[stranger]).square().sum(1)
        loss = F.relu(near - far + 0.3).sum() / max(1, len(anchor))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 16 == 0:
            print(f"step {step:3d}  triplets {len(anchor):5d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
