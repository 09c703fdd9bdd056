"""The trail of what a model was trained on, as the clinic's rules demand."""

import subprocess
import sys

SEAL = "import hashlib, sys; sys.stdout.write(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"


class Trail:
    """Keeps a seal over the numbers of the patients in each batch; sealing is a tool of its own."""

    def __init__(self):
        self.entries = []

    def note(self, step, patients):
        seal = subprocess.run(
            [sys.executable, "-c", SEAL], input=patients.numpy().tobytes(), capture_output=True, check=True
        )
        self.entries.append((step, seal.stdout.decode()))
