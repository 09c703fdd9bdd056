"""What observing costs a whole training, as `sonda run -- python train.py` does it: bare and observed, in turns.

`observing` times loops, `observing_programs` whole programs, from their start to their end, and their median step, of
programs that are hard to count: 20,000 tiny operations a step, 200 shapes, a last batch that is smaller.

A program trains for some hundred steps and prints the processor time of its loop: what recording takes in every step,
and the step that is spent on counting. Programs run one after the other in processes of their own, bare and observed in
turns, on one thread: processor time is what other programs on the machine disturb least. `steps` is the same without
the first tenth of the loop, in which operations are counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

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
STEPS = """
import json, time
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
times = []
{model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x, y in batches:
    times.append((time.perf_counter(), time.process_time()))
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
times.append((time.perf_counter(), time.process_time()))
print("STEPS", json.dumps(times))
"""
RESNET34 = """
from sonda.workloads.catalogue import describe
task = describe("resnet34", {"batch": "16", "image": "64x48", "channels": "1"}).build("torch", True, 0)
model, made = task.model, task.batches(0)
batches = ((inputs[0], target) for (inputs, target), _ in zip(made, range(30)))
"""
TINY_OPERATIONS = """
class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights, self.head = nn.Parameter(torch.randn(16, 16) * 0.1), nn.Linear(16, 4)
    def forward(self, x):
        state = x[0]
        for i in range(1650):  # 4 operations in forward, 8 in backward
            state = torch.tanh(state @ self.weights + x[i % 8])
        return self.head(state)
model = Cell()
batches = [(torch.randn(8, 4, 16), torch.randint(4, (4,)))] * 40
"""
LENGTHS = (
    TRANSFORMER
    + """
lengths = (torch.randperm(200) + 20).tolist()
batches = [(torch.randint(100, (8, n)), torch.randint(100, (8 * n,))) for n in lengths + lengths]
"""
)
LAST_BATCH = (
    CONVOLUTIONAL
    + """
data = torch.utils.data.TensorDataset(torch.randn(1000, 3, 32, 32), torch.randint(10, (1000,)))
batches = (batch for _ in range(8) for batch in torch.utils.data.DataLoader(data, 32, shuffle=True))
"""
)
PROGRAMS = {
    "ResNet-34 on a CPU": (RESNET34, 1.1, 1.02),
    "20,000 tiny operations a step": (TINY_OPERATIONS, 1.1, 1.1),
    "200 lengths": (LENGTHS, 1.1, 1.1),
    "smaller last batch": (LAST_BATCH, 1.1, 1.1),
}
"""The model and its batches, and the most times as long that the program, and its median step, may take observed."""
PROGRAM_ROUNDS = 5
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


def run_programs() -> list[Bar]:
    """Measure whole programs, print the table, and hold the figures against the bars."""
    print(
        f"1 thread, processor time; {PROGRAM_ROUNDS} rounds in turns, 95 % bootstrap intervals; ratios observed / bare"
    )
    print(f"{'':32}{'bare s':>8}{'program':>22}{'step':>22}{'step, wall':>22}  timed steps, and what Sonda says")
    bars = []
    for name, (model, most_program, most_step) in PROGRAMS.items():
        rounds = _program_pairs(STEPS.format(model=model))
        bare, observed = rounds["bare"], rounds["observed"]
        program, step, wall = (
            paired_interval([with_it[key] / without[key] for with_it, without in zip(observed, bare, strict=True)])
            for key in ("program", "step", "wall")
        )
        seconds = float(np.median([one["program"] for one in bare]))
        print(
            f"{name:32}{seconds:8.1f}{program.text(3):>22}{step.text(3):>22}{wall.text(3):>22}  {observed[-1]['said']}"
        )
        bars.append(at_most(f"whole program, {name}", program, most_program, "x", 3))
        bars.append(at_most(f"median step, {name}", step, most_step, "x", 3))
    return bars


def _program_pairs(program: str) -> dict[str, list[dict[str, Any]]]:
    """Processor seconds of the whole program, and of its median step, with what Sonda says of observing."""
    found: dict[str, list[dict[str, Any]]] = {"bare": [], "observed": []}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "train.py")
        path.write_text(program, encoding="utf-8")
        # The shell's own time is of the program alone, and holds its start and its end.
        bare = ["bash", "-c", f"TIMEFORMAT='TIME %U %S'; time {sys.executable} {path}"]
        commands = {"bare": bare, "observed": [sys.executable, "-m", "sonda", "run", "--", *bare]}
        environment = {**os.environ, "SONDA_HOME": directory}
        for number in range(PROGRAM_ROUNDS):
            for how in ("bare", "observed") if number % 2 else ("observed", "bare"):
                done = subprocess.run(
                    commands[how], capture_output=True, text=True, check=True, cwd=directory, env=environment
                )
                found[how].append(_read_program(done.stdout + done.stderr))
    return found


def _read_program(text: str) -> dict[str, Any]:
    lines = text.splitlines()
    used = next(line for line in lines if line.startswith("TIME ")).split()[1:]
    times = np.array(json.loads(next(line for line in lines if line.startswith("STEPS "))[6:]))
    wall, step = np.median(np.diff(times, axis=0), axis=0)
    said = [line.strip() for line in lines if "observing took" in line or "steps after" in line or "shapes" in line]
    return {"program": sum(map(float, used)), "step": step, "wall": wall, "said": "; ".join(said)}


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
