"""What a line-up is worth: embeddings of players, clubs and leagues, summed and scored."""

import torch
import torch.nn.functional as F
from torch import nn


class LineUp(nn.Module):
    def __init__(self, players, clubs, size=48):
        super().__init__()
        self.players = nn.EmbeddingBag(players, size, mode="mean")
        self.clubs = nn.Embedding(clubs, size)
        self.score = nn.Sequential(nn.Linear(2 * size, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU())
        self.goals = nn.Linear(128, 1)

    def forward(self, eleven, club):
        together = torch.cat([self.players(eleven), self.clubs(club)], dim=1)
        return self.goals(self.score(together)).squeeze(1)


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.history = []

    def fit(self, fixtures):
        self.model.train()
        for eleven, club, goals in fixtures:
            self.history.append(self.step(eleven, club, goals))
            if len(self.history) % 20 == 0:
                recent = torch.stack(self.history[-20:]).mean().item()
                print(f"matchday {len(self.history)}: {recent:.4f}")

    def step(self, eleven, club, goals):
        self.optimizer.zero_grad()
        loss = F.poisson_nll_loss(self.model(eleven, club), goals)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class League:
    """Fixtures whose goals depend on the eleven."""

    def __init__(self, players, clubs, days, games=512):
        self.players, self.clubs, self.days, self.games = players, clubs, days, games
        self.form = torch.randn(players) * 0.5

    def __iter__(self):
        for _ in range(self.days):
            eleven = torch.randint(self.players, (self.games, 11))
            club = torch.randint(self.clubs, (self.games,))
            yield eleven, club, torch.poisson(self.form[eleven].mean(1).exp())


if __name__ == "__main__":
    torch.manual_seed(1930)
    league = League(players=400_000, clubs=4_000, days=40)
    Trainer(LineUp(league.players, league.clubs), lr=1e-3).fit(league)
