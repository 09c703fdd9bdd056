"""Matrix factorisation of ratings with biases and weight decay."""

import torch
from matrix_factorization_parts.optim import DecayedAdam
from torch import nn

USERS, ITEMS, WIDTH = 20_000, 10_000, 64


class Factors(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(USERS, WIDTH)
        self.item = nn.Embedding(ITEMS, WIDTH)
        self.user_bias = nn.Embedding(USERS, 1)
        self.item_bias = nn.Embedding(ITEMS, 1)
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=0.1)

    def forward(self, users, items):
        match = (self.user(users) * self.item(items)).sum(1)
        return match + self.user_bias(users).squeeze(1) + self.item_bias(items).squeeze(1)


def ratings(count, generator):
    users = torch.randint(USERS, (count,), generator=generator)
    items = torch.randint(ITEMS, (count,), generator=generator)
    stars = ((users % 11 + items % 13) % 5 + 1).float()
    return users, items, stars


def main():
    torch.manual_seed(1)
    users, items, stars = ratings(400_000, torch.Generator().manual_seed(1))
    model = Factors()
    optimizer = DecayedAdam(model.parameters(), lr=5e-3, weight_decay=1e-4)
    size = 4096
    for step, chosen in enumerate(torch.randperm(len(users)).split(size)):
        error = nn.functional.mse_loss(model(users[chosen], items[chosen]), stars[chosen])
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        if step % 25 == 0:
            print(f"{step:4d} mse {error.item():.3f}")


if __name__ == "__main__":
    main()
