"""Density under a gravity survey, with differential privacy: each gradient is clipped by itself."""

import torch
from torch import nn
from torch.func import functional_call, grad


def network():
    return nn.Sequential(nn.Linear(30, 96), nn.Softplus(), nn.Linear(96, 96), nn.Softplus(), nn.Linear(96, 1))


def survey(stations, profile=30):
    mass = torch.randn(stations, 3)
    place = torch.linspace(-2, 2, profile)
    field = (mass[:, :1] / (1 + (place - mass[:, 1:2]).square())) + 0.02 * torch.randn(stations, profile)
    return field, mass[:, 0]


def station_loss(weights, net, field, mass):
    return (functional_call(net, weights, (field.unsqueeze(0),)).squeeze() - mass).square()


def clipped(gradients, bound):
    """Each station's gradient, no longer than the bound, summed over stations."""
    norm = sum(part.flatten(1).square().sum(dim=1) for part in gradients.values()).sqrt()
    factor = (bound / norm.clamp(min=1e-6)).clamp(max=1.0)
    return {name: torch.tensordot(factor, part, dims=1) for name, part in gradients.items()}


def station_gradients(weights, net, field, mass):
    slope = grad(station_loss)
    rows = [slope(weights, net, field[row], mass[row]) for row in range(len(field))]
    return {name: torch.stack([row[name] for row in rows]) for name in weights}


def main(steps=30, batch=64, bound=1.0, noise=0.3, rate=0.1):
    torch.manual_seed(37)
    field, mass = survey(4096)
    net = network()
    weights = {name: weight.detach() for name, weight in net.named_parameters()}
    for step in range(1, steps + 1):
        chosen = torch.randint(len(field), (batch,))
        gradients = clipped(station_gradients(weights, net, field[chosen], mass[chosen]), bound)
        for name, total in gradients.items():
            noisy = total + noise * bound * torch.randn_like(total)
            weights[name] = weights[name] - rate / batch * noisy
        if step % 10 == 0:
            off = functional_call(net, weights, (field[:512],)).squeeze(1) - mass[:512]
            print(f"step {step}: {off.square().mean().item():.4f}")


if __name__ == "__main__":
    main()
