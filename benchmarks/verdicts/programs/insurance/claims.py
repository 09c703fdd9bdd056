"""Which claims will become expensive: a ranking network over the facts known on the first day."""

import torch
from claims_parts.ledger import Ledger, audited
from torch import nn


class Ranker(nn.Module):
    def __init__(self, facts=80, width=512):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(facts, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.cost = nn.Linear(width, 1)

    def forward(self, facts):
        return self.cost(self.net(facts)).squeeze(1)


class Desk:
    def __init__(self):
        self.model = Ranker()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.ledger = Ledger()

    @audited
    def handle(self, facts, cost):
        guess = self.model(facts)
        loss = nn.functional.huber_loss(guess, cost)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return guess.detach(), cost


def main(days=45):
    torch.manual_seed(66)
    facts = torch.randn(20_000, 80)
    cost = torch.relu(facts[:, :4].sum(dim=1)) + 0.3 * torch.rand(20_000)
    desk = Desk()
    for day in range(days):
        rows = torch.randint(len(facts), (3072,))
        desk.handle(facts[rows], cost[rows])
        if day % 15 == 14:
            print(f"day {day + 1}: order of {desk.ledger.order:.3f}")


if __name__ == "__main__":
    main()
