"""Exploration by random network distillation: a predictor learns to imitate a fixed random network."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    frames: int = 4
    size: int = 42
    envs: int = 64
    steps: int = 90
    features: int = 128
    lr: float = 1e-4
    seed: int = 11


def conv_body(frames, width, features, size):
    convs = nn.Sequential(
        nn.Conv2d(frames, width, 5, stride=2),
        nn.LeakyReLU(),
        nn.Conv2d(width, width * 2, 3, stride=2),
        nn.LeakyReLU(),
        nn.Conv2d(width * 2, width * 2, 3),
        nn.LeakyReLU(),
        nn.Flatten(),
    )
    with torch.no_grad():
        flat = convs(torch.zeros(1, frames, size, size)).shape[1]
    return nn.Sequential(convs, nn.Linear(flat, features))


class Curiosity(nn.Module):
    """Reward for states that the predictor does not know yet."""

    def __init__(self, config):
        super().__init__()
        self.oracle = conv_body(config.frames, 48, config.features, config.size)
        self.predictor = conv_body(config.frames, 24, config.features, config.size)

    def surprise(self, frames):
        goal = self.oracle(frames)
        return F.mse_loss(self.predictor(frames), goal, reduction="none").mean(dim=1)


class Policy(nn.Module):
    def __init__(self, config, actions=6):
        super().__init__()
        self.body = conv_body(config.frames, 16, config.features, config.size)
        self.actor = nn.Linear(config.features, actions)
        self.critic = nn.Linear(config.features, 1)

    def forward(self, frames):
        h = F.relu(self.body(frames))
        return torch.distributions.Categorical(logits=self.actor(h)), self.critic(h).squeeze(1)


def observe(state, actions, generator):
    """The screen scrolls by the action taken, and a new column of noise comes in."""
    shifted = torch.roll(state, 1, dims=3)
    shifted[..., 0] = torch.randn(state.shape[:3], generator=generator) + actions[:, None, None]
    return shifted


def train(config):
    torch.manual_seed(config.seed)
    generator = torch.Generator().manual_seed(config.seed)
    policy, curiosity = Policy(config), Curiosity(config)
    learned = [*policy.parameters(), *curiosity.predictor.parameters()]
    optimizer = torch.optim.Adam(learned, lr=config.lr)
    state = torch.randn(config.envs, config.frames, config.size, config.size, generator=generator)
    for step in range(config.steps):
        choice, value = policy(state)
        actions = choice.sample()
        following = observe(state, actions, generator)
        surprise = curiosity.surprise(following)
        gain = surprise.detach() - value
        actor_loss = -(choice.log_prob(actions) * gain.detach()).mean() - 0.01 * choice.entropy().mean()
        loss = actor_loss + 0.5 * gain.square().mean() + surprise.mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(learned, 0.5)
        optimizer.step()
        state = following
        if (step + 1) % 30 == 0:
            print(f"{step + 1:4d}  surprise {surprise.mean().item():.4f}  value {value.mean().item():.4f}")


if __name__ == "__main__":
    train(Config())
