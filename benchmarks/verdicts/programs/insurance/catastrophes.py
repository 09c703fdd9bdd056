"""Losses of an insurer after storms: rates of retention are fitted to thousands of simulated years."""

import torch
from catastrophes_parts.simulation import Simulation


def shortfall(losses, level):
    """Mean of the losses beyond a quantile."""
    worst = int(level * len(losses))
    return losses.topk(worst).values.mean()


def main(steps=60, candidates=8):
    torch.manual_seed(88)
    simulation = Simulation(years=2048, portfolios=6144)
    retention = torch.full((6144,), 0.5)
    spread = 0.2
    best = float("inf")
    for step in range(steps):
        tried = (retention + spread * torch.randn(6144)).clamp(0, 1)
        losses = simulation.losses(tried)
        risk = shortfall(losses, 0.01) + 40 * tried.mean()
        if risk < best:
            best, retention = risk, tried
        spread *= 0.99
        if step % 20 == 19:
            print(f"step {step + 1}: {float(best):.3f}")


if __name__ == "__main__":
    main()
