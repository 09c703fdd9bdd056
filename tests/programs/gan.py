"""Two models and two optimizers that take turns inside one step."""

import torch
from digest import report
from torch import nn

torch.manual_seed(0)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 6))

    def forward(self, z):
        return self.net(z)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 1))

    def forward(self, x):
        return self.net(x)


generator, critic = Generator(), Critic()
criterion = nn.BCEWithLogitsLoss()
of_critic = torch.optim.Adam(critic.parameters(), lr=1e-2)
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-2)
real, fake = torch.ones(3, 1), torch.zeros(3, 1)
losses = []
for _ in range(6):
    of_critic.zero_grad()
    made = generator(torch.randn(3, 4))
    loss = criterion(critic(torch.randn(3, 6)), real) + criterion(critic(made.detach()), fake)
    loss.backward()
    of_critic.step()
    of_generator.zero_grad()
    cheat = criterion(critic(made), real)
    cheat.backward()
    of_generator.step()
    losses += [loss.item(), cheat.item()]
report(losses, generator, critic)
