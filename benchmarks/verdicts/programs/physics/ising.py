"""A network learns the energy of Ising lattices while a Metropolis chain supplies them."""

import logging

import torch
import torch.nn.functional as F
from torch import nn

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("ising")


def traced(function):
    """Notes arguments and result of every call for those who debug."""

    def call(*arguments):
        result = function(*arguments)
        log.debug(f"{function.__name__}{arguments} -> {result.tolist()}")
        return result

    return call


def energy(spins):
    return -(spins * torch.roll(spins, 1, 1) + spins * torch.roll(spins, 1, 2)).mean(dim=(1, 2))


@traced
def sweep(spins, temperature):
    """Flips the black and then the white fields of the board."""
    board = (torch.arange(spins.shape[1])[:, None] + torch.arange(spins.shape[2])) % 2
    for colour in (0, 1):
        around = sum(torch.roll(spins, s, d) for s in (1, -1) for d in (1, 2))
        accept = torch.rand_like(spins) < torch.exp(-2 * spins * around / temperature)
        spins = torch.where(accept & (board == colour), -spins, spins)
    return spins


class EnergyNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, padding_mode="circular"), nn.GELU(), nn.Conv2d(width, width, 1), nn.GELU()
        )
        self.head = nn.Linear(width, 1)

    def forward(self, spins):
        return self.head(self.conv(spins[:, None]).mean(dim=(2, 3))).squeeze(1)


def main():
    torch.manual_seed(0)
    spins = torch.randint(0, 2, (48, 24, 24)).float() * 2 - 1
    model = EnergyNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(80):
        spins = sweep(spins, 2.3)
        loss = F.mse_loss(model(spins), energy(spins))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            log.info("step %d: loss %.5f", step + 1, loss.item())


if __name__ == "__main__":
    main()
