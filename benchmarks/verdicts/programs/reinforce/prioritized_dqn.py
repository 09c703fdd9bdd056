"""Double DQN with prioritised replay on a bank of synthetic trading-like environments."""

import copy
import random

import numpy as np
import torch
import torch.nn.functional as F
from prioritized_dqn_parts.replay import PrioritizedReplay
from torch import nn

OBS, ACTIONS, ENVS = 48, 9, 32
BATCH, GAMMA, TAU = 1024, 0.98, 0.01


class DuelingNet(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(OBS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.value = nn.Linear(width, 1)
        self.advantage = nn.Linear(width, ACTIONS)

    def forward(self, obs):
        h = self.body(obs)
        advantage = self.advantage(h)
        return self.value(h) + advantage - advantage.mean(dim=1, keepdim=True)


class VectorEnv:
    """Linear dynamics with noise; the reward depends on the state and on the action chosen."""

    def __init__(self, rng):
        self.rng = rng
        self.obs = rng.standard_normal((ENVS, OBS)).astype(np.float32)
        self.drift = rng.standard_normal((ACTIONS, OBS)).astype(np.float32) * 0.1
        self.taste = rng.standard_normal((OBS, ACTIONS)).astype(np.float32) / OBS**0.5

    def step(self, actions):
        before = self.obs
        noise = self.rng.standard_normal(before.shape).astype(np.float32) * 0.1
        self.obs = 0.95 * before + self.drift[actions] + noise
        reward = (before @ self.taste)[np.arange(ENVS), actions]
        return before, reward, self.obs


def main():
    random.seed(4)
    torch.manual_seed(4)
    rng = np.random.default_rng(4)
    env = VectorEnv(rng)
    memory = PrioritizedReplay(1 << 15, OBS, rng)
    online = DuelingNet()
    target = copy.deepcopy(online).requires_grad_(False)
    optimizer = torch.optim.Adam(online.parameters(), lr=3e-4)

    for _ in range(256):
        actions = rng.integers(0, ACTIONS, ENVS)
        obs, reward, following = env.step(actions)
        memory.add(obs, actions, reward, following)

    for step in range(400):
        with torch.no_grad():
            greedy = online(torch.from_numpy(env.obs)).argmax(dim=1).numpy()
        explore = rng.random(ENVS) < 0.1
        actions = np.where(explore, rng.integers(0, ACTIONS, ENVS), greedy)
        obs, reward, following = env.step(actions)
        memory.add(obs, actions, reward, following)

        index, weights, (obs, actions, reward, following) = memory.sample(BATCH)
        with torch.no_grad():
            best = online(following).argmax(dim=1, keepdim=True)
            goal = reward + GAMMA * target(following).gather(1, best).squeeze(1)
        chosen = online(obs).gather(1, actions[:, None]).squeeze(1)
        loss = (weights * F.smooth_l1_loss(chosen, goal, reduction="none")).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        memory.update(index, (goal - chosen.detach()).abs().numpy())
        with torch.no_grad():
            torch._foreach_lerp_(list(target.parameters()), list(online.parameters()), TAU)
        if step % 100 == 99:
            print(f"step {step + 1} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
