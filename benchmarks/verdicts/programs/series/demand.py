"""Forecast the demand of electricity for the next day from the last week."""

import argparse

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PAST, AHEAD = 168, 24
COLUMNS = ["demand", "temperature", "wind", "weekend"]


def history(hours):
    rng = np.random.default_rng(0)
    index = pd.date_range("2021-01-01", periods=hours, freq="h")
    hour = np.arange(hours)
    temperature = 10 + 8 * np.sin(2 * np.pi * hour / 8760) + 4 * np.sin(2 * np.pi * hour / 24)
    wind = np.abs(np.cumsum(rng.normal(size=hours)) % 20 - 10)
    weekend = (np.asarray(index.day_of_week) >= 5).astype(float)
    demand = 50 - temperature + 10 * np.sin(2 * np.pi * (hour - 6) / 24) - 5 * weekend + rng.normal(size=hours)
    return pd.DataFrame(dict(zip(COLUMNS, [demand, temperature, wind, weekend], strict=True)), index=index)


class Windows(Dataset):
    def __init__(self, frame):
        self.frame = (frame - frame.mean()) / frame.std()

    def __len__(self):
        return len(self.frame) - PAST - AHEAD

    def __getitem__(self, item):
        begin = self.frame.index[item]
        middle = begin + pd.Timedelta(hours=PAST)
        end = middle + pd.Timedelta(hours=AHEAD)
        past = self.frame[(self.frame.index >= begin) & (self.frame.index < middle)]
        future = self.frame["demand"][(self.frame.index >= middle) & (self.frame.index < end)]
        return torch.tensor(past.values, dtype=torch.float32), torch.tensor(future.values, dtype=torch.float32)


class Forecaster(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.days = nn.Linear(24 * len(COLUMNS), width)
        self.recur = nn.GRU(width, width, batch_first=True)
        self.ahead = nn.Linear(width, AHEAD)

    def forward(self, past):
        days = past.unflatten(1, (PAST // 24, 24)).flatten(2)
        _, last = self.recur(torch.relu(self.days(days)))
        return self.ahead(last[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=int, default=4200)
    parser.add_argument("--batch", type=int, default=32)
    options = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Windows(history(options.hours)), batch_size=options.batch, shuffle=True, drop_last=True)
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step, (past, future) in enumerate(loader, 1):
        loss = nn.functional.smooth_l1_loss(model(past), future)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0:
            print(f"step {step} of {len(loader)}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
