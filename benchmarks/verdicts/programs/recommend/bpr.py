"""Bayesian personalised ranking from implicit feedback."""

import itertools
import random
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Feedback:
    """What each user has seen."""

    users: int
    items: int
    seed: int = 0

    @cached_property
    def seen(self):
        rng = random.Random(self.seed)
        return [set(rng.sample(range(self.items), 110)) for _ in range(self.users)]

    @cached_property
    def pairs(self):
        return torch.tensor([(user, item) for user, items in enumerate(self.seen) for item in sorted(items)])


@dataclass
class Batch:
    feedback: Feedback
    users: torch.Tensor
    liked: torch.Tensor

    @property
    def disliked(self):
        items = []
        for user in self.users.tolist():
            item = random.randrange(self.feedback.items)
            while item in self.feedback.seen[user]:
                item = random.randrange(self.feedback.items)
            items.append(item)
        return torch.tensor(items)


class Ranking(nn.Module):
    def __init__(self, users, items, width=24):
        super().__init__()
        self.user = nn.Embedding(users, width, sparse=True)
        self.item = nn.Embedding(items, width, sparse=True)

    def forward(self, users, items):
        return (self.user(users) * self.item(items)).sum(-1)


def batches(feedback, size):
    for chosen in torch.randperm(len(feedback.pairs)).split(size):
        users, items = feedback.pairs[chosen].unbind(1)
        yield Batch(feedback, users, items)


def main():
    random.seed(2)
    torch.manual_seed(2)
    feedback = Feedback(users=2400, items=220)
    model = Ranking(feedback.users, feedback.items)
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
    won = 0.0
    epochs = itertools.chain.from_iterable(batches(feedback, 4096) for _ in range(4))
    for step, batch in enumerate(epochs, start=1):
        margin = model(batch.users, batch.liked) - model(batch.users, batch.disliked)
        loss = -F.logsigmoid(margin).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        won += (margin > 0).float().mean().item()
        if step % 50 == 0:
            print(f"{step:4d} loss {loss.item():.4f} pairs in order {won / step:.3f}")


if __name__ == "__main__":
    main()
