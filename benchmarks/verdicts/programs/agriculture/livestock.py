"""Behaviour of cows from a collar's accelerometer: a temporal convolutional network."""

import os
import tempfile

import torch
from torch import nn

BEHAVIOURS = ("lying", "standing", "grazing", "ruminating", "walking", "drinking")


class Causal(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.pad = nn.ConstantPad1d((2 * dilation, 0), 0.0)
        self.conv = nn.Conv1d(width, 2 * width, 3, dilation=dilation)
        self.mix = nn.Conv1d(width, width, 1)

    def forward(self, x):
        return x + self.mix(nn.functional.glu(self.conv(self.pad(x)), dim=1))


class Collar(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.stem = nn.Conv1d(3, width, 1)
        self.layers = nn.Sequential(*[Causal(width, 2**depth) for depth in range(3)])
        self.table = nn.Embedding(50_000, 128, sparse=True)  # what is known of each animal
        self.known = nn.Linear(128, width)
        self.out = nn.Linear(width, len(BEHAVIOURS))

    def forward(self, motion, cow):
        return self.out(self.layers(self.stem(motion)).mean(2) + self.known(self.table(cow)))


class Keeper:
    """Keeps the state of a training safe from the farm's power cuts."""

    def __init__(self, model, optimizer, every):
        self.model, self.optimizer, self.every = model, optimizer, every
        self.folder = tempfile.TemporaryDirectory(prefix="collar-")

    def after_step(self, step):
        if step % self.every:
            return
        path = os.path.join(self.folder.name, "last.pt")
        with open(path + ".new", "wb") as stream:
            state = {"step": step, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
            torch.save(state, stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(path + ".new", path)


def herd(clips, length=60):
    behaviour = torch.randint(len(BEHAVIOURS), (clips,))
    cow = torch.randint(50_000, (clips,))
    rhythm = torch.sin(torch.arange(length) * (0.1 + 0.15 * behaviour[:, None]))
    return rhythm[:, None] + 0.4 * torch.randn(clips, 3, length), cow, behaviour


def main():
    torch.manual_seed(14)
    motion, cow, behaviour = herd(2048)
    model = Collar()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    keeper = Keeper(model, optimizer, every=1)
    for step in range(1, 61):
        chosen = torch.randint(len(motion), (32,))
        loss = nn.functional.cross_entropy(model(motion[chosen], cow[chosen]), behaviour[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        keeper.after_step(step)
        if step % 20 == 0:
            print(f"{step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
