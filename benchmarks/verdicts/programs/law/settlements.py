"""When a case will settle: survival analysis of lawsuits by Cox's partial likelihood."""

import torch
from torch import nn


def partial_likelihood(risk, days, settled):
    order = days.argsort(descending=True)
    risk, settled = risk[order], settled[order]
    return -((risk - risk.logcumsumexp(0)) * settled).sum() / settled.sum()


def concordance(risk, days, settled):
    """Harrell's C: of all pairs that can be ordered, the part that is ordered as they settled."""
    sooner = (days[:, None] < days[None, :]) & settled[:, None].bool()
    riskier = risk[:, None] - risk[None, :]
    return ((riskier > 0).float() + 0.5 * (riskier == 0).float())[sooner].mean()


class Running:
    def __init__(self, momentum=0.95):
        self.momentum = momentum
        self.values = {}

    def update(self, **values):
        for name, value in values.items():
            before = self.values.get(name, value)
            self.values[name] = self.momentum * before + (1 - self.momentum) * value

    def __str__(self):
        return "  ".join(f"{name} {float(value):.4f}" for name, value in self.values.items())


def lawsuits(cases, facts):
    case = torch.randn(cases, facts)
    rate = (0.3 * case[:, :6].sum(1)).exp()
    days = torch.empty(cases).exponential_() / rate
    end = torch.empty(cases).exponential_(0.5)
    return case, torch.minimum(days, end), (days <= end).float()


def main(steps=48, batch=2400):
    torch.manual_seed(66)
    case, days, settled = lawsuits(20_000, 80)
    model = nn.Sequential(
        nn.Linear(80, 128), nn.SELU(), nn.AlphaDropout(0.1), nn.Linear(128, 128), nn.SELU(), nn.Linear(128, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-5)
    running = Running()
    for step in range(1, steps + 1):
        chosen = torch.randint(len(case), (batch,))
        risk = model(case[chosen]).squeeze(1)
        loss = partial_likelihood(risk, days[chosen], settled[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            running.update(loss=loss.detach(), concordance=concordance(risk, days[chosen], settled[chosen]))
        if step % 16 == 0:
            print(f"step {step}: {running}")


if __name__ == "__main__":
    main()
