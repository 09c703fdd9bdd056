"""PPO with image observations, made on the fly by a small synthetic world."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(21)
ENVS, HORIZON, ITERATIONS, EPOCHS, MINIBATCH, ACTIONS = 32, 16, 6, 2, 128, 4


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2, 32, 5, stride=2),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * 6 * 6, 256),
            nn.ReLU(),
        )
        self.actor = nn.Linear(256, ACTIONS)
        self.critic = nn.Linear(256, 1)

    def forward(self, obs):
        h = self.body(obs)
        return torch.distributions.Categorical(logits=self.actor(h)), self.critic(h).squeeze(-1)


class World:
    """A bright blob that the agent can push; the nearer to the middle, the better."""

    def __init__(self):
        grid = torch.linspace(-1, 1, 40)
        self.x, self.y = torch.meshgrid(grid, grid, indexing="xy")
        self.place = torch.rand(ENVS, 2) * 2 - 1
        self.moves = torch.tensor([[0.1, 0.0], [-0.1, 0.0], [0.0, 0.1], [0.0, -0.1]])

    def draw(self):
        dx = self.x - self.place[:, 0, None, None]
        dy = self.y - self.place[:, 1, None, None]
        blob = torch.exp(-20 * (dx.square() + dy.square()))
        return torch.stack([blob, dx.abs()], dim=1)

    def step(self, action):
        self.place = (self.place + self.moves[action] + 0.02 * torch.randn(ENVS, 2)).clamp(-1, 1)
        return -self.place.norm(dim=1)


agent, world = Agent(), World()
optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
for iteration in range(ITERATIONS):
    obs = torch.zeros(HORIZON, ENVS, 2, 40, 40)
    actions = torch.zeros(HORIZON, ENVS, dtype=torch.long)
    logps, values, rewards = (torch.zeros(HORIZON, ENVS) for _ in range(3))
    with torch.no_grad():
        for t in range(HORIZON):
            obs[t] = world.draw()
            policy, values[t] = agent(obs[t])
            actions[t] = policy.sample()
            logps[t] = policy.log_prob(actions[t])
            rewards[t] = world.step(actions[t])
        following = agent(world.draw())[1]
        gains, running = torch.zeros_like(rewards), torch.zeros(ENVS)
        for t in reversed(range(HORIZON)):
            running = rewards[t] + 0.99 * following - values[t] + 0.99 * 0.95 * running
            gains[t], following = running, values[t]
        returns = (gains + values).flatten()
        gains = ((gains - gains.mean()) / (gains.std() + 1e-8)).flatten()
    flat = obs.flatten(0, 1), actions.flatten(), logps.flatten()
    for _ in range(EPOCHS):
        for index in torch.randperm(len(returns)).split(MINIBATCH):
            policy, value = agent(flat[0][index])
            ratio = (policy.log_prob(flat[1][index]) - flat[2][index]).exp()
            surrogate = torch.minimum(ratio * gains[index], ratio.clamp(0.8, 1.2) * gains[index])
            loss = -surrogate.mean() + 0.5 * F.mse_loss(value, returns[index]) - 0.01 * policy.entropy().mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    print(f"iteration {iteration + 1}: reward {rewards.mean().item():.3f} loss {loss.item():.3f}")
