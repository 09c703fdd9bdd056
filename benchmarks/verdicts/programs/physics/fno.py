"""A Fourier neural operator that steps a field forward in time."""

import torch
import torch.nn.functional as F
from fno_parts.reproduce import seed_everything
from torch import nn


class SpectralBlock(nn.Module):
    def __init__(self, width, modes):
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(width, width, modes, modes, dtype=torch.cfloat) / width**2)
        self.local = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        spectrum = torch.fft.rfft2(x)
        kept = torch.zeros_like(spectrum)
        m = self.modes
        kept[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, :m, :m], self.weight)
        return F.gelu(torch.fft.irfft2(kept, s=x.shape[-2:]) + self.local(x))


class Operator(nn.Module):
    def __init__(self, width=40, modes=6, depth=2):
        super().__init__()
        self.lift = nn.Conv2d(1, width, 1)
        self.blocks = nn.Sequential(*[SpectralBlock(width, modes) for _ in range(depth)])
        self.project = nn.Sequential(nn.Conv2d(width, 96, 1), nn.GELU(), nn.Conv2d(96, 1, 1))

    def forward(self, x):
        return x + self.project(self.blocks(self.lift(x)))


def fields(count, size):
    """Smooth random fields and the same fields a moment of diffusion and drift later."""
    noise = torch.fft.rfft2(torch.randn(count, 1, size, size))
    k = torch.fft.fftfreq(size)[:, None].square() + torch.fft.rfftfreq(size).square()
    start = torch.fft.irfft2(noise * torch.exp(-300 * k), s=(size, size))
    start = start / start.std()
    later = torch.fft.irfft2(torch.fft.rfft2(start) * torch.exp(-60 * k), s=(size, size))
    return start, torch.roll(later, 2, dims=3)


def main():
    seed_everything(1)
    start, later = fields(128, 64)
    model = Operator()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(40):
        index = torch.randint(len(start), (16,))
        loss = F.mse_loss(model(start[index]), later[index])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
