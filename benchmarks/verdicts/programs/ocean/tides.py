"""Heights of the tide at harbours from the sky and the weeks before, with accumulated gradients."""

import torch
from tides_parts.plan import Plan
from torch import nn


class Harbour(nn.Module):
    def __init__(self, past=256, ahead=48, width=512, depth=3):
        super().__init__()
        self.inward = nn.Linear(past, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.outward = nn.Linear(width, ahead)

    def forward(self, past):
        x = self.inward(past)
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return self.outward(x)


class Gauge:
    def __init__(self, harbours=40, hours=4000):
        time = torch.arange(hours) / 12.42
        strength = 0.3 + torch.rand(harbours, 1)
        self.height = (
            strength * torch.sin(6.283 * time) + 0.2 * torch.sin(6.5 * time) + 0.05 * torch.randn(harbours, hours)
        )

    def batch(self, size, past=256, ahead=48):
        harbour = torch.randint(len(self.height), (size, 1))
        hour = torch.randint(self.height.shape[1] - past - ahead, (size, 1)) + torch.arange(past + ahead)
        window = self.height[harbour, hour]
        return window[:, :past], window[:, past:]


def train(plan):
    torch.manual_seed(plan.seed)
    gauge, model = Gauge(), Harbour()
    optimizer = torch.optim.Adam(model.parameters(), lr=plan.rate)
    for step in range(plan.steps):
        past, ahead = gauge.batch(plan.batch)
        optimizer.zero_grad()
        total = 0.0
        for part, wanted in zip(past.split(plan.part), ahead.split(plan.part), strict=True):
            loss = nn.functional.mse_loss(model(part), wanted) * len(part) / plan.batch
            loss.backward()
            total = total + loss.detach()
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1}: {float(total):.5f}")


train(Plan())
