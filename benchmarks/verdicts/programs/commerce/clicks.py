"""Click-through with hashed crosses of features: embeddings, a factorisation machine and a small network."""

import torch
from torch import nn

FIELDS, BUCKETS, WIDTH = 10, 500_000, 16


class DeepFM(nn.Module):
    def __init__(self):
        super().__init__()
        self.hashed = nn.Embedding(BUCKETS, WIDTH)
        nn.init.normal_(self.hashed.weight, std=0.05)
        self.deep = nn.Sequential(nn.Linear(FIELDS * WIDTH, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, rows):
        fields = self.hashed(rows)
        crosses = 0.5 * (fields.sum(1).square() - fields.square().sum(1)).sum(1)
        return crosses + self.deep(fields.flatten(1)).squeeze(1)


def impressions(size, generator):
    user = torch.randint(40_000, (size, 1), generator=generator)
    page = torch.randint(3_000, (size, 1), generator=generator)
    seeds = torch.tensor([1_000_003, 998_244_353, 754_974_721, 469_762_049, 167_772_161])
    rows = torch.cat([user * seeds + 11, (user + page) * seeds + 23], dim=1) % BUCKETS
    clicked = ((user % 7 + page % 5).squeeze(1) > 5).float()
    return rows, clicked


def main():
    torch.manual_seed(5)
    generator = torch.Generator().manual_seed(6)
    model = DeepFM()
    optimizers = [torch.optim.Adam(model.parameters(), lr=1e-3)]
    loss_sum = 0.0
    for step in range(1, 76):
        rows, clicked = impressions(1024, generator)
        loss = nn.functional.binary_cross_entropy_with_logits(model(rows), clicked)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        loss_sum += loss.item()
        if step % 15 == 0:
            print(f"{step * 1024} impressions, log loss {loss_sum / 15:.4f}")
            loss_sum = 0.0


if __name__ == "__main__":
    main()
