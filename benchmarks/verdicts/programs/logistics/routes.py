"""Which stop to visit first: imitation of the nearest-first rule, on travel times of the depot's service."""

import numpy as np
import torch
from routes_parts.depot import Roads, Service
from torch import nn

TOURS, STOPS = 32, 24


class Planner(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.lift = nn.Linear(STOPS, width)
        layer = nn.TransformerEncoderLayer(width, 8, 256, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.first = nn.Linear(width, 1)

    def forward(self, times):
        return self.first(self.encoder(self.lift(times))).squeeze(-1)


class Tours:
    """Endless tours with the times between their stops."""

    def __init__(self, roads, seed):
        self.roads = roads
        self.random = np.random.default_rng(seed)

    def __iter__(self):
        return self

    def __next__(self):
        places = self.random.random((TOURS, STOPS, 2), dtype=np.float32)
        times = self.roads.between(places)
        nearest = (times.sum(axis=2)).argmin(axis=1)
        return torch.from_numpy(times), torch.from_numpy(nearest)


def main(steps=50):
    torch.manual_seed(51)
    service = Service()
    service.start()
    roads = Roads(service.address)
    planner = Planner()
    optimizer = torch.optim.RAdam(planner.parameters(), lr=5e-4)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=10)
    for step, (times, nearest) in zip(range(1, steps + 1), Tours(roads, seed=51), strict=False):
        loss = nn.functional.cross_entropy(planner(times), nearest)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        plateau.step(loss.item())
        if step % 10 == 0:
            print(f"{step} batches of tours, loss {loss.item():.4f}")
    roads.close()


if __name__ == "__main__":
    main()
