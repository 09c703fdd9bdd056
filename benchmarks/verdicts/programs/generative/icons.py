"""A small GAN of icons that are kept as encoded pictures."""

import io

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageFilter, ImageOps
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Icons(Dataset):
    """Icons as PNG files in memory, brought to 32 by 32 pixels."""

    def __init__(self, count=224, seed=0):
        rng = np.random.default_rng(seed)
        self.files = []
        for _ in range(count):
            small = rng.integers(0, 255, (6, 6, 3), dtype=np.uint8)
            buffer = io.BytesIO()
            Image.fromarray(small).resize((256, 256), Image.Resampling.BICUBIC).save(buffer, "PNG", compress_level=1)
            self.files.append(buffer.getvalue())

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        picture = Image.open(io.BytesIO(self.files[index])).convert("RGB")
        picture = ImageOps.autocontrast(picture.filter(ImageFilter.GaussianBlur(2)))
        picture = picture.resize((32, 32), Image.Resampling.LANCZOS)
        return torch.from_numpy(np.asarray(picture, np.float32) / 127.5 - 1).permute(2, 0, 1).contiguous()


def generator(z=64, w=32):
    return nn.Sequential(
        nn.ConvTranspose2d(z, 4 * w, 4),
        nn.BatchNorm2d(4 * w),
        nn.ReLU(),
        nn.ConvTranspose2d(4 * w, 2 * w, 4, 2, 1),
        nn.BatchNorm2d(2 * w),
        nn.ReLU(),
        nn.ConvTranspose2d(2 * w, w, 4, 2, 1),
        nn.BatchNorm2d(w),
        nn.ReLU(),
        nn.ConvTranspose2d(w, 3, 4, 2, 1),
        nn.Tanh(),
    )


def critic(w=32):
    return nn.Sequential(
        nn.Conv2d(3, w, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(w, 2 * w, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(2 * w, 4 * w, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(4 * w, 1, 4),
        nn.Flatten(0),
    )


def main():
    torch.manual_seed(0)
    loader = DataLoader(Icons(), batch_size=32, shuffle=True, drop_last=True)
    g, d = generator(), critic()
    g_optimizer = torch.optim.Adam(g.parameters(), lr=2e-4, betas=(0.5, 0.999))
    d_optimizer = torch.optim.Adam(d.parameters(), lr=2e-4, betas=(0.5, 0.999))
    for epoch in range(6):
        for real in loader:
            fake = g(torch.randn(len(real), 64, 1, 1))
            d_loss = F.softplus(-d(real)).mean() + F.softplus(d(fake.detach())).mean()
            d_optimizer.zero_grad(set_to_none=True)
            d_loss.backward()
            d_optimizer.step()

            d.requires_grad_(False)
            g_loss = F.softplus(-d(fake)).mean()
            d.requires_grad_(True)
            g_optimizer.zero_grad(set_to_none=True)
            g_loss.backward()
            g_optimizer.step()
        print(f"epoch {epoch}: d {d_loss.item():.3f} g {g_loss.item():.3f}")


if __name__ == "__main__":
    main()
