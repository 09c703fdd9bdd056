"""Client of the merchants' registry, with a local stand-in for the service."""

import json
import socket
import threading
import time

import torch


def _serve(connection, count):
    table = [(number * 7) % 16 for number in range(count)]
    with connection, connection.makefile("rw") as stream:
        for line in stream:
            wanted = json.loads(line)
            time.sleep(0.04)  # way to the service and back
            stream.write(json.dumps([table[number] for number in wanted]) + "\n")
            stream.flush()


class Registry:
    """Risk classes of merchants, asked from the service."""

    def __init__(self, merchants):
        self.merchants = merchants

    def __enter__(self):
        near, far = socket.socketpair()
        threading.Thread(target=_serve, args=(far, self.merchants), daemon=True).start()
        self.connection = near
        self.stream = near.makefile("rw")
        return self

    def __exit__(self, *_):
        self.stream.close()
        self.connection.close()

    def classes(self, merchant):
        self.stream.write(json.dumps(merchant.tolist()) + "\n")
        self.stream.flush()
        return torch.tensor(json.loads(self.stream.readline()))
