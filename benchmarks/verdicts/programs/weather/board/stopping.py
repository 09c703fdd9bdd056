"""Stop when held-out data say so."""

import torch


class Patience:
    def __init__(self, x, y, patience=60, every=1):
        self.x, self.y = x, y
        self.patience, self.every = patience, every
        self.best, self.since = float("inf"), 0

    def on_batch_end(self, estimator):
        if estimator.seen % self.every:
            return
        with torch.no_grad():
            loss = estimator.loss(self.x, self.y).item()
        self.since = 0 if loss < self.best else self.since + self.every
        self.best = min(self.best, loss)
        estimator.stop = self.since >= self.patience
        if estimator.seen % 30 == 0:
            print(f"batch {estimator.seen}: held-out loss {loss:.4f}")
