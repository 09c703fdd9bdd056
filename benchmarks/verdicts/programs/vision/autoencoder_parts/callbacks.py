"""Callbacks for the training loop."""

from pathlib import Path

import torch


class History:
    """Keeps the losses."""

    def __init__(self):
        self.losses = []

    def after_step(self, loop, loss):
        self.losses.append(loss.detach())

    def values(self):
        return torch.stack(self.losses).tolist()


class Checkpoint:
    """Keeps the newest weights and the optimizer's state on disk, so that a run can be taken up again."""

    def __init__(self, folder, period=1):
        self.path = Path(folder) / "last.pt"
        self.period = period

    def after_step(self, loop, loss):
        if loop.step % self.period:
            return
        state = {"step": loop.step, "model": loop.model.state_dict(), "optimizer": loop.optimizer.state_dict()}
        partial = self.path.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(self.path)
