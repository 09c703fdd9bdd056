"""Rain of the next hour from gauges, whose readings lie in text files, one for every few days."""

import tempfile
from pathlib import Path

import numpy as np
import torch

GAUGES = 48


def write_archive(folder, files=10, rows=300):
    rng = np.random.default_rng(8)
    for number in range(files):
        time = np.arange(rows)[:, None] / 12 + rng.uniform(0, 6, GAUGES)
        rain = np.maximum(0, np.sin(time) + 0.3 * rng.standard_normal((rows, GAUGES)))
        np.savetxt(folder / f"gauges_{number:03d}.csv", rain, fmt="%.4f", delimiter=",")


def read_days(path):
    table = np.genfromtxt(path, delimiter=",", dtype=np.float32, filling_values=0.0)
    return torch.from_numpy(table)


def examples(folder, history=12):
    for path in sorted(folder.glob("*.csv")):
        rain = read_days(path)
        windows = rain.unfold(0, history + 1, 1)
        yield windows[:, :, :history].flatten(1), windows[:, :, history]


def train(folder, epochs=24):
    model = torch.nn.Sequential(
        torch.nn.Linear(GAUGES * 12, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(),
        torch.nn.Linear(512, GAUGES),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(1, epochs + 1):
        errors = []
        for past, following in examples(folder):
            error = (model(past) - following).abs().mean()
            optimizer.zero_grad()
            error.backward()
            optimizer.step()
            errors.append(error.item())
        print(f"epoch {epoch:2d}  error {sum(errors) / len(errors):.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        write_archive(Path(name))
        train(Path(name))
