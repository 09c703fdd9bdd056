"""Traffic forecast on a road network: graph convolution in space, a gated convolution in time."""

import torch
import torch.nn.functional as F
from torch import nn
from traffic_parts.network import RoadNetwork


class Forecaster(nn.Module):
    def __init__(self, history=12, width=32):
        super().__init__()
        self.time = nn.Linear(history, 2 * width)
        self.space = nn.Linear(width, width)
        self.head = nn.Linear(width, 1)

    def forward(self, window, adjacency):
        value, gate = self.time(window).chunk(2, dim=-1)
        h = value * torch.sigmoid(gate)
        h = F.relu(self.space(adjacency @ h)) + h
        return self.head(h).squeeze(-1)


class Training:
    def __init__(self, roads, history=12, batch_size=24):
        self.roads, self.history, self.batch_size = roads, history, batch_size
        self.model = Forecaster(history)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)

    def batches(self, count):
        for _ in range(count):
            begin = torch.randint(self.roads.hours - self.history - 1, (self.batch_size,))
            rows = begin[:, None] + torch.arange(self.history + 1)
            speeds = self.roads.speeds[rows]
            yield speeds[:, :-1].transpose(1, 2), speeds[:, -1]

    def run(self, steps):
        for step, (window, wanted) in enumerate(self.batches(steps)):
            loss = F.smooth_l1_loss(self.model(window, self.roads.adjacency), wanted)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            if step % 20 == 19:
                print(f"step {step + 1}: loss {loss.item():.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    Training(RoadNetwork()).run(80)
