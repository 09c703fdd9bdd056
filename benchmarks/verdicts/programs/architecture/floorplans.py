"""Clean floor plans from scanned sketches: an autoencoder on patches with a term for straight walls."""

import torch
from torch import nn

SIDE = 32


def plans(count):
    canvas = torch.zeros(count, SIDE, SIDE)
    rows = torch.randint(2, SIDE - 2, (count, 2))
    columns = torch.randint(2, SIDE - 2, (count, 2))
    index = torch.arange(count)
    for wall in range(2):
        canvas[index, rows[:, wall]] = 1
        canvas[index, :, columns[:, wall]] = 1
    return canvas.flatten(1)


def sketch(clean):
    return clean * (torch.rand_like(clean) < 0.8) + 0.2 * torch.randn_like(clean)


class Draughtsman(nn.Module):
    def __init__(self, width=1024, code=128):
        super().__init__()
        self.look = nn.Sequential(nn.Linear(SIDE**2, width), nn.ReLU(), nn.Linear(width, code), nn.ReLU())
        self.draw = nn.Sequential(nn.Linear(code, width), nn.ReLU(), nn.Linear(width, SIDE**2))

    def forward(self, sketches):
        return self.draw(self.look(sketches))


def fidelity(model, sketches, clean):
    return nn.functional.mse_loss(model(sketches), clean)


def straightness(model, sketches):
    drawn = model(sketches).view(-1, SIDE, SIDE)
    return drawn.diff(dim=1).abs().mean() + drawn.diff(dim=2).abs().mean()


def train(steps=60, batch=512):
    torch.manual_seed(50)
    model = Draughtsman()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    stock = plans(4096)
    for step in range(steps):
        clean = stock[torch.randint(len(stock), (batch,))]
        sketches = sketch(clean)
        loss = fidelity(model, sketches, clean) + 0.02 * straightness(model, sketches)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"step {step + 1}: {loss.item():.4f}")


if __name__ == "__main__":
    train()
