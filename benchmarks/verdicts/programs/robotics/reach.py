"""Offline learning of reaching from recorded images: twin critics over one encoder, and a cloned policy."""

import torch
from torch import nn
from torch.nn import functional as F

ACTIONS = 4


class Eyes(nn.Module):
    def __init__(self, size=128):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 24, 5, stride=2), nn.ReLU(),
            nn.Conv2d(24, 32, 3, stride=2), nn.ReLU(),
            nn.Conv2d(32, 32, 3, stride=1), nn.ReLU(),
            nn.Flatten(),
        )  # fmt: skip
        self.out = nn.Linear(32 * 8 * 8, size)

    def forward(self, images):
        return torch.tanh(self.out(self.layers(images)))


class Twins(nn.Module):
    """Two estimates of the return of an action."""

    def __init__(self, size=128):
        super().__init__()
        self.eyes = Eyes(size)
        self.one = self.head(size)
        self.two = self.head(size)

    @staticmethod
    def head(size):
        return nn.Sequential(nn.Linear(size + ACTIONS, 128), nn.ReLU(), nn.Linear(128, 1))

    def q1(self, images, actions):
        return self.one(torch.cat([self.eyes(images), actions], dim=1)).squeeze(1)

    def q2(self, images, actions):
        return self.two(torch.cat([self.eyes(images), actions], dim=1)).squeeze(1)

    def pair(self, images, actions):
        return self.q1(images, actions), self.q2(images, actions)


def recorded(transitions):
    images = torch.rand(transitions, 3, 45, 45)
    actions = torch.rand(transitions, ACTIONS) * 2 - 1
    rewards = -(images.mean((2, 3)) - 0.5 - 0.02 * actions[:, :3]).abs().sum(1)
    return images, actions, rewards


def main(steps=81, batch=128, discount=0.97):
    torch.manual_seed(8)
    images, actions, rewards = recorded(800)
    critic, target = Twins(), Twins().requires_grad_(False)
    target.load_state_dict(critic.state_dict())
    policy = nn.Sequential(nn.Flatten(), nn.Linear(3 * 9 * 9, 64), nn.ReLU(), nn.Linear(64, ACTIONS), nn.Tanh())
    optimizer = torch.optim.Adam([*critic.parameters(), *policy.parameters()], lr=3e-4)
    for step in range(1, steps + 1):
        now = torch.randint(len(images) - 1, (batch,))
        with torch.no_grad():
            following = images[now + 1]
            value = torch.minimum(*target.pair(following, policy(F.avg_pool2d(following, 5))))
            wanted = rewards[now] + discount * value
        one, two = critic.pair(images[now], actions[now])
        cloned = F.mse_loss(policy(F.avg_pool2d(images[now], 5)), actions[now])
        loss = F.mse_loss(one, wanted) + F.mse_loss(two, wanted) + cloned
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), critic.parameters(), strict=True):
                slow.lerp_(fast, 0.01)
        if step % 9 == 0:
            print(f"step {step:3d} loss {loss.item():.4f} value {one.mean().item():.3f}")


if __name__ == "__main__":
    main()
