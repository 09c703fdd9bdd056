"""Neural collaborative filtering: embeddings of user and item into a small tower."""

import argparse

import torch
from torch import nn


class NCF(nn.Module):
    def __init__(self, users, items, width, depth):
        super().__init__()
        self.user = nn.Embedding(users, width, sparse=True)
        self.item = nn.Embedding(items, width, sparse=True)
        hidden = [
            layer
            for _ in range(depth)
            for layer in (nn.Linear(2 * width, 2 * width), nn.LayerNorm(2 * width), nn.ReLU())
        ]
        self.tower = nn.Sequential(*hidden, nn.Linear(2 * width, 1))

    def forward(self, users, items):
        return self.tower(torch.cat([self.user(users), self.item(items)], dim=1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=3_200)
    parser.add_argument("--lr", type=float, default=1e-3)
    options = parser.parse_args()
    torch.manual_seed(20)
    users = torch.randint(3000, (options.pairs,))
    items = torch.randint(2000, (options.pairs,))
    liked = ((users + items) % 3 == 0).float()
    model = NCF(3000, 2000, 64, 8)
    tables = torch.optim.SparseAdam([model.user.weight, model.item.weight], lr=options.lr)
    optimizer = torch.optim.Adam(model.tower.parameters(), lr=options.lr)
    total = 0.0
    order = torch.randperm(options.pairs)
    for chosen in order.split(options.batch_size):
        loss = nn.functional.binary_cross_entropy_with_logits(model(users[chosen], items[chosen]), liked[chosen])
        tables.zero_grad()
        optimizer.zero_grad()
        loss.backward()
        tables.step()
        optimizer.step()
        total += loss.item() * len(chosen)
    print(f"loss {total / options.pairs:.4f}")


if __name__ == "__main__":
    main()
