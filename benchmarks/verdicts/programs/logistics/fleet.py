"""Dispatching trucks with an actor and a critic, on a simulated region of demand."""

import torch
from fleet_parts.settings import Settings
from torch import nn
from torch.distributions import Categorical

ZONES = 9


class ActorCritic(nn.Module):
    def __init__(self, size=192):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2 * ZONES, size), nn.Tanh(), nn.Linear(size, size), nn.Tanh())
        self.actor = nn.Linear(size, ZONES)
        self.critic = nn.Linear(size, 1)

    def forward(self, state):
        hidden = self.body(state)
        return Categorical(logits=self.actor(hidden)), self.critic(hidden).squeeze(-1)


class Region:
    """Demand of zones that follows where trucks went; every truck has a region of its own."""

    def __init__(self, trucks):
        self.demand = torch.rand(trucks, ZONES)
        self.place = torch.zeros(trucks, dtype=torch.long)

    def state(self):
        return torch.cat([self.demand, nn.functional.one_hot(self.place, ZONES)], dim=1)

    def drive(self, zone):
        earned = self.demand.gather(1, zone[:, None]).squeeze(1) - 0.02 * (zone - self.place).abs()
        self.place = zone
        self.demand = (self.demand + 0.1 * torch.rand_like(self.demand)).clamp_(max=1)
        self.demand.scatter_(1, zone[:, None], 0.0)
        return earned


@torch.no_grad()
def roll(region, policy, horizon):
    states, zones, earned = [], [], []
    for _ in range(horizon):
        state = region.state()
        zone = policy(state)[0].sample()
        states.append(state)
        zones.append(zone)
        earned.append(region.drive(zone))
    return torch.stack(states), torch.stack(zones), torch.stack(earned)


def returns(earned, last, discount=0.95):
    total, out = last, []
    for now in earned.flip(0):
        total = now + discount * total
        out.append(total)
    return torch.stack(out[::-1])


def main():
    settings = Settings()
    region, policy = Region(settings.trucks), ActorCritic()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for update in range(1, settings.updates + 1):
        states, zones, earned = roll(region, policy, settings.horizon)
        with torch.no_grad():
            wanted = returns(earned, policy(region.state())[1])
        actions, value = policy(states)
        gain = wanted - value
        loss = -(gain.detach() * actions.log_prob(zones)).mean() + gain.square().mean()
        loss = loss - 0.01 * actions.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % 10 == 0:
            print(f"update {update}: {earned.mean().item():.3f} per hour")


if __name__ == "__main__":
    main()
