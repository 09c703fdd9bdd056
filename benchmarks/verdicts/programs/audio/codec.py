"""Learn a neural audio codec on a GPU; master weights and Adam's state are kept in the host's memory."""

import torch
from codec_parts.master import HostAdam
from torch import nn

device = torch.device("cuda")


class Codec(nn.Module):
    def __init__(self, frame=512, width=1024, code=64):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(frame, width), nn.ELU(), nn.Linear(width, width), nn.ELU(), nn.Linear(width, code)
        )
        self.decoder = nn.Sequential(
            nn.Linear(code, width), nn.ELU(), nn.Linear(width, width), nn.ELU(), nn.Linear(width, frame)
        )

    def forward(self, frames):
        code = self.encoder(frames)
        code = code + (torch.round(code * 8) / 8 - code).detach()
        return self.decoder(code)


def main(steps=200, batch=2048):
    torch.manual_seed(0)
    model = Codec().to(device)
    optimizer = HostAdam(model.parameters(), lr=3e-4)
    audio = torch.randn(batch * 4, 512, device=device).cumsum(1) / 16
    for step in range(steps):
        frames = audio[torch.randint(len(audio), (batch,), device=device)]
        loss = nn.functional.l1_loss(model(frames), frames)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
