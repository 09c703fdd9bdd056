"""Passages and questions, fetched by a thread of their own."""

import threading
import time

import torch


class PassageStore:
    def __init__(self, batch, length):
        self.batch = batch
        self.length = length
        self.generator = torch.Generator().manual_seed(23)
        self.ready = None
        self.wanted = threading.Event()
        self.closed = False
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def __enter__(self):
        self.thread.start()
        self.wanted.set()
        return self

    def __exit__(self, *_):
        self.closed = True
        self.wanted.set()
        self.thread.join()

    def make(self):
        passage = torch.randint(1, 5000, (self.batch, self.length), generator=self.generator)
        start = torch.randint(self.length - 8, (self.batch,), generator=self.generator)
        question = passage.gather(1, start[:, None] + torch.arange(6))
        return passage, question, start, start + 6

    def serve(self):
        while True:
            self.wanted.wait()
            self.wanted.clear()
            if self.closed:
                return
            self.ready = self.make()

    def fetch(self):
        while True:
            time.sleep(0.05)
            if self.ready is not None:
                batch, self.ready = self.ready, None
                self.wanted.set()
                return batch
