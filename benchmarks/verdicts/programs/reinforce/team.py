"""Independent learners in one shared world: every agent has its own small value network."""

import torch
import torch.nn.functional as F
from torch import nn

AGENTS, OBS, ACTIONS, WIDTH = 48, 20, 5, 32


class Team(nn.Module):
    def __init__(self):
        super().__init__()
        self.members = nn.ModuleList(
            nn.Sequential(
                nn.Linear(OBS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, ACTIONS)
            )
            for _ in range(AGENTS)
        )

    def forward(self, obs):
        return torch.stack([member(obs[i]) for i, member in enumerate(self.members)])


class World:
    """Every agent moves a hidden point; rewards fall with its distance from the origin."""

    def __init__(self, size):
        self.push = torch.randn(AGENTS, ACTIONS, OBS) * 0.2
        self.state = torch.randn(AGENTS, size, OBS)

    def play(self, actions):
        before = self.state
        moved = torch.gather(self.push, 1, actions[..., None].expand(-1, -1, OBS))
        self.state = 0.9 * before + moved + 0.02 * torch.randn_like(before)
        return before, -self.state.square().mean(dim=-1), self.state


def main(steps=300, size=32, gamma=0.95):
    torch.manual_seed(8)
    world, team, lagging = World(size), Team(), Team().requires_grad_(False)
    lagging.load_state_dict(team.state_dict())
    optimizer = torch.optim.SGD(team.parameters(), lr=0.02, foreach=True)
    for step in range(steps):
        actions = torch.randint(ACTIONS, (AGENTS, size))
        obs, reward, following = world.play(actions)
        with torch.no_grad():
            goal = reward + gamma * lagging(following).amax(dim=-1)
        chosen = team(obs).gather(2, actions[..., None]).squeeze(-1)
        loss = F.smooth_l1_loss(chosen, goal)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 60 == 59:
            lagging.load_state_dict(team.state_dict())
            print(f"step {step + 1}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
