"""Super-resolution with a perceptual loss from a feature network."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def features(seed=99):
    """Stands in for a pretrained network; only its answers are used."""
    state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(3, 48, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(48, 48, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(48, 96, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(96, 96, 3, stride=2, padding=1),
    )
    torch.random.set_rng_state(state)
    return net.eval()


class Upscaler(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 5, padding=2),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 12, 3, padding=1),
            nn.PixelShuffle(2),
        )

    def forward(self, x):
        return F.interpolate(x, scale_factor=2, mode="bilinear") + self.body(x)


class PerceptualLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = features()

    def forward(self, made, wanted):
        return F.l1_loss(made, wanted) + 0.1 * F.mse_loss(self.net(made), self.net(wanted))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(0)
    model, loss_of = Upscaler(), PerceptualLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(args.steps):
        coarse = torch.rand(args.batch, 3, 8, 8)
        wanted = F.interpolate(coarse, size=(64, 64), mode="bicubic")
        small = F.avg_pool2d(wanted, 2)
        loss = loss_of(model(small), wanted)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if (step + 1) % 10 == 0:
            print(f"step {step + 1}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
