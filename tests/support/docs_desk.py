"""A desk: a directory with everything that the pages of the documentation take for granted."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
from pathlib import Path

import pytest

from command_line import run_command
from docs_commands import REPOSITORY, own_model
from import_nsys_cases import timeline
from sonda.probes.ceilings.processor import load_or_measure

DATA = REPOSITORY / "tests" / "data"

TRAIN = """
import argparse
import torch
words = argparse.ArgumentParser()
words.add_argument("--epochs", type=int, default=1)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
descent = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(4 * words.parse_args().epochs):
    descent.zero_grad()
    torch.nn.functional.cross_entropy(model(torch.rand(4, 8)), torch.zeros(4, dtype=torch.long)).backward()
    descent.step()
"""
MODEL = """
import torch
def build():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(10))
"""
STUDY = """
[study]
name = "my-study"
question = "Do more multipliers pay?"
metrics = ["cycles"]
[workload]
name = "mlp"
on = "sim:maeri-256"
[axes]
batch = [1, 2]
"""


def idx(path: Path, magic: int, shape: tuple[int, ...], content: bytes) -> None:
    path.write_bytes(struct.pack(f">{1 + len(shape)}I", magic, *shape) + content)


def mnist(place: Path) -> None:
    """A folder with MNIST's four files, of a few made-up images."""
    place.mkdir()
    for part, count in (("train", 40), ("t10k", 20)):
        pixels = bytes((7 * pixel) % 256 for pixel in range(count * 784))
        idx(place / f"{part}-images-idx3-ubyte", 2051, (count, 28, 28), pixels)
        idx(place / f"{part}-labels-idx1-ubyte", 2049, (count,), bytes(n % 10 for n in range(count)))


def ceilings(store: Path) -> None:
    """Round ceilings for one and two threads, so that no command measures them: what they are does not matter here."""
    entry = {"flops": {"float32": 1e11}, "dram_bandwidth": 1e10}
    with pytest.MonkeyPatch.context() as patch:  # other tests have real ones
        patch.setenv("XDG_CACHE_HOME", str(store / "cache"))
        load_or_measure(
            store, [1, 2], measure=lambda machine, library, threads: dict.fromkeys(map(str, threads), entry)
        )


def references(path: Path) -> None:
    """Three of every kind of reference run; all of them are repeated by the tests of the accelerators."""
    found: dict[str, list[object]] = {}
    for run in json.loads((DATA / "stonne" / "golden.json").read_text(encoding="utf-8")):
        found.setdefault(run["mode"], []).append(run)
    path.write_text(json.dumps([run for runs in found.values() for run in runs[:3]]), encoding="utf-8")


def laid(place: Path) -> Path:
    """A directory with everything that the pages take for granted: a program, a model, data, files of other tools."""
    ceilings(place / "store")
    (place / "train.py").write_text(TRAIN)
    (place / "model.py").write_text(MODEL)
    (place / "mine.py").write_text(own_model().text)
    (place / "my-study.toml").write_text(STUDY)
    mnist(place / "mnist")
    for words in (
        ("data", "make", "fish", "fish", "--count", "8", "--image", "60x45"),
        ("data", "prepare", "fish", "--image", "32x24"),
    ):
        assert run_command(place, *words).returncode == 0
    for kind in sorted((place / "fish").iterdir())[:2]:
        if kind.is_dir():
            shutil.copytree(next(path for path in kind.rglob("*.png")).parent, place / "photos" / kind.name)
    shutil.copy(DATA / "gpu" / "kineto" / "mlp.json.gz", place / "trace.json.gz")
    shutil.copy(DATA / "gpu" / "ncu" / "small.csv", place / "launches.csv")
    references(place / "golden.json")
    shutil.copytree(DATA / "ranks", place / "traces", ignore=shutil.ignore_patterns("*.py", "*.md"))
    profile = place / "logs" / "plugins" / "profile" / "2026_11_15_13_06_27"
    profile.mkdir(parents=True)
    (profile / "host.xplane.pb").write_bytes(gzip.decompress((DATA / "xplane" / "keras_fit.xplane.pb.gz").read_bytes()))
    timeline(place / "timeline.sqlite")
    (place / "counts.json").write_text(
        '{"counter-value" : "77.0", "unit" : "", "event" : "page-faults", "pcnt-running" : 100.00}\n'
    )
    for tag in ("kept", "another"):
        assert run_command(place, "import", "trace.json.gz", "--tag", tag).returncode == 0
    spare = ("--tag", "7f3a", "--tag", "old", "--tag", "named")  # as help names a run: to be shown, renamed and removed
    assert run_command(place, "import", "launches.csv", *spare).returncode == 0
    return place
