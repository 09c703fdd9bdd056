"""Session-based recommendation with a GRU over clicked items."""

import torch
from session_gru_parts.repro import make_reproducible
from torch import nn


class SessionModel(nn.Module):
    def __init__(self, items, width=192, hidden=384):
        super().__init__()
        self.items = nn.Embedding(items, width)
        self.gru = nn.GRU(width, hidden, batch_first=True)
        self.out = nn.Sequential(nn.Linear(hidden, 512), nn.ReLU(), nn.Linear(512, items))

    def forward(self, clicks):
        states, _ = self.gru(self.items(clicks))
        return self.out(states[:, -1])


def sessions(count, length, items):
    start = torch.randint(items, (count, 1))
    stride = torch.randint(1, 4, (count, 1))
    return (start + stride * torch.arange(length + 1)) % items


def main():
    make_reproducible(33)
    items = 2000
    data = sessions(128 * 40, 12, items)
    model = SessionModel(items)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    hits = 0
    for step, batch in enumerate(data.split(128), start=1):
        scores = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(scores, batch[:, -1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hits += (scores.topk(20, dim=1).indices == batch[:, -1:]).sum().item()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f} recall@20 {hits / (step * 128):.4f}")


if __name__ == "__main__":
    main()
