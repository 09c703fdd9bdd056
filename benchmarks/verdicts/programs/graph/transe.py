"""Knowledge-graph embeddings by translation, with early stopping on the rank of held-out facts."""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Facts:
    entities: int = 4000
    relations: int = 12
    train: torch.Tensor = field(init=False)
    held_out: torch.Tensor = field(init=False)

    def __post_init__(self):
        hidden = torch.randn(self.entities, 3)
        shift = torch.randn(self.relations, 3)
        head = torch.randint(self.entities, (12_400,))
        relation = torch.randint(self.relations, (12_400,))
        tail = torch.cdist(hidden[head] + shift[relation], hidden).argmin(dim=1)
        facts = torch.stack([head, relation, tail], dim=1)
        self.train, self.held_out = facts[400:], facts[:400]


class TransE(nn.Module):
    def __init__(self, facts, width=64):
        super().__init__()
        self.entity = nn.Embedding(facts.entities, width)
        self.relation = nn.Embedding(facts.relations, width)

    def distance(self, head, relation, tail):
        return (self.entity(head) + self.relation(relation) - self.entity(tail)).norm(dim=-1)

    @torch.no_grad()
    def ranks(self, facts):
        goal = self.entity(facts[:, 0]) + self.relation(facts[:, 1])
        distance = torch.cdist(goal, self.entity.weight, p=1)
        own = distance.gather(1, facts[:, 2:])
        return (distance < own).sum(dim=1) + 1


class EarlyStopping:
    def __init__(self, facts, patience=2000):
        self.facts, self.patience = facts, patience
        self.best, self.since = float("inf"), 0

    def __call__(self, model):
        model.eval()
        rank = model.ranks(self.facts).float().mean().item()
        model.train()
        self.since = 0 if rank < self.best else self.since + 1
        self.best = min(self.best, rank)
        return self.since > self.patience


def fit(epochs=5, batch_size=512, margin=1.0):
    torch.manual_seed(31)
    facts = Facts()
    model = TransE(facts)
    stop = EarlyStopping(facts.held_out)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        for batch in facts.train[torch.randperm(len(facts.train))].split(batch_size):
            head, relation, tail = batch.unbind(dim=1)
            wrong = torch.randint(facts.entities, tail.shape)
            loss = F.relu(margin + model.distance(head, relation, tail) - model.distance(head, relation, wrong)).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if stop(model):
                return
        print(f"epoch {epoch}: loss {loss.item():.4f}, best mean rank {stop.best:.1f}")


if __name__ == "__main__":
    fit()
