"""A road network with speeds measured every hour, kept as a table of sensors."""

import numpy as np
import pandas as pd
import torch


class RoadNetwork:
    def __init__(self, sensors=200, hours=4000, seed=0):
        rng = np.random.default_rng(seed)
        self.hours = hours
        day = np.sin(np.arange(hours)[:, None] * 2 * np.pi / 24 + rng.uniform(0, 6, sensors))
        values = 50 + 20 * day + 3 * rng.standard_normal((hours, sensors))
        index = pd.date_range("2020-01-01", periods=hours, freq="h")
        self.table = pd.DataFrame(values, index=index, columns=[f"s{i}" for i in range(sensors)])
        place = torch.from_numpy(rng.uniform(0, 1, (sensors, 2))).float()
        weight = torch.exp(-torch.cdist(place, place).square() / 0.02)
        self.adjacency = weight / weight.sum(dim=1, keepdim=True)

    @property
    def speeds(self):
        """Speeds, hours by sensors, scaled."""
        scaled = (self.table - self.table.mean()) / self.table.std()
        return torch.tensor(scaled.to_numpy(copy=True)).float()
