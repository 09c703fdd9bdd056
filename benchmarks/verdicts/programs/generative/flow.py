"""A real-valued flow of affine couplings, fitted to synthetic point clouds."""

import math

import torch
from torch import nn

DIM, DEPTH, WIDTH = 16, 6, 192


class Coupling(nn.Module):
    def __init__(self, flip):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(
            nn.Linear(DIM // 2, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, DIM)
        )

    def forward(self, x):
        a, b = x.chunk(2, dim=1)
        if self.flip:
            a, b = b, a
        shift, scale = self.net(a).chunk(2, dim=1)
        scale = torch.tanh(scale)
        b = b * scale.exp() + shift
        return torch.cat([b, a] if self.flip else [a, b], dim=1), scale.sum(dim=1)


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.couplings = nn.ModuleList(Coupling(flip=bool(i % 2)) for i in range(DEPTH))

    def forward(self, x):
        volume = x.new_zeros(len(x))
        for coupling in self.couplings:
            x, change = coupling(x)
            volume = volume + change
        return x, volume

    def log_prob(self, x):
        z, volume = self(x)
        return volume - 0.5 * (z.square() + math.log(2 * math.pi)).sum(dim=1)


class Fit:
    def __init__(self, flow, points, batch_size=512):
        self.flow, self.points, self.batch_size = flow, points, batch_size
        self.optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3)
        self.bits, self.spread, self.outliers = 0.0, 0.0, 0.0

    def step(self, x):
        loss = -self.flow.log_prob(x).mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.bits = 0.95 * self.bits - 0.05 * self.flow.log_prob(x).mean().detach() / (DIM * math.log(2))
        self.spread = 0.95 * self.spread + 0.05 * self.flow(x)[0].std(dim=0).mean().detach()
        self.outliers = 0.95 * self.outliers + 0.05 * (self.flow.log_prob(x) < -60).float().mean()
        nn.utils.clip_grad_norm_(self.flow.parameters(), 5.0)
        self.optimizer.step()
        return loss.detach()

    def epoch(self):
        for index in torch.randperm(len(self.points)).split(self.batch_size):
            loss = self.step(self.points[index])
        return loss


def clouds(count):
    mix = torch.randn(8, DIM, DIM) / DIM**0.5
    centre = 2 * torch.randn(8, DIM)
    which = torch.randint(8, (count,))
    return torch.einsum("nd,nde->ne", torch.randn(count, DIM), mix[which]) + centre[which]


if __name__ == "__main__":
    torch.manual_seed(0)
    fit = Fit(Flow(), clouds(16384))
    for epoch in range(5):
        loss = fit.epoch()
        print(f"epoch {epoch} loss {loss.item():.3f} bits/dim {float(fit.bits):.3f} spread {float(fit.spread):.3f}")
