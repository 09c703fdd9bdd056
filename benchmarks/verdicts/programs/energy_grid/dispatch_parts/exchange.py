"""An exchange that collects the bids of its members and clears them together."""

import queue
import threading
import time

import torch


class Exchange:
    def __init__(self, plants, window=0.07):
        self.window = window
        self.costs = torch.linspace(0.2, 2.0, plants)
        self.orders, self.results = queue.Queue(), queue.Queue()
        self.clerk = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self):
        self.clerk.start()
        return self

    def __exit__(self, *error):
        self.orders.put(None)
        self.clerk.join()

    def clear(self, state, bids):
        """Profit of each scenario once the round is closed."""
        self.orders.put((state, bids))
        return self.results.get()

    def _serve(self):
        while (order := self.orders.get()) is not None:
            book = [order, *self._gather(time.monotonic() + self.window)]
            for state, bids in book:
                self.results.put(self._settle(state, bids))

    def _gather(self, end):
        others = []
        while (left := end - time.monotonic()) > 0:
            try:
                others.append(self.orders.get(timeout=left))
            except queue.Empty:
                break
        return others

    def _settle(self, state, bids):
        price = bids.median(dim=1, keepdim=True).values + 0.1 * state[:, :1]
        accepted = (bids <= price).float()
        return (accepted * (price - self.costs)).sum(dim=1)
