"""Forces in the beams of trusses: messages between joints, gathered with index_add."""

import torch
from torch import nn


class Messages(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * width + 2, width), nn.ReLU(), nn.Linear(width, width))
        self.update = nn.Linear(2 * width, width)

    def forward(self, joints, beams, span):
        source, target = beams
        message = self.message(torch.cat([joints[source], joints[target], span], dim=1))
        heard = torch.zeros_like(joints).index_add(0, target, message)
        return joints + torch.relu(self.update(torch.cat([joints, heard], dim=1)))


class Truss(nn.Module):
    def __init__(self, width=128, rounds=2):
        super().__init__()
        self.inward = nn.Linear(5, width)
        self.rounds = nn.ModuleList(Messages(width) for _ in range(rounds))
        self.force = nn.Linear(2 * width, 1)

    def forward(self, truss):
        place, load, beams = truss
        span = place[beams[1]] - place[beams[0]]
        joints = torch.relu(self.inward(torch.cat([place, load], dim=1)))
        for messages in self.rounds:
            joints = messages(joints, beams, span)
        return self.force(torch.cat([joints[beams[0]], joints[beams[1]]], dim=1)).squeeze(1)


def make(joints, degree=6):
    place, load = torch.rand(joints, 2), torch.randn(joints, 3)
    target = torch.arange(joints).repeat_interleave(degree)
    source = (target + torch.randint(1, 20, target.shape)) % joints
    force = ((place[source] - place[target]) * load[target, :2]).sum(dim=1)
    return (place, load, torch.stack([source, target])), force


def examine(model, held):
    model.eval()
    with torch.no_grad():
        errors = [(model(truss) - force).abs().mean() for truss, force in held]
    model.train()
    return torch.stack(errors).mean().item()


def main(epochs=4):
    torch.manual_seed(27)
    trusses = [make(600) for _ in range(10)]
    held = [make(600) for _ in range(6)]
    model = Truss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    best = float("inf")
    for epoch in range(epochs):
        for truss, force in trusses:
            loss = nn.functional.mse_loss(model(truss), force)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            best = min(best, examine(model, held))
        print(f"epoch {epoch + 1}: loss {loss.item():.4f}, best error {best:.4f}")


if __name__ == "__main__":
    main()
