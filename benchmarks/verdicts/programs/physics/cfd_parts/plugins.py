"""Plugins of the trainer."""

import os
from pathlib import Path

import torch


class Report:
    def __init__(self, every):
        self.every = every

    def on_step(self, trainer):
        if trainer.step % self.every == 0:
            print(f"step {trainer.step}: loss {trainer.average.item():.4f}")


class KeepLast:
    """Keeps the latest state on disk, so that an interrupted run can be resumed."""

    def __init__(self, folder):
        self.path = Path(folder) / "last.pt"

    def on_step(self, trainer):
        content = {
            "step": trainer.step,
            "model": trainer.model.state_dict(),
            "optimizer": trainer.optimizer.state_dict(),
        }
        with self.path.with_suffix(".new").open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        self.path.with_suffix(".new").replace(self.path)
