"""Contextual bandit: reward of each arm from a small network, epsilon-greedy choice, learning from replay."""

import argparse
from collections import deque

import torch
from torch import nn


class Arms(nn.Module):
    def __init__(self, context, arms, hidden=160):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(context, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.value = nn.Linear(hidden, arms)

    def forward(self, x):
        return self.value(self.trunk(x))


def reward(context, arm, secret):
    return torch.sigmoid((context * secret[arm]).sum(1)) + 0.1 * torch.randn(len(context))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--epsilon", type=float, default=0.1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(22)
    secret = torch.randn(50, 64)
    model = Arms(64, 50)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    replay = deque(maxlen=4)
    earned = 0.0
    for turn in range(1, options.rounds + 1):
        context = torch.randn(1024, 64)
        with torch.no_grad():
            arm = model(context).argmax(1)
        explore = torch.rand(len(arm)) < options.epsilon
        arm = torch.where(explore, torch.randint(50, arm.shape), arm)
        gained = reward(context, arm, secret)
        replay.append((context, arm, gained))
        for old_context, old_arm, old_gained in replay:
            predicted = model(old_context).gather(1, old_arm[:, None]).squeeze(1)
            loss = nn.functional.mse_loss(predicted, old_gained)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        earned += gained.mean().item()
        if turn % 50 == 0:
            print(f"round {turn}: mean reward {earned / turn:.4f}")


if __name__ == "__main__":
    main()
