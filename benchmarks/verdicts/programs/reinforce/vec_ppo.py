"""PPO on vectorised synthetic control tasks."""

import argparse

import torch
from torch import nn


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--envs", type=int, default=128)
    parser.add_argument("--horizon", type=int, default=32)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--minibatch", type=int, default=512)
    parser.add_argument("--threads", type=int, default=16)
    return parser.parse_args()


class ActorCritic(nn.Module):
    def __init__(self, obs=64, actions=8, width=256):
        super().__init__()
        self.actor = nn.Sequential(
            nn.Linear(obs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, actions)
        )
        self.critic = nn.Sequential(
            nn.Linear(obs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )
        self.log_std = nn.Parameter(torch.full((actions,), -0.5))

    def forward(self, obs):
        return torch.distributions.Normal(self.actor(obs), self.log_std.exp()), self.critic(obs).squeeze(-1)


class Task:
    def __init__(self, envs, obs=64, actions=8):
        self.a = torch.eye(obs) * 0.97 + torch.randn(obs, obs) * 0.01
        self.b = torch.randn(actions, obs) * 0.1
        self.state = torch.randn(envs, obs)

    def step(self, action):
        self.state = self.state @ self.a + action @ self.b
        return self.state, -self.state.square().mean(dim=1) - 0.01 * action.square().mean(dim=1)


def gather(model, task, horizon):
    obs, actions, logps, values, rewards = [], [], [], [], []
    with torch.no_grad():
        state = task.state
        for _ in range(horizon):
            policy, value = model(state)
            action = policy.sample()
            obs.append(state)
            actions.append(action)
            logps.append(policy.log_prob(action).sum(-1))
            values.append(value)
            state, reward = task.step(action)
            rewards.append(reward)
        following = model(state)[1]
        advantages, running = [], torch.zeros_like(following)
        for t in reversed(range(horizon)):
            delta = rewards[t] + 0.99 * following - values[t]
            running = delta + 0.99 * 0.95 * running
            following = values[t]
            advantages.append(running)
        advantages = torch.stack(advantages[::-1])
        returns = advantages + torch.stack(values)
    return [torch.cat(x) for x in (obs, actions, logps)] + [advantages.flatten(), returns.flatten()]


def update(model, optimizer, batch, args):
    obs, actions, logps, advantages, returns = batch
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    for _ in range(args.epochs):
        for index in torch.randperm(len(obs)).split(args.minibatch):
            policy, value = model(obs[index])
            ratio = (policy.log_prob(actions[index]).sum(-1) - logps[index]).exp()
            gain = advantages[index]
            clipped = torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain)
            loss = -clipped.mean() + 0.5 * (value - returns[index]).square().mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
    return loss.item()


def main():
    args = parse()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    task, model = Task(args.envs), ActorCritic()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    for iteration in range(args.iterations):
        task.state = torch.randn_like(task.state)
        loss = update(model, optimizer, gather(model, task, args.horizon), args)
        print(f"iteration {iteration}: loss {loss:.4f}")


if __name__ == "__main__":
    main()
