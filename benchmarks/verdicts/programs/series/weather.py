"""Predict the next hour's temperature with an LSTM."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Options:
    batch_size: int = 2
    hidden: int = 16
    window: int = 240
    windows: int = 480
    lr: float = 1e-3


class Weather(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, num_layers=2, batch_first=True)
        self.next = nn.Linear(hidden, 1)

    def forward(self, past):
        states, _ = self.lstm(past)
        return self.next(states[:, -1]).squeeze(1)


def dataset(options):
    generator = torch.Generator().manual_seed(0)
    time = torch.arange(options.windows + options.window + 1, dtype=torch.float32)
    temperature = torch.sin(time * 2 * torch.pi / 24) + 0.1 * torch.randn(len(time), generator=generator)
    pressure = torch.cos(time / 50) + 0.05 * torch.randn(len(time), generator=generator)
    table = torch.stack([temperature, pressure], 1)
    past = table.unfold(0, options.window, 1)[: options.windows].transpose(1, 2).contiguous()
    return TensorDataset(past, temperature[options.window : options.window + options.windows])


def train(options):
    torch.manual_seed(0)
    loader = DataLoader(dataset(options), batch_size=options.batch_size, shuffle=True)
    model = Weather(2, options.hidden)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    for epoch in range(2):
        total = torch.zeros(())
        for past, target in loader:
            loss = nn.functional.mse_loss(model(past), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(past)
        print(f"epoch {epoch}: {total.item() / options.windows:.4f}")


if __name__ == "__main__":
    train(Options())
