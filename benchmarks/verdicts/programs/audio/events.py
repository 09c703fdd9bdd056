"""Detect sound events; clips are mixed and filtered by workers of the loader."""

import torch
from events_parts.clips import Clips
from torch import nn
from torch.utils.data import DataLoader


class EventNet(nn.Module):
    def __init__(self, events=8, width=32):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(1, width, 16, stride=8),
            nn.ReLU(),
            nn.Conv1d(width, width, 8, stride=4),
            nn.ReLU(),
            nn.Conv1d(width, 2 * width, 4, stride=2),
            nn.ReLU(),
        )
        self.out = nn.Linear(2 * width, events)

    def forward(self, clips):
        return self.out(self.layers(clips.unsqueeze(1)).amax(2))


def train(loader, epochs):
    model = EventNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        total = torch.zeros(())
        for clips, events in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(clips), events)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: {total.item() / len(loader):.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    train(DataLoader(Clips(256), batch_size=8, num_workers=2, persistent_workers=True), epochs=2)
