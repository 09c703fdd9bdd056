"""Advantage actor-critic with a record of every transition for later inspection."""

import json
import tempfile
from pathlib import Path

import torch
from torch import nn

OBS, ACTIONS, ENVS, HORIZON = 40, 5, 48, 8


class RunRecord:
    """Appends what happened to a JSON-lines file."""

    def __init__(self, folder):
        self.file = (Path(folder) / "transitions.jsonl").open("w")

    def transition(self, step, env, obs, action, reward):
        row = {
            "step": step,
            "env": env,
            "obs": [round(x, 5) for x in obs.tolist()],
            "action": int(action),
            "reward": float(reward),
        }
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()

    def close(self):
        self.file.close()


class Agent(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(OBS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.actor = nn.Linear(width, ACTIONS)
        self.critic = nn.Linear(width, 1)

    def forward(self, obs):
        h = self.body(obs)
        return torch.distributions.Categorical(logits=self.actor(h)), self.critic(h).squeeze(-1)


def rollout(agent, state, moves, record, step):
    logps, values, rewards = [], [], []
    for t in range(HORIZON):
        policy, value = agent(state)
        action = policy.sample()
        reward = -state[:, :8].abs().mean(dim=1)
        for env in range(ENVS):
            record.transition(step * HORIZON + t, env, state[env], action[env], reward[env])
        logps.append(policy.log_prob(action))
        values.append(value)
        rewards.append(reward)
        state = 0.9 * state + moves[action] + 0.05 * torch.randn_like(state)
    return state, torch.stack(logps), torch.stack(values), rewards


def main():
    torch.manual_seed(2)
    agent = Agent()
    moves = torch.randn(ACTIONS, OBS) * 0.2
    optimizer = torch.optim.RMSprop(agent.parameters(), lr=7e-4)
    state = torch.randn(ENVS, OBS)
    with tempfile.TemporaryDirectory() as folder:
        record = RunRecord(folder)
        for step in range(120):
            state, logps, values, rewards = rollout(agent, state, moves, record, step)
            with torch.no_grad():
                running = agent(state)[1]
                returns = []
                for reward in reversed(rewards):
                    running = reward + 0.97 * running
                    returns.append(running)
                returns = torch.stack(returns[::-1])
            gain = returns - values
            loss = -(logps * gain.detach()).mean() + 0.5 * gain.square().mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if step % 50 == 49:
                print(f"{step + 1}: loss {loss.item():.4f}")
        record.close()


if __name__ == "__main__":
    main()
