"""The benchmark of unequal ranks reckons rightly with processor time, and asks the kernel for a quota where it may."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.hybrid import BATCH, Table, _turns

from sonda.targets.quota import make_control_group


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


@pytest.mark.parametrize(
    ("told", "place"),
    [("4:memory:/a\n1:cpu,cpuacct:/b/c\n0::/\n", "cpu,cpuacct/b/c"), ("0::/d/e\n", "d/e"), ("0::/\n", "")],
)
def test_a_quota_is_a_group_below_that_of_the_process(told: str, place: str, tmp_path: Path) -> None:
    """On directories that stand for the kernel's: of the older kind by controllers, of the newer all in one."""
    before = tmp_path / place
    before.mkdir(parents=True, exist_ok=True)
    found = make_control_group(7, 1 / 3, tmp_path, told)
    assert found == (before / "sonda-quota-7", before)
    assert (found[0] / "cpu.max").read_text() == "3333 10000"
    assert (found[0] / "cgroup.procs").read_text() == "7"


def test_without_a_group_of_control_there_is_none(tmp_path: Path) -> None:
    assert make_control_group(7, 1 / 3, tmp_path, "4:memory:/a\n") is None
    assert make_control_group(7, 1 / 3, tmp_path / "missing", "0::/\n") is None
