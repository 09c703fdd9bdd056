"""Ranks of imported files: what they say, or their place where two say the same."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sonda.imports.trace.ranks import number_ranks

IN_ORDER = "ranks are numbered in the order of the files"


@pytest.mark.parametrize(
    ("told", "given", "notes"),
    [
        ([3, 1], [3, 1], []),
        ([2, 2, 0], [0, 1, 2], [f"several files say that they are rank 2: {IN_ORDER}"]),
        ([1, None, None], [0, 1, 2], [f"not every file says which rank it is: {IN_ORDER}"]),
        ([None], [0], []),
    ],
)
def test_every_file_has_a_rank_of_its_own(told: list[int | None], given: list[int], notes: list[str]) -> None:
    ranks = [SimpleNamespace(rank=rank) for rank in told]
    assert number_ranks(ranks) == notes  # type: ignore[arg-type]
    assert [rank.rank for rank in ranks] == given
