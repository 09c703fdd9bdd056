"""Energy use of buildings from a table of hourly readings (pandas), mean and spread predicted."""

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NUMBERS = ["temperature", "wind", "sun", "occupancy", "area", "age"]


def readings(rows, seed=41):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(rows, len(NUMBERS))), columns=NUMBERS)
    frame["time"] = pd.date_range("2024-01-01", periods=rows, freq="h")
    frame["kind"] = rng.choice(["office", "school", "flat"], size=rows)
    frame["use"] = frame["area"] * 2 + frame["temperature"] ** 2 + rng.normal(size=rows)
    return frame


class Readings(Dataset):
    def __init__(self, frame):
        self.frame = frame

    def __len__(self):
        return len(self.frame)

    def __getitem__(self, i):
        row = self.frame.iloc[i]
        hour = row["time"].hour / 24 * 2 * np.pi
        kind = [float(row["kind"] == name) for name in ("office", "school", "flat")]
        values = [row[name] for name in NUMBERS] + [np.sin(hour), np.cos(hour), *kind]
        return torch.tensor(values, dtype=torch.float32), torch.tensor(row["use"], dtype=torch.float32)


def main():
    torch.manual_seed(41)
    loader = DataLoader(Readings(readings(12_800)), batch_size=128, shuffle=True)
    model = nn.Sequential(nn.Linear(11, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.GaussianNLLLoss()
    losses = []
    for x, use in loader:
        mean, spread = model(x).unbind(1)
        loss = criterion(mean, use, nn.functional.softplus(spread) + 1e-3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"loss {np.mean(losses[:10]):.3f} -> {np.mean(losses[-10:]):.3f}")


if __name__ == "__main__":
    main()
