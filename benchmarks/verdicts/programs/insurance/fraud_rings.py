"""Rings of fraudsters: an ensemble of networks over claims, each on a sample of its own."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


def claims(count, facts=64):
    ring = torch.rand(count) < 0.1
    values = torch.randn(count, facts) + 0.5 * ring[:, None] * torch.randn(facts)
    return values, ring.float()


def network(facts=64, width=256):
    return nn.Sequential(
        nn.Linear(facts, width), nn.LayerNorm(width), nn.SiLU(),
        nn.Linear(width, width), nn.LayerNorm(width), nn.SiLU(),
        nn.Linear(width, 1), nn.Flatten(0),
    )  # fmt: skip


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--threads", type=int, default=16)
    options.add_argument("--members", type=int, default=4)
    options.add_argument("--rounds", type=int, default=150)
    given = options.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(13)
    values, ring = claims(16_000)
    members = [network() for _ in range(given.members)]
    optimizer = torch.optim.Adam([weight for member in members for weight in member.parameters()], lr=1e-3)
    for number in range(given.rounds):
        losses = []
        for member in members:
            rows = torch.randint(len(values), (768,))
            losses.append(F.binary_cross_entropy_with_logits(member(values[rows]), ring[rows]))
        optimizer.zero_grad()
        torch.stack(losses).sum().backward()
        optimizer.step()
        if number % 50 == 49:
            print(f"round {number + 1}: {torch.stack(losses).mean().item():.4f}")


if __name__ == "__main__":
    main()
