"""An autoencoder of short sounds."""

import torch
import torch.nn.functional as F
from audio_ae_parts.signals import sounds
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class SoundAutoencoder(nn.Module):
    def __init__(self, frame=512, width=512):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(frame, width), nn.ELU(), nn.Linear(width, width), nn.ELU(), nn.Linear(width, 32)
        )
        self.decoder = nn.Sequential(
            nn.Linear(32, width), nn.ELU(), nn.Linear(width, width), nn.ELU(), nn.Linear(width, frame)
        )

    def forward(self, x):
        return self.decoder(self.encoder(x))


def main():
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(sounds(count=1600, length=4096)), batch_size=48, shuffle=True)
    model = SoundAutoencoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(2):
        for (batch,) in loader:
            batch = batch.unflatten(1, (8, 512))
            restored = model(batch + 0.05 * torch.randn_like(batch))
            loss = F.mse_loss(restored, batch)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.5f}")


if __name__ == "__main__":
    main()
