"""Deep Q-learning from stacked frames on a GPU, with a replay memory in main memory."""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda")


class Replay:
    def __init__(self, capacity, size):
        self.obs = torch.rand(capacity, 4, size, size)
        self.following = self.obs.roll(-1, 0)
        self.actions = torch.randint(6, (capacity,))
        self.rewards = torch.randn(capacity)

    def sample(self, count):
        index = torch.randint(len(self.obs), (count,))
        return tuple(t[index].to(device) for t in (self.obs, self.actions, self.rewards, self.following))


class QNet(nn.Module):
    def __init__(self, size, actions=6):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU()
        )
        self.head = nn.Sequential(nn.Flatten(), nn.LazyLinear(512), nn.ReLU(), nn.Linear(512, actions))
        self(torch.zeros(1, 4, size, size))

    def forward(self, x):
        return self.head(self.body(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--capacity", type=int, default=6000)
    parser.add_argument("--size", type=int, default=84)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.allow_tf32 = True
    memory = Replay(args.capacity, args.size)
    online = QNet(args.size).to(device)
    target = copy.deepcopy(online).requires_grad_(False)
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-4)
    for step in range(args.steps):
        obs, actions, rewards, following = memory.sample(args.batch)
        with torch.no_grad():
            goal = rewards + 0.99 * target(following).amax(dim=1)
        chosen = online(obs).gather(1, actions[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(chosen, goal)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            target.load_state_dict(online.state_dict())
            print(f"step {step + 1}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
