"""Forwards of an inference that compute what one just before has computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from observed import PROGRAMS, Nursery

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def nursery() -> Nursery:
    return Nursery()


def observe(nursery: Nursery, folder: Path, how: str) -> dict[str, Any]:
    bare = nursery.run("answering", how, directory=folder / "bare", observe=False)
    seen = nursery.run("answering", how, directory=folder / "seen", observe=True)
    assert (seen.code, seen.output) == (bare.code, bare.output), "the same numbers"
    assert seen.code == 0 and seen.assembly is not None
    return seen.assembly.repeated_forwards


def number_of(words: str) -> int:
    lines = (PROGRAMS / "answering.py").read_text().splitlines()
    (number,) = [at for at, line in enumerate(lines, 1) if words in line and line.endswith("# again")]
    return number


@pytest.mark.parametrize(
    ("how", "words", "least", "most"),
    [("ask_twice", "self.scores.max", 0.35, 0.5), ("decode", "encoder(x", 0.25, 0.375)],
)
def test_a_forward_that_is_computed_again(
    nursery: Nursery, tmp_path: Path, how: str, words: str, least: float, most: float
) -> None:
    """Two forwards a batch of which one repeats; eight of which three do. Forwards of counted steps are left out."""
    seen = observe(nursery, tmp_path, how)
    (forward,) = seen["forwards"]
    assert forward["line"].endswith(f"answering.py:{number_of(words)}")
    assert least <= forward["times"] / seen["looked"] <= most
    assert 0 < forward["ns"] < seen["lasted"]


@pytest.mark.parametrize("how", ["ask_once", "measure", "sample"])
def test_forwards_that_are_wanted(nursery: Nursery, tmp_path: Path, how: str) -> None:
    """Different batches; a loop that measures one; dropout that is sampled."""
    assert observe(nursery, tmp_path, how) == {}


def test_epochs_over_few_batches_are_wanted(nursery: Nursery, tmp_path: Path) -> None:
    """The second epoch is the first that repeats one; from then on every forward does."""
    seen = observe(nursery, tmp_path, "measure_epochs")
    assert sum(forward["times"] for forward in seen.get("forwards", ())) <= 4
