"""A variational autoencoder of small glyphs, with callbacks."""

import torch
import torch.nn.functional as F
from torch import nn
from vae_parts.callbacks import Diversity, Progress


def glyphs(count, generator):
    grid = torch.linspace(-1, 1, 24)
    y, x = torch.meshgrid(grid, grid, indexing="ij")
    shape = torch.rand(count, 5, 1, 1, generator=generator)
    ring = (x - shape[:, 0] + 0.5).square() + (y - shape[:, 1] + 0.5).square()
    bar = (x * shape[:, 2] + y * (1 - shape[:, 2])).abs()
    picture = torch.exp(-40 * (ring - 0.3 * shape[:, 3]).square()) + torch.exp(-60 * (bar - 0.3 * shape[:, 4]).square())
    return picture.clamp(0, 1).flatten(1)


class VAE(nn.Module):
    def __init__(self, pixels=576, width=512, latent=16):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(pixels, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.moments = nn.Linear(width, 2 * latent)
        self.decoder = nn.Sequential(
            nn.Linear(latent, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, pixels)
        )

    def forward(self, x):
        mean, logvar = self.moments(self.encoder(x)).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        return self.decoder(z), mean, logvar


class Trainer:
    def __init__(self, model, pictures, callbacks, batch_size=256):
        self.model, self.pictures, self.batch_size = model, pictures, batch_size
        self.callbacks = callbacks
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.iteration = 0

    def fit(self, epochs):
        for _ in range(epochs):
            for index in torch.randperm(len(self.pictures)).split(self.batch_size):
                x = self.pictures[index]
                logits, mean, logvar = self.model(x)
                kl = -0.5 * (1 + logvar - mean.square() - logvar.exp()).sum(dim=1).mean()
                loss = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x) + kl
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                self.optimizer.step()
                self.iteration += 1
                for callback in self.callbacks:
                    callback.on_batch_end(self, logits.detach(), loss.detach())


if __name__ == "__main__":
    torch.manual_seed(1)
    pictures = glyphs(4096, torch.Generator().manual_seed(1))
    Trainer(VAE(), pictures, [Diversity(pictures), Progress(every=32)]).fit(epochs=6)
