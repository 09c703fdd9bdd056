"""Callbacks of the trainer."""

import torch


class Progress:
    def __init__(self, every):
        self.every = every

    def on_batch_end(self, trainer, logits, loss):
        if trainer.iteration % self.every == 0:
            print(f"iteration {trainer.iteration}: loss {loss.item():.2f}")


class Diversity:
    """How far reconstructions are from their nearest training picture, and how many pictures are anyone's nearest."""

    def __init__(self, reference):
        self.reference = reference
        self.history = []

    @torch.no_grad()
    def on_batch_end(self, trainer, logits, loss):
        distance = torch.cdist(logits.sigmoid(), self.reference)
        nearest = distance.topk(3, dim=1, largest=False)
        coverage = nearest.indices.unique().numel() / len(self.reference)
        self.history.append((nearest.values.mean().item(), coverage))
