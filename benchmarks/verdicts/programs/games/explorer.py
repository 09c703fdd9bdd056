"""A player who explores a large map: its network sees where it has been, and how long ago."""

import torch
from torch import nn

SIDE = 1280


class Trail:
    """Where the player has been: footprints that fade with every move."""

    def __init__(self, side=SIDE, fade=0.6):
        self.prints = torch.rand(side, side)
        self.fade = fade
        self.side = side

    def walk(self, rows, columns):
        self.prints.mul_(self.fade)
        self.prints[rows, columns] += 1.0

    def picture(self):
        """The trail seen from above, with faint footprints made stronger."""
        strong = self.prints.sqrt()
        return torch.stack([strong.sqrt(), strong]).unflatten(1, (64, -1)).mean(2).unflatten(2, (64, -1)).mean(3)


class Scout(nn.Module):
    def __init__(self, moves=8):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(2, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 16, 5, stride=2), nn.ReLU(), nn.Flatten(),
            nn.Linear(16 * 13 * 13, moves),
        )  # fmt: skip

    def forward(self, picture):
        return self.layers(picture.unsqueeze(0)).squeeze(0)


def explore(steps, warm=260, party=64):
    torch.manual_seed(0)
    trail, scout = Trail(), Scout()
    optimizer = torch.optim.SGD(scout.parameters(), lr=0.02)
    places = torch.randint(SIDE, (2, party))
    headings = torch.tensor([[0, 1], [1, 1], [1, 0], [1, -1], [0, -1], [-1, -1], [-1, 0], [-1, 1]]).T
    for _ in range(warm):
        trail.walk(*places)
        places = (places + torch.randint(-2, 3, places.shape)) % SIDE
    earned = 0.0
    for step in range(1, steps + 1):
        policy = torch.distributions.Categorical(logits=scout(trail.picture()))
        moves = policy.sample((party,))
        places = (places + headings[:, moves]) % SIDE
        fresh = (trail.prints[tuple(places)] < 1e-3).float()
        loss = -(policy.log_prob(moves) * (fresh - fresh.mean())).mean() - 0.01 * policy.entropy()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trail.walk(*places)
        earned += fresh.mean().item()
        if step % 30 == 0:
            print(f"step {step}: {earned / step:.3f} of the moves find new ground")


if __name__ == "__main__":
    explore(steps=120)
