"""Strategies of TensorFlow: weights are those of one device on the same batches, and a step's inside is seen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import perf_counter_ns as now

import numpy as np
import pytest

from sonda.frameworks.reconstruction.assembly import Assembly, assemble

pytest.importorskip("tensorflow")
PROGRAM = Path(__file__).parent / "programs" / "strategies.py"
SUMS = 1e-13
"""Of weights of about 1 that moved by 1e-2 in three steps: shares are added up in another order than one batch, which
changes the last of 16 digits, some hundred times at most."""
DEEP = 1e-10
"""The same through the 18 layers and batch norms of ResNet-18 on 4 images, which divide by small deviations."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, int]:
    """What the program left, and when it began and ended. Its own process: it divides the processor into two."""
    folder = tmp_path_factory.mktemp("strategies")
    begin = now()
    subprocess.run([sys.executable, str(PROGRAM), str(folder)], check=True)
    return folder, begin, now()


@pytest.fixture(scope="module")
def seen(trained: tuple[Path, int, int]) -> Assembly:
    folder, begin, end = trained
    return assemble(folder / "events", begin, end)


def furthest(folder: Path, one: str, other: str) -> float:
    """The largest difference of any weight or statistic."""
    first, second = (np.load(folder / f"{name}.npz") for name in (one, other))
    assert set(first.files) == set(second.files)
    return max(float(np.abs(first[name] - second[name]).max()) for name in first.files)


@pytest.mark.parametrize("strategy", ["mirrored", "centralstorage"])
@pytest.mark.parametrize("network", ["mlp", "cnn"])
def test_unequal_replicas_learn_what_one_device_learns(
    trained: tuple[Path, int, int], strategy: str, network: str
) -> None:
    assert furthest(trained[0], f"one-{network}", f"{strategy}-{network}") < SUMS


def test_batch_norms_see_their_own_replica(trained: tuple[Path, int, int]) -> None:
    """As if every replica had trained alone and gradients and statistics had been averaged by hand."""
    assert furthest(trained[0], "norms", "mirrored-resnet18") < DEEP


def test_a_step_is_one_function_and_its_inside_is_told_in_steps_of_their_own(seen: Assembly) -> None:
    spans = seen.spans
    names, passes = spans.words("name").decoded(), spans.words("pass").decoded()
    phases = np.flatnonzero(spans.where(kind="phase"))
    assert [names[row] for row in phases if passes[row] == "timed"] == ["data", "fused"] * 4
    inside = ["data", "forward", "loss", "backward", "communicate", "optimizer"]
    assert [names[row] for row in phases if passes[row] == "pieces"] == inside * 5
    lasted = spans.number("duration")
    exchanged = [int(lasted[row]) for row in phases if passes[row] == "pieces" and names[row] == "communicate"]
    # Only while nothing computes: beside the optimizer's updates a step's exchange may be hidden whole.
    assert len(exchanged) == 5 and any(exchanged), "replicas add gradients up"


def test_layers_lie_within_their_steps_and_none_is_missing(seen: Assembly) -> None:
    spans = seen.spans
    passes, kinds = spans.words("pass").decoded(), spans.words("kind").decoded()
    start, lasted = spans.number("start"), spans.number("duration")
    steps = [row for row in range(len(spans)) if kinds[row] == "step" and passes[row] == "pieces"]
    assert len(steps) == 5
    for step in steps:
        end = start[step] + lasted[step]
        inner = [
            row for row in range(len(spans))
            if kinds[row] == "phase" and passes[row] == "pieces" and start[step] <= start[row] < end
        ]  # fmt: skip
        assert sum(int(lasted[row]) for row in inner) <= lasted[step], "every moment counts once"
    paths, directions = spans.words("path").decoded(), spans.words("direction").decoded()
    told = {
        (paths[row], directions[row]) for row in range(len(spans)) if kinds[row] == "layer" and passes[row] == "pieces"
    }
    for path in ("features.0", "features.3", "features.6", "classifier.1"):
        assert {(path, "forward"), (path, "backward")} <= told
    assert any("tells" in note and "of its time apart" in note for note in seen.notes)
