"""What observing costs a whole training, as `sonda run -- python train.py` does it: bare and observed, in turns.

A program trains for some hundred steps and prints the processor time of its loop: what recording takes in every step,
and the step that is spent on counting. Programs run one after the other in processes of their own, bare and observed in
turns, on one thread: processor time is what other programs on the machine disturb least. `steps` is the same without
the first tenth of the loop, in which operations are counted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.bar import Bar, at_most, paired_interval

ROUNDS = 9
LOOP = """
import json, time
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
{model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss_of = nn.CrossEntropyLoss()
marks = [time.process_time()]
for step in range({steps}):
    optimizer.zero_grad()
    loss_of(model(x), y).backward()
    optimizer.step()
    if step == {steps} // 10:
        marks.append(time.process_time())
marks.append(time.process_time())
print(json.dumps(marks))
"""
TINY = """
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
x, y = torch.randn(32, 32), torch.randint(10, (32,))
"""
TRANSFORMER = """
layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(100, 128), nn.Linear(128, 100)
        self.encoder = nn.TransformerEncoder(layer, 4)
    def forward(self, tokens):
        return self.head(self.encoder(self.embed(tokens))).flatten(0, 1)
model = Model()
x, y = torch.randint(100, (8, 64)), torch.randint(100, (8 * 64,))
"""
CONVOLUTIONAL = """
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
)
x, y = torch.randn(16, 3, 32, 32), torch.randint(10, (16,))
"""
CASES = {
    "tiny network": (TINY, 3_000, 20.0),
    "small transformer": (TRANSFORMER, 60, 2.0),
    "small convolutional network": (CONVOLUTIONAL, 200, 3.0),
}
"""The model and its input, steps, and the most per cent that observing may add to the loop."""


def run() -> list[Bar]:
    """Measure, print the table, and hold the figures against the bars."""
    print(f"1 thread, processor time of the loop; {ROUNDS} rounds in turns, 95 % bootstrap intervals")
    print(f"{'':30}{'bare ms/step':>14}{'whole loop %':>24}{'steps %':>24}")
    bars = []
    for name, (model, steps, limit) in CASES.items():
        times = _times(LOOP.format(model=model, steps=steps))
        loops = {how: marks[:, 2] - marks[:, 0] for how, marks in times.items()}
        later = {how: marks[:, 2] - marks[:, 1] for how, marks in times.items()}
        whole = paired_interval(100 * (loops["observed"] / loops["bare"] - 1))
        rest = paired_interval(100 * (later["observed"] / later["bare"] - 1))
        each = 1e3 * float(np.median(loops["bare"])) / steps
        print(f"{name:30}{each:14.3f}{whole.text(1):>24}{rest.text(1):>24}")
        bars.append(at_most(f"added to the loop of a {name}", whole, limit, " %"))
    return bars


def _times(program: str) -> dict[str, np.ndarray]:
    """Processor times that the program printed, s: bare and observed, a row for every round."""
    found: dict[str, list[list[float]]] = {"bare": [], "observed": []}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "train.py")
        path.write_text(program, encoding="utf-8")
        bare = [sys.executable, str(path)]
        commands = {"bare": bare, "observed": [sys.executable, "-m", "sonda", "run", "--", *bare]}
        for number in range(ROUNDS):
            for how in ("bare", "observed") if number % 2 else ("observed", "bare"):
                done = subprocess.run(commands[how], capture_output=True, text=True, check=True, cwd=directory)
                line = next(line for line in done.stdout.splitlines() if line.startswith("["))
                found[how].append(json.loads(line))
    return {how: np.array(rows) for how, rows in found.items()}
