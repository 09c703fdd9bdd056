"""A recurrent world model learned from stored episodes: predicts the next observation and the reward."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Episodes:
    def __init__(self, count=60, length=400, obs=48, actions=6, seed=3):
        rng = np.random.default_rng(seed)
        a = np.eye(obs) * 0.98 + rng.standard_normal((obs, obs)) * 0.01
        b = rng.standard_normal((actions, obs)) * 0.1
        state = rng.standard_normal((count, obs))
        frames, moves = [], []
        for _ in range(length):
            action = rng.integers(0, actions, count)
            frames.append(state)
            moves.append(np.eye(actions)[action])
            state = state @ a + b[action] + 0.01 * rng.standard_normal(state.shape)
        self.obs = np.stack(frames, axis=1).astype(np.float32)
        self.actions = np.stack(moves, axis=1).astype(np.float32)
        self.rewards = np.tanh(self.obs[..., :4].sum(axis=-1)).astype(np.float32)
        self.rng = rng

    def batch(self, size, length):
        chosen = self.rng.integers(0, len(self.obs), size)
        begins = self.rng.integers(0, self.obs.shape[1] - length, size)
        obs = [self.obs[e, b : b + length].tolist() for e, b in zip(chosen, begins, strict=True)]
        actions = [self.actions[e, b : b + length].tolist() for e, b in zip(chosen, begins, strict=True)]
        rewards = [self.rewards[e, b : b + length].tolist() for e, b in zip(chosen, begins, strict=True)]
        return torch.tensor(obs), torch.tensor(actions), torch.tensor(rewards)


class WorldModel(nn.Module):
    def __init__(self, obs=48, actions=6, width=96):
        super().__init__()
        self.encode = nn.Linear(obs + actions, width)
        self.memory = nn.GRU(width, width, batch_first=True)
        self.predict = nn.Linear(width, obs)
        self.reward = nn.Linear(width, 1)

    def forward(self, obs, actions):
        h, _ = self.memory(F.silu(self.encode(torch.cat([obs, actions], dim=-1))))
        return self.predict(h), self.reward(h).squeeze(-1)


torch.manual_seed(3)
episodes = Episodes()
model = WorldModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model.train()
for step in range(90):
    obs, actions, rewards = episodes.batch(96, 32)
    guess, reward = model(obs[:, :-1], actions[:, :-1])
    loss = F.mse_loss(guess, obs[:, 1:]) + F.mse_loss(reward, rewards[:, :-1])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    optimizer.step()
    if step % 30 == 29:
        print(f"step {step + 1}: loss {loss.item():.4f}")
