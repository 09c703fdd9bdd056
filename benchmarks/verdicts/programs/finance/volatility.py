"""Forecast tomorrow's volatility of every asset from a window of returns."""

import torch
from desk.setup import RunConfig, settle
from torch import nn


def build(config):
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(config.assets * config.lookback, config.hidden),
        nn.GELU(),
        nn.Linear(config.hidden, config.hidden),
        nn.GELU(),
        nn.Linear(config.hidden, config.assets),
        nn.Softplus(),
    )


def market(config, days=3000):
    scale = torch.exp(0.5 * torch.sin(torch.arange(days)[:, None] / 40 + torch.rand(config.assets) * 6))
    return 0.01 * scale * torch.randn(days, config.assets), scale


class VolatilityModel:
    def __init__(self, config):
        self.config = config
        self.net = build(config)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=config.lr, momentum=0.9)

    def fit(self, returns, scale):
        config = self.config
        windows = returns.unfold(0, config.lookback, 1)
        for step in range(1, config.steps + 1):
            at = torch.randint(len(windows) - 1, (config.batch,))
            loss = nn.functional.mse_loss(self.net(windows[at] * 100), scale[at + config.lookback])
            self.opt.zero_grad(set_to_none=True)
            loss.backward()
            self.opt.step()
            if step % 15 == 0:
                print(f"step {step} mse {loss.item():.4f}")
        return self


if __name__ == "__main__":
    run = RunConfig()
    settle(run)
    VolatilityModel(run).fit(*market(run))
