"""Q-learning from recorded games on a small board, without playing."""

import torch
import torch.nn as nn

PLANES, SIDE, MOVES = 4, 11, 8


def q_network(width=48):
    return nn.Sequential(
        nn.Conv2d(PLANES, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1),
        nn.ReLU(),
        nn.AvgPool2d(3, stride=3, ceil_mode=True),
        nn.Flatten(),
        nn.Linear(width * 16, MOVES),
    )


class Record:
    def __init__(self, games=3000, seed=21):
        generator = torch.Generator().manual_seed(seed)
        self.boards = (torch.rand(games, PLANES, SIDE, SIDE, generator=generator) < 0.2).float()
        self.moves = torch.randint(MOVES, (games,), generator=generator)
        self.gains = self.boards[:, 0].mean((1, 2)) * (self.moves.float() - 3.5)
        self.generator = generator

    def sample(self, size):
        at = torch.randint(len(self.boards) - 1, (size,), generator=self.generator)
        return self.boards[at], self.moves[at], self.gains[at], self.boards[at + 1]


class Learner:
    def __init__(self, discount=0.9, refresh=20):
        self.fast, self.slow = q_network(), q_network()
        self.slow.load_state_dict(self.fast.state_dict())
        self.optimizer = torch.optim.Adam(self.fast.parameters(), lr=5e-4)
        self.discount, self.refresh, self.steps = discount, refresh, 0

    def returns(self, gains, following):
        return gains + self.discount * self.slow(following).amax(dim=1)

    def learn(self, boards, moves, gains, following):
        guess = self.fast(boards).gather(1, moves[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(guess, self.returns(gains, following))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        if self.steps % self.refresh == 0:
            self.slow.load_state_dict(self.fast.state_dict())
        return loss.item()


if __name__ == "__main__":
    torch.manual_seed(1)
    record, learner = Record(), Learner()
    losses = [learner.learn(*record.sample(112)) for _ in range(80)]
    for start in range(0, len(losses), 20):
        print(f"steps {start}..{start + 19}: {sum(losses[start : start + 20]) / 20:.5f}")
