"""The benchmark of unequal ranks reckons rightly with processor time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.hybrid import BATCH, Table, _turns


def test_every_way_has_its_turn_in_every_round_and_not_always_the_same() -> None:
    names = ["a", "b", "c"]
    found = list(_turns(names, 4))
    rounds = [found[at : at + 3] for at in range(0, 12, 3)]
    assert all(sorted(one) == names for one in rounds)
    assert len({tuple(one) for one in rounds}) > 1


def test_a_pair_is_as_slow_as_its_slower_rank_and_ranks_apart_add_up() -> None:
    # 24 samples in 1 s, and 8 in 0.5 s of a processor of which it has a third.
    table = Table({"pair": lambda: (20.0, (1.0, 0.5)), "alone": lambda: (30.0, (1.6, 0.0))}, 2, 3.0)
    assert table.rate("pair").tolist() == pytest.approx([BATCH / 1.5] * 2)
    assert table.rate("alone").tolist() == pytest.approx([BATCH / 1.6] * 2)
    assert table.rate("pair", (24, 8)).tolist() == pytest.approx([24 / 1.0 + 8 / 1.5] * 2)
    assert table.wall["pair"].tolist() == [20.0, 20.0]
