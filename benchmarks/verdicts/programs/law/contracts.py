"""Order of the clauses of a contract, learnt from drafts with the policy gradient of an edit distance."""

import torch
from contracts_parts.reward import closeness
from torch import nn
from torch.distributions import Categorical


class Drafter(nn.Module):
    """Reads clauses in any order, and says for each place which kind of clause belongs there."""

    def __init__(self, kinds=24, places=48, width=160):
        super().__init__()
        self.kind = nn.Embedding(kinds, width)
        self.place = nn.Parameter(torch.randn(places, width))
        self.read = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.mix = nn.Sequential(nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, kinds))

    def forward(self, draft):
        whole = self.read(self.kind(draft)).mean(dim=1, keepdim=True)
        return Categorical(logits=self.mix(whole + self.place))


class Office:
    def __init__(self, kinds=24, places=48, seed=40):
        self.kinds, self.places = kinds, places
        self.generator = torch.Generator().manual_seed(seed)

    def drafts(self, count):
        wanted = torch.randint(self.kinds, (count, self.places), generator=self.generator).sort(dim=1).values
        order = torch.rand(count, self.places, generator=self.generator).argsort(dim=1)
        return wanted.gather(1, order), wanted


def reinforce(policy, said, reward, baseline, entropy_weight=0.01):
    gain = (reward - baseline)[:, None]
    return -(gain * policy.log_prob(said)).mean() - entropy_weight * policy.entropy().mean()


def main(steps=60, batch=48):
    torch.manual_seed(40)
    office, drafter = Office(), Drafter()
    optimizer = torch.optim.Adam(drafter.parameters(), lr=2e-3)
    baseline = torch.tensor(0.0)
    for step in range(1, steps + 1):
        draft, wanted = office.drafts(batch)
        policy = drafter(draft)
        said = policy.sample()
        reward = torch.tensor(closeness(said, wanted))
        loss = reinforce(policy, said, reward, baseline)
        baseline = baseline.lerp(reward.mean(), 0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0:
            print(f"step {step}: closeness {baseline.item():.3f}")


if __name__ == "__main__":
    main()
