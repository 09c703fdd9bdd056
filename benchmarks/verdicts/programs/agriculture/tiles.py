"""Which crop grows on a field: patches of a multispectral tile, mixed by a small MLP-Mixer."""

import numpy as np
import torch
from tiles_parts.store import ShardStore
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Crops(Dataset):
    def __init__(self, store):
        self.store = store
        self.random = np.random.default_rng(6)

    def __len__(self):
        return len(self.store)

    def __getitem__(self, index):
        pixels, crop = self.store[index]
        turns = int(self.random.integers(4))
        pixels = np.ascontiguousarray(np.rot90(pixels, turns, axes=(1, 2)))
        return torch.from_numpy(pixels.astype(np.float32) / 255.0), int(crop)


class Mixer(nn.Module):
    def __init__(self, patches, width):
        super().__init__()
        self.across = nn.Sequential(nn.Linear(patches, 2 * patches), nn.GELU(), nn.Linear(2 * patches, patches))
        self.within = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])

    def forward(self, x):
        x = x + self.across(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.within(self.norms[1](x))


class CropNet(nn.Module):
    def __init__(self, bands=6, side=40, patch=8, width=96, crops=8):
        super().__init__()
        self.embed = nn.Conv2d(bands, width, patch, stride=patch)
        self.mixers = nn.Sequential(*(Mixer((side // patch) ** 2, width) for _ in range(2)))
        self.head = nn.Linear(width, crops)

    def forward(self, images):
        return self.head(self.mixers(self.embed(images).flatten(2).transpose(1, 2)).mean(1))


def main():
    torch.manual_seed(12)
    loader = DataLoader(Crops(ShardStore()), batch_size=32, shuffle=True, drop_last=True)
    net = CropNet()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for epoch in range(3):
        right = 0
        for images, crop in loader:
            scores = net(images)
            loss = nn.functional.cross_entropy(scores, crop)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == crop).sum().item()
        print(f"epoch {epoch}: {right / len(loader.dataset):.3f} of the fields")


if __name__ == "__main__":
    main()
