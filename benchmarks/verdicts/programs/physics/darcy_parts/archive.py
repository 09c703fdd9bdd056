"""Snapshots, written by a thread so that training goes on meanwhile."""

import threading
import time
from pathlib import Path

import numpy as np


class Archive:
    def __init__(self, folder, pause=0.09):
        self.folder, self.pause = Path(folder), pause
        self.lock = threading.Lock()
        self.pending = []
        self.closing = threading.Event()
        self.thread = threading.Thread(target=self._write, name="archive", daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.closing.set()
        self.thread.join()

    def put(self, step, field):
        with self.lock:
            self.pending.append((step, field.numpy()))

    def _write(self):
        while not self.closing.is_set():
            with self.lock:
                for step, field in self.pending:
                    np.save(self.folder / f"{step:05d}.npy", field)
                self.pending.clear()
                # Gives the disk time to settle.
                time.sleep(self.pause)
            time.sleep(0.001)
