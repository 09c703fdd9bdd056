"""A convolutional autoencoder, with callbacks in the manner of larger frameworks."""

import tempfile

import torch
from autoencoder_parts.callbacks import Checkpoint, History
from torch import nn


class AutoEncoder(nn.Module):
    def __init__(self, code=96):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 64, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * 8 * 8, code),
        )
        self.decoder = nn.Sequential(
            nn.Linear(code, 64 * 8 * 8),
            nn.Unflatten(1, (64, 8, 8)),
            nn.ConvTranspose2d(64, 16, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1),
        )

    def forward(self, images):
        return self.decoder(self.encoder(images))


class Loop:
    def __init__(self, model, callbacks):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.callbacks = callbacks
        self.step = 0

    def run(self, batches):
        for images in batches:
            loss = nn.functional.mse_loss(self.model(images), images)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.step += 1
            for callback in self.callbacks:
                callback.after_step(self, loss)


def blobs(count, batch=16):
    generator = torch.Generator().manual_seed(1)
    axis = torch.linspace(-1, 1, 32)
    for _ in range(count):
        x, y, size = torch.rand(3, batch, 1, 1, generator=generator)
        square = (axis.view(1, 1, -1) - x) ** 2 + (axis.view(1, -1, 1) - y) ** 2
        yield torch.exp(-square / (0.05 + 0.2 * size)).unsqueeze(1)


if __name__ == "__main__":
    torch.manual_seed(0)
    history = History()
    with tempfile.TemporaryDirectory() as folder:
        Loop(AutoEncoder(), [history, Checkpoint(folder)]).run(blobs(150))
    print("loss", [round(value, 4) for value in history.values()[::20]])
