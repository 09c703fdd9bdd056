"""The same weights again: a training with `--deterministic`, twice, and once more with the program killed in between.

By the command itself, on the first GPU, else on one thread of the processor. Beside it the same without the option: how
much that is faster, and whether it gives the same weights anyway.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.bar import Bar

EPOCHS = 4
ON_GPU = ["resnet34", "--batch", "64", "--images", "200", "--on", "cuda:0"]
ON_PROCESSOR = ["resnet18", "--batch", "16", "--images", "12", "--on", "cpu/1"]
TWICE = 2
DEADLINE_S = 300


def run() -> list[Bar]:
    """Train, compare files of weights byte by byte, and say what it costs."""
    from sonda.targets.target import has_gpu

    words = [*(ON_GPU if has_gpu() else ON_PROCESSOR), "--image", "64x48", "--train", "--epochs", str(EPOCHS)]
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        turns = [(_train(home, words), _train(home, [*words, "--deterministic"])) for _ in range(TWICE)]
        killed = _killed(home, [*words, "--deterministic"])
    usual, fixed = ([turn[which] for turn in turns] for which in (0, 1))
    # The fastest epoch of each: a training is short, and others may use the machine.
    slower = min(map(min, (times for _, times in fixed))) / min(map(min, (times for _, times in usual)))
    print(f"sonda run {' '.join(words)}")
    print(f"  as usual:        weights {'the same' if _alike(usual) else 'different'} in {TWICE} trainings")
    print(f"  --deterministic: weights {'the same' if _alike(fixed) else 'different'}, an epoch takes {slower:.3f}x")
    return [
        Bar(f"--deterministic: weights of {TWICE} trainings", *_verdict(_alike(fixed))),
        Bar(f"--deterministic: killed after epoch {killed[2]} and gone on", *_verdict(killed[0] == fixed[0][0])),
    ]


def _alike(trainings: list[tuple[str, list[float]]]) -> bool:
    return len({digest for digest, _ in trainings}) == 1


def _verdict(same: bool) -> tuple[str, str]:
    return ("the same bits", "PASS") if same else ("different", "FAIL")


def _command(words: list[str]) -> list[str]:
    return [sys.executable, "-m", "sonda", "run", *words, "--json"]


def _train(home: Path, words: list[str]) -> tuple[str, list[float]]:
    """SHA-256 of the final weights, and the seconds of every epoch of training but the first."""
    from sonda.record.store import Store

    environment = {**os.environ, "SONDA_HOME": str(home)}
    subprocess.run(_command(words), check=True, stdout=subprocess.DEVNULL, env=environment, timeout=DEADLINE_S)
    found = Store(home).one("last")
    spans = found.spans
    rows = spans.where(kind="epoch", name="train") & (spans.number("call") > 0)
    weights = found.directory / found.info.workload.training.weights
    return hashlib.sha256(weights.read_bytes()).hexdigest(), (spans.number("duration")[rows] / 1e9).tolist()


def _killed(home: Path, words: list[str]) -> tuple[str, list[float], int]:
    """The same, by a command that is killed when its first checkpoint is there and started again; and epochs kept."""
    process = subprocess.Popen(
        _command(words),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "SONDA_HOME": str(home)},
    )
    limit = time.monotonic() + DEADLINE_S
    try:
        while not (kept := sorted(home.glob("checkpoints/*/epoch-?????"))):
            if process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError("the training ended without a checkpoint")
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    done = int(kept[-1].name[-5:])
    return *_train(home, words), done
