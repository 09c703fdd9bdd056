"""A convolutional surrogate of a flow solver, trained with a trainer and its plugins."""

import tempfile

import torch
import torch.nn.functional as F
from cfd_parts.plugins import KeepLast, Report
from torch import nn


class Surrogate(nn.Module):
    def __init__(self, width=32, latent=768):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(3, width, 4, 4), nn.GELU(), nn.Conv2d(width, width, 3, padding=1), nn.GELU(), nn.Flatten()
        )
        self.latent = nn.Sequential(nn.Linear(width * 64, latent), nn.GELU(), nn.Linear(latent, width * 64), nn.GELU())
        self.up = nn.Sequential(nn.Unflatten(1, (width, 8, 8)), nn.ConvTranspose2d(width, 3, 4, 4))

    def forward(self, x):
        return self.up(self.latent(self.down(x)))


class Trainer:
    def __init__(self, model, plugins):
        self.model, self.plugins = model, plugins
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        self.step = 0
        self.average = None

    def training_step(self, before, after):
        loss = F.mse_loss(self.model(before), after)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def fit(self, batches):
        for before, after in batches:
            loss = self.training_step(before, after)
            self.average = loss if self.average is None else 0.9 * self.average + 0.1 * loss
            self.step += 1
            for plugin in self.plugins:
                plugin.on_step(self)


def flow_fields(count, batch=16):
    grid = torch.linspace(0, 6.2832, 32)
    y, x = torch.meshgrid(grid, grid, indexing="ij")
    for _ in range(count):
        a, b, c = torch.rand(3, batch, 1, 1) * 3
        fields = [
            torch.stack([torch.sin(a * x + t), torch.cos(b * y - t), torch.sin(c * (x + y) + t)], 1) for t in (0, 0.1)
        ]
        yield fields[0], fields[1]


if __name__ == "__main__":
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        Trainer(Surrogate(), [KeepLast(folder), Report(every=30)]).fit(flow_fields(150))
