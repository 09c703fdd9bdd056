"""Next item of a basket; a thread draws baskets while the network learns."""

import threading
from collections import deque

import numpy as np
import torch
from torch import nn

ITEMS = 2000


class Shelf:
    """Hands over baskets drawn by a thread, at most `room` of them in advance."""

    def __init__(self, batch, length, room=1):
        self.batch, self.length, self.room = batch, length, room
        self.rng = np.random.default_rng(17)
        self.queue = deque()
        self.bell = threading.Condition()
        self.open = True
        self.thread = threading.Thread(target=self._fill, daemon=True)
        self.thread.start()

    def _draw(self):
        start = self.rng.integers(0, ITEMS, (self.batch, 1))
        stride = self.rng.integers(1, 4, (self.batch, 1))
        return torch.from_numpy((start + stride * np.arange(self.length)) % ITEMS)

    def _fill(self):
        while self.open:
            with self.bell:
                while len(self.queue) >= self.room and self.open:
                    self.bell.wait(0.06)
                self.queue.append(self._draw())
                self.bell.notify_all()

    def take(self):
        with self.bell:
            while not self.queue:
                self.bell.wait()
            basket = self.queue.popleft()
            return basket

    def close(self):
        self.open = False
        self.thread.join()


class NextItem(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.items = nn.Embedding(ITEMS, width)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(8 * width, width), nn.ReLU())
        self.out = nn.Linear(width, ITEMS)

    def forward(self, baskets):
        return self.out(self.body(self.items(baskets)))


def fit(steps=90):
    torch.manual_seed(1)
    model = NextItem()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    shelf = Shelf(batch=64, length=9)
    for step in range(1, steps + 1):
        baskets = shelf.take()
        loss = nn.functional.cross_entropy(model(baskets[:, :-1]), baskets[:, -1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0:
            print(f"{step:3d}: {loss.item():.3f}")
    shelf.close()


if __name__ == "__main__":
    fit()
