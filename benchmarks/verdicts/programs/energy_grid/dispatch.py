"""Bidding of power plants on an hourly auction, learnt with a policy gradient and a baseline."""

import torch
from dispatch_parts.exchange import Exchange
from torch import nn
from torch.distributions import Normal


class Bidder(nn.Module):
    def __init__(self, observed=64, plants=24, width=768):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(observed, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
        )
        self.mean, self.value = nn.Linear(width, plants), nn.Linear(width, 1)
        self.spread = nn.Parameter(torch.zeros(plants))

    def forward(self, state):
        hidden = self.trunk(state)
        return Normal(self.mean(hidden), self.spread.exp()), self.value(hidden).squeeze(1)


class Reinforce:
    def __init__(self, exchange, rate=3e-4):
        self.exchange = exchange
        self.bidder = Bidder()
        self.optimizer = torch.optim.Adam(self.bidder.parameters(), lr=rate)

    def iterate(self, scenarios=512):
        state = torch.randn(scenarios, 64)
        policy, value = self.bidder(state)
        bids = policy.sample()
        profit = self.exchange.clear(state, bids)
        advantage = profit - value.detach()
        policy_loss = -(policy.log_prob(bids).sum(1) * advantage).mean()
        loss = policy_loss + 0.5 * nn.functional.mse_loss(value, profit)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.bidder.parameters(), 1.0)
        self.optimizer.step()
        return profit.mean().item()


if __name__ == "__main__":
    torch.manual_seed(9)
    with Exchange(plants=24) as exchange:
        learner = Reinforce(exchange)
        for hour in range(60):
            profit = learner.iterate()
            if hour % 12 == 11:
                print(f"hour {hour + 1}: mean profit {profit:.3f}")
