"""Learn genres of music from chroma features, with callbacks."""

import gc

import torch
from torch import nn


class Callback:
    def on_start(self, trainer): ...

    def on_step(self, trainer, loss): ...


class Progress(Callback):
    def __init__(self, every):
        self.every = every

    def on_step(self, trainer, loss):
        if trainer.steps % self.every == 0:
            print(f"step {trainer.steps}: {loss.item():.4f}")


class MemoryGuard(Callback):
    """Keeps memory in check on small machines."""

    def on_step(self, trainer, loss):
        trainer.optimizer.zero_grad(set_to_none=True)
        gc.collect()


def manifest(tracks):
    """What is known of each track, as a catalogue would list it."""
    return [
        {"id": i, "artist": [f"artist {i % 97}"], "span": [i, i + 30], "tags": {"genre": i % 8}} for i in range(tracks)
    ]


class Trainer:
    def __init__(self, model, callbacks):
        self.model = model
        self.callbacks = callbacks
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.steps = 0

    def fit(self, catalogue, features, steps, batch=32):
        for callback in self.callbacks:
            callback.on_start(self)
        generator = torch.Generator().manual_seed(0)
        for _ in range(steps):
            chosen = torch.randint(len(features), (batch,), generator=generator)
            labels = torch.tensor([catalogue[i]["tags"]["genre"] for i in chosen.tolist()])
            loss = nn.functional.cross_entropy(self.model(features[chosen]), labels)
            loss.backward()
            self.optimizer.step()
            self.steps += 1
            for callback in self.callbacks:
                callback.on_step(self, loss)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(12, 64, 5, padding=2), nn.ReLU(), nn.Conv1d(64, 64, 5, padding=2), nn.ReLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 8),
    )  # fmt: skip
    catalogue = manifest(60_000)
    features = torch.randn(2000, 12, 100)
    Trainer(model, [MemoryGuard(), Progress(20)]).fit(catalogue, features, steps=80)
