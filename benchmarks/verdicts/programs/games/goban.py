"""Policy and value of positions on a 13 by 13 board, from recorded games."""

import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return torch.relu(x + self.second(torch.relu(self.first(x))))


class Player(nn.Module):
    def __init__(self, planes=4, width=48, blocks=2, side=13):
        super().__init__()
        self.tower = nn.Sequential(
            nn.Conv2d(planes, width, 3, padding=1), nn.ReLU(), *[Residual(width) for _ in range(blocks)]
        )
        self.policy = nn.Sequential(nn.Conv2d(width, 1, 1), nn.Flatten())
        self.value = nn.Sequential(
            nn.Flatten(),
            nn.Linear(width * side * side, 1536),
            nn.ReLU(),
            nn.Linear(1536, 1),
            nn.Tanh(),
        )

    def forward(self, boards):
        seen = self.tower(boards)
        return self.policy(seen), self.value(seen).squeeze(1)


def positions(count, side=13):
    stones = torch.rand(count, 4, side, side) < torch.tensor([0.2, 0.2, 0.1, 0.5]).view(4, 1, 1)
    boards = stones.float()
    lead = (boards[:, 0] - boards[:, 1]).mean((1, 2))
    best = nn.functional.avg_pool2d(boards[:, :1], 3, 1, 1).flatten(1).argmax(1)
    return boards, best, torch.tanh(20 * lead)


def main():
    torch.manual_seed(35)
    player = Player()
    optimizer = torch.optim.SGD(player.parameters(), lr=0.01, momentum=0.9)
    for step in range(1, 41):
        boards, best, lead = positions(32)
        policy, value = player(boards)
        loss = nn.functional.cross_entropy(policy, best) + nn.functional.mse_loss(value, lead)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"{step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
