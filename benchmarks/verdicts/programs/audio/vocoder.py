"""Train a vocoder on a GPU whose discriminators see several scales."""

import argparse

import torch
from torch import nn
from torch.nn import functional

device = torch.device("cuda")


class Generator(nn.Module):
    def __init__(self, bands=80, width=128):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(bands, width, 7, padding=3),
            nn.LeakyReLU(0.1),
            nn.ConvTranspose1d(width, width // 2, 16, stride=8, padding=4),
            nn.LeakyReLU(0.1),
            nn.ConvTranspose1d(width // 2, width // 4, 16, stride=8, padding=4),
            nn.LeakyReLU(0.1),
            nn.Conv1d(width // 4, 1, 7, padding=3),
            nn.Tanh(),
        )

    def forward(self, spectra):
        return self.layers(spectra)


class Discriminator(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(1, width, 15, stride=4, padding=7),
            nn.LeakyReLU(0.1),
            nn.Conv1d(width, 2 * width, 15, stride=4, padding=7),
            nn.LeakyReLU(0.1),
            nn.Conv1d(2 * width, 1, 3, padding=1),
        )

    def forward(self, wave):
        return self.layers(wave).mean(dim=(1, 2))


class Adversarial:
    def __init__(self, scales=3):
        self.generator = Generator().to(device)
        self.judges = nn.ModuleList(Discriminator() for _ in range(scales)).to(device)
        self.generating = torch.optim.AdamW(self.generator.parameters(), lr=2e-4, betas=(0.8, 0.99))
        self.judging = torch.optim.AdamW(self.judges.parameters(), lr=2e-4, betas=(0.8, 0.99))

    def scores(self, wave):
        return [judge(functional.avg_pool1d(wave, 2**i)) for i, judge in enumerate(self.judges)]

    def judge(self, real, fake):
        good, bad = self.scores(real), self.scores(fake.detach())
        loss = sum((g - 1).square().mean() + b.square().mean() for g, b in zip(good, bad, strict=True))
        self.judging.zero_grad()
        loss.backward()
        self.judging.step()
        torch.cuda.empty_cache()
        return loss.detach()

    def generate(self, spectra, real):
        fake = self.generator(spectra)
        judged = self.judge(real, fake)
        torch.cuda.empty_cache()
        loss = sum((s - 1).square().mean() for s in self.scores(fake)) + 45 * functional.l1_loss(fake, real)
        self.generating.zero_grad()
        loss.backward()
        self.generating.step()
        torch.cuda.empty_cache()
        return loss.detach(), judged


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--frames", type=int, default=256)
    options = parser.parse_args()
    torch.manual_seed(0)
    training = Adversarial()
    spectra = torch.randn(options.batch, 80, options.frames, device=device)
    real = torch.randn(options.batch, 1, 64 * options.frames, device=device).tanh()
    for step in range(options.steps):
        loss, judged = training.generate(spectra, real)
        if step % 50 == 0:
            print(f"step {step}: generator {loss.item():.4f}, judges {judged.item():.4f}")


if __name__ == "__main__":
    main()
