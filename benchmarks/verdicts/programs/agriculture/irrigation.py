"""Soil moisture from radar patches: a new head for every region on features of an encoder learnt elsewhere."""

from functools import partial

import torch
from torch import nn

norm = partial(nn.GroupNorm, 8)


def encoder(width=40):
    """The encoder as it comes from its first training on all regions."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, width, 3, padding=1), norm(width), nn.SiLU(),
        nn.Conv2d(width, width, 3, padding=1), norm(width), nn.SiLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1), norm(2 * width), nn.SiLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip


def head(width=80):
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 64), nn.SiLU(), nn.Linear(64, 1), nn.Flatten(0))


def passes(region, count, batch=24, side=40):
    """Radar passes over a region, in two polarisations."""
    generator = torch.Generator().manual_seed(region)
    for _ in range(count):
        wet = torch.rand(batch, generator=generator)
        speckle = torch.randn(batch, 2, side, side, generator=generator)
        yield speckle * (0.5 + wet[:, None, None, None]), wet


def fit(encode, region, steps):
    regress = head()
    optimizer = torch.optim.Adam(regress.parameters(), lr=3e-3)
    average = torch.optim.swa_utils.AveragedModel(
        regress, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.95)
    )
    for patches, wet in passes(region, steps):
        off = regress(encode(patches)) - wet
        loss = off.abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update_parameters(regress)
    return average, loss.item()


def main(regions=4, steps=16):
    encode = encoder()
    for region in range(regions):
        _, loss = fit(encode, region, steps)
        print(f"region {region}: off by {loss:.4f}")


if __name__ == "__main__":
    main()
