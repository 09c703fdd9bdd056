"""Networks of many kinds are trained to the same weights, to the last bit, bare and with their operations counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from observed import Nursery, seen
from sonda.record.spans import Spans

pytest.importorskip("torch")

PARTS = 2


@pytest.fixture(scope="module")
def nursery() -> Nursery:
    return Nursery()


def operations_counted(spans: Spans) -> dict[str, int]:
    """Operations in counted steps, by the name of the phase that they are in."""
    phase, parent = spans.words("name").decoded(), spans.number("parent")
    kind = spans.words("kind").decoded()
    counted: dict[str, int] = {}
    for row in spans.where(kind="op").nonzero()[0]:
        at = row
        while kind[at] not in ("phase", "run"):
            at = parent[at]
        counted[phase[at]] = counted.get(phase[at], 0) + 1
    return counted


def test_a_gradient_with_a_kernel_of_its_own_trains_the_same_weights(nursery: Nursery, tmp_path: Path) -> None:
    """Twenty steps of SGD: what differs in the last bit of the counted step grows."""
    arguments = ("20", "linear_silu_linear", "linear_mish_linear", "channel_shuffle")
    bare = nursery.run("architectures", *arguments, directory=tmp_path / "bare", observe=False)
    observed = nursery.run("architectures", *arguments, directory=tmp_path / "observed", observe=True, stacks=True)
    assert bare.code == 0 and len(bare.output.splitlines()) == 3
    assert observed.output == bare.output
    assert observed.assembly is not None and seen(observed.assembly.spans).counted == 3
    assert observed.assembly.stacks is not None, "stacks were sampled meanwhile"


@pytest.mark.parametrize(
    ("program", "which", "networks"),
    [("architectures", f"0/{PARTS}", 19), ("architectures", f"1/{PARTS}", 18), ("architectures_of_today", "0/1", 13)],
)
def test_weights_after_ten_steps_are_the_same_bits(
    nursery: Nursery, tmp_path: Path, program: str, which: str, networks: int
) -> None:
    bare = nursery.run(program, which, directory=tmp_path / "bare", observe=False)
    observed = nursery.run(program, which, directory=tmp_path / "observed", observe=True)
    assert bare.code == observed.code == 0, observed.output[-2000:]
    trained, watched = (dict(line.split(" ", 1) for line in one.output.splitlines()) for one in (bare, observed))
    assert len(trained) == networks
    assert all(words.endswith(" finite") for words in trained.values())
    assert [name for name in trained if watched[name] != trained[name]] == []
    assert observed.assembly is not None
    # Each has at least one step whose operations were counted, in forward and backward.
    assert seen(observed.assembly.spans).counted >= len(trained)
    counted = operations_counted(observed.assembly.spans)
    assert counted["forward"] > 500 and counted["backward"] > 500 and counted["optimizer"] > 100
