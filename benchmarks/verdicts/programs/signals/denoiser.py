"""Remove noise from sensor signals with a temporal convolutional network and a hand-written schedule."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Plan:
    width: int = 64
    depth: int = 5
    batch: int = 16
    length: int = 512
    steps: int = 36
    peak: float = 2e-3
    warm: int = 8


class Layer(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 5, padding=2 * dilation, dilation=dilation)
        self.mix = nn.Conv1d(width, width, 1)

    def forward(self, x):
        return x + self.mix(torch.relu(self.conv(x)))


class Denoiser(nn.Module):
    def __init__(self, plan):
        super().__init__()
        self.enter = nn.Conv1d(1, plan.width, 9, padding=4)
        self.layers = nn.Sequential(*[Layer(plan.width, 2**number) for number in range(plan.depth)])
        self.leave = nn.Conv1d(plan.width, 1, 1)

    def forward(self, x):
        return x - self.leave(self.layers(self.enter(x)))


class Run:
    def __init__(self, plan):
        self.plan = plan
        self.model = Denoiser(plan)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=plan.peak)

    def rate(self, step):
        return self.plan.peak * min(1.0, (step + 1) / self.plan.warm)

    def signals(self):
        time = torch.arange(self.plan.length) / 20
        clean = torch.sin(time * (0.5 + torch.rand(self.plan.batch, 1, 1))).sign()
        return clean + 0.5 * torch.randn_like(clean), clean

    def go(self):
        for step in range(self.plan.steps):
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate(step)
            noisy, clean = self.signals()
            loss = nn.functional.mse_loss(self.model(noisy), clean)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if (step + 1) % 12 == 0:
                print(f"step {step + 1} loss {loss.item():.4f}")


if __name__ == "__main__":
    torch.manual_seed(104)
    Run(Plan(batch=32)).go()
