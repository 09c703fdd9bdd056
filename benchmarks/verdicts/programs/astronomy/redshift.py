"""Photometric redshifts with a mixture density network."""

import math

import torch
from torch import Tensor, nn


class MixtureDensity(nn.Module):
    """Weights, means and widths of Gaussians over the redshift of a galaxy."""

    def __init__(self, colours: int, width: int, depth: int, components: int):
        super().__init__()
        sizes = [colours] + [width] * depth
        self.trunk = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:], strict=True))
        self.out = nn.Linear(width, 3 * components)

    def forward(self, colours: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = colours
        for layer in self.trunk:
            hidden = torch.relu_(layer(hidden))
        weight, mean, spread = self.out(hidden).chunk(3, dim=-1)
        return weight.log_softmax(dim=-1), mean, spread.clamp(-5, 3)


def negative_log_likelihood(mixture: tuple[Tensor, Tensor, Tensor], redshift: Tensor) -> Tensor:
    weight, mean, spread = mixture
    apart = (redshift[:, None] - mean) * torch.exp(-spread)
    return -torch.logsumexp(weight - spread - 0.5 * apart.square() - 0.5 * math.log(2 * math.pi), dim=-1).mean()


def catalogue(galaxies: int, colours: int) -> tuple[Tensor, Tensor]:
    redshift = torch.rand(galaxies) * 2
    slopes = torch.randn(colours)
    return torch.sin(redshift[:, None] * 3 + slopes) + 0.05 * torch.randn(galaxies, colours), redshift


def main() -> None:
    torch.manual_seed(11)
    colours, redshift = catalogue(60_000, 10)
    model = MixtureDensity(10, 768, 4, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
    total = torch.zeros(())
    for step in range(1, 61):
        chosen = torch.randint(len(colours), (1024,))
        loss = negative_log_likelihood(model(colours[chosen]), redshift[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % 20 == 0:
            print(f"{step} steps, mean negative log-likelihood {total.item() / 20:.3f}")
            total.zero_()


if __name__ == "__main__":
    main()
