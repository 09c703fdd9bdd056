"""What ranks of unmodified programs exchange is seen, agrees with PyTorch's own stopwatch, and changes nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import communication_cases as cases
from parallel_ranks import on_ranks
from sonda.frameworks.reconstruction.assembly import assemble


def test_the_wait_for_gradients_under_ddp_is_a_phase_and_is_what_ddp_itself_says(tmp_path: Path) -> None:
    plain = on_ranks(2, cases.wrapped, str(tmp_path), False)
    watched = on_ranks(2, cases.wrapped, str(tmp_path), True)
    assert [one["weights"] for one in plain] == [one["weights"] for one in watched], "to the last bit"
    spans = assemble(tmp_path / "watched", 0, 1 << 62).spans
    rank, duration = spans.number("rank"), spans.number("duration")
    for number, said in enumerate(watched):
        waits = duration[spans.where(kind="phase", name="communicate") & (rank == number)]
        assert len(waits) == cases.STEPS, "one a step, and none where gradients are not exchanged"
        # Ours begins just before DDP's and ends when the gradients are in their places.
        exposed = np.array(said["exposed"][: cases.STEPS - 1])
        assert (waits[:-1] >= exposed).all()
        if number == 0:  # the other rank comes late, so there is something to compare
            # A step that others on the machine disturbed is not the median.
            assert np.median(waits[:-1] / exposed) < 1.5


def test_what_a_program_exchanges_itself_is_seen_where_it_does(tmp_path: Path) -> None:
    on_ranks(2, cases.by_hand, str(tmp_path))
    spans = assemble(tmp_path, 0, 1 << 62).spans
    rank = spans.number("rank")
    gradients = 4  # of two linear layers
    steps = np.flatnonzero(spans.where(kind="step"))
    parent = spans.number("parent")
    calls = np.flatnonzero(spans.where(kind="phase", name="communicate"))
    for number in range(2):
        own = [row for row in steps if rank[row] == number]
        assert [int((parent[calls] == row).sum()) for row in own] == [gradients] * cases.STEPS
        assert (rank[calls] == number).sum() == gradients * cases.STEPS + 1, "and the barrier"
    layers = np.flatnonzero(spans.where(kind="layer", name="Summed") & spans.words("direction").equal("forward"))
    exchanged = spans.metrics["communication:measured"][layers]
    # Both of its exchanges, the second by its wait; the layer does nothing else that takes time.
    assert len(layers) == 2 * cases.STEPS
    assert ((exchanged > 0) & (exchanged <= spans.number("duration")[layers])).all()
