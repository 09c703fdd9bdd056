"""Remove hiss from speech with a small convolutional network."""

import logging
import tempfile
from pathlib import Path

import torch
from torch import nn

log = logging.getLogger("denoise")


class Denoiser(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.encode = nn.Conv1d(1, width, 32, stride=16)
        self.layers = nn.ModuleList(nn.Conv1d(width, width, 3, padding=2**i, dilation=2**i) for i in range(6))
        self.decode = nn.ConvTranspose1d(width, 1, 32, stride=16)

    def forward(self, wave):
        hidden = self.encode(wave)
        for layer in self.layers:
            hidden = hidden + torch.relu(layer(hidden))
        return self.decode(hidden)


def speech(batch, generator):
    time = torch.linspace(0, 1, 4096)
    pitch = 80 + 200 * torch.rand(batch, 1, 1, generator=generator)
    clean = torch.sin(6.283 * pitch * time) * torch.sin(12 * time)
    return clean + 0.2 * torch.randn(batch, 1, 4096, generator=generator), clean


def report(step, model, loss):
    log.info("step %d: loss %.5f", step, loss.item())
    for name, parameter in model.named_parameters():
        log.debug("%s weights %s", name, parameter.data)
        log.debug("%s gradient %s, norm %.5f", name, parameter.grad, parameter.grad.norm())


def main(folder):
    logging.basicConfig(filename=folder / "run.log", level=logging.DEBUG, format="%(asctime)s %(message)s")
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(3)
    model = Denoiser()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(80):
        noisy, clean = speech(16, generator)
        loss = nn.functional.mse_loss(model(noisy), clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(step, model, loss)
    print(f"last loss {loss.item():.5f}, log of {(folder / 'run.log').stat().st_size // 1024} KiB")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
