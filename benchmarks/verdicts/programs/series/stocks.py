"""Fit a model of returns while a recorder in the background keeps the portfolio's book."""

import tempfile
import threading
import time
from pathlib import Path

import torch
from torch import nn


class Book:
    """Positions and the newest loss, shared between the training loop and the recorder."""

    def __init__(self):
        self.lock = threading.Lock()
        self.rows = []

    def add(self, row):
        with self.lock:
            self.rows.append(row)


class Recorder(threading.Thread):
    """Writes new rows of the book to a file as long as the run lasts."""

    def __init__(self, book, path):
        super().__init__(daemon=True)
        self.book = book
        self.path = path
        self.done = threading.Event()
        self.written = 0

    def run(self):
        with self.path.open("w") as file:
            while not self.done.is_set():
                with self.book.lock:
                    for row in self.book.rows[self.written :]:
                        file.write(",".join(map(str, row)) + "\n")
                    self.written = len(self.book.rows)
                    file.flush()
                    time.sleep(0.05)
                time.sleep(0.001)


class Returns(nn.Module):
    def __init__(self, assets=30, window=20, width=64):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(assets * window, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(),
            nn.Linear(width, assets),
        )  # fmt: skip

    def forward(self, past):
        return torch.softmax(self.layers(past), dim=1)


def main(folder):
    torch.manual_seed(0)
    returns = 0.01 * torch.randn(5000, 30)
    model = Returns()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    book = Book()
    recorder = Recorder(book, folder / "book.csv")
    recorder.start()
    windows = returns.unfold(0, 20, 1)[:-1]
    for step in range(100):
        day = torch.randint(len(windows), (512,))
        weights = model(windows[day])
        gain = (weights * returns[day + 20]).sum(1)
        loss = gain.std() - gain.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        book.add((step, round(loss.item(), 6)))
    recorder.done.set()
    recorder.join()
    print(f"loss {loss.item():.5f}, {recorder.written} rows written")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
