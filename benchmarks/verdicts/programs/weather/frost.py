"""Will there be frost tomorrow? A classifier with early stopping, in the manner of a scikit-learn estimator."""

import torch
from board.stopping import Patience
from torch import nn


class FrostClassifier:
    def __init__(self, inputs, width=320, lr=1e-3, max_steps=150, batch=256, callbacks=()):
        self.net = nn.Sequential(
            nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=lr)
        self.max_steps, self.batch = max_steps, batch
        self.callbacks = callbacks
        self.stop = False

    def decision(self, x):
        return self.net(x).squeeze(1)

    def loss(self, x, y):
        return nn.functional.binary_cross_entropy_with_logits(self.decision(x), y)

    def fit(self, x, y):
        self.seen = 0
        while self.seen < self.max_steps and not self.stop:
            rows = torch.randint(len(x), (self.batch,))
            loss = self.loss(x[rows], y[rows])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.seen += 1
            for callback in self.callbacks:
                callback.on_batch_end(self)
        return self


def stations(days, inputs=96):
    x = torch.randn(days, inputs)
    cold = x[:, :8].sum(1) + 0.5 * x[:, 8] * x[:, 9] + 0.4 * torch.randn(days)
    return x, (cold < -1).float()


if __name__ == "__main__":
    torch.manual_seed(15)
    train, held = stations(20_000), stations(6_000)
    patience = Patience(*held)
    FrostClassifier(96, callbacks=[patience]).fit(*train)
    print(f"best held-out loss {patience.best:.4f}")
