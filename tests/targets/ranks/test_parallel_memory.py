"""Exchanging through shared memory: what arrives, in which order, and what happens when a rank does not come."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from parallel_memory_cases import on_threads
from sonda.frameworks.torch.parallel import shared_memory
from sonda.frameworks.torch.parallel.shared_memory import SLOT, SharedMemory, reason_against
from sonda.record.errors import SondaError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(bool(reason_against(2)), reason=reason_against(2))


@pytest.mark.parametrize("size", [2, 3])
def test_every_rank_gathers_the_rows_of_all_again_and_again(size: int) -> None:
    rounds = 200

    def work(memory: SharedMemory) -> list[list[list[float]]]:
        return [memory.gather(torch.tensor([memory.me, number, 0.5]).double()).tolist() for number in range(rounds)]

    for found in on_threads(size, work):
        assert found == [[[float(rank), float(number), 0.5] for rank in range(size)] for number in range(rounds)]


def test_a_small_exchange_may_fill_its_slot() -> None:
    def work(memory: SharedMemory) -> float:
        return float(memory.gather(torch.full((SLOT // 8,), float(memory.me + 1)).double()).sum())

    assert on_threads(2, work) == [3 * SLOT / 8] * 2


@pytest.mark.parametrize("size", [2, 4])
def test_pieces_of_gradients_are_summed_in_the_order_of_ranks(size: int) -> None:
    """In single precision the order shows: all ranks must get the same bits."""
    steps, lengths = 20, (7, 1000, 33)
    chance = torch.Generator().manual_seed(0)
    given = torch.randn(steps, len(lengths), size, 1000, generator=chance)

    def work(memory: SharedMemory) -> list[list[Any]]:
        found = []
        for step in range(steps):
            pieces = [given[step, piece, memory.me, :length].clone() for piece, length in enumerate(lengths)]
            written = [memory.write(values) for values in pieces]
            for values, (at, number) in zip(pieces, written, strict=True):
                memory.add(values, at, number)
            memory.end_step()
            found.append(pieces)
        return found

    wanted = [[given[step, piece, :, :length] for piece, length in enumerate(lengths)] for step in range(steps)]
    for rank in on_threads(size, work, room=1 << 14):
        for step in range(steps):
            for found, rows in zip(rank[step], wanted[step], strict=True):
                expected = rows[0].clone()
                for row in rows[1:]:
                    expected += row
                assert torch.equal(found, expected)


def test_a_rank_that_waits_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that the second rank moves, once the first has begun to wait."""
    waits, clock = threading.Event(), [5.0]

    def now() -> float:
        moment = clock[0]
        waits.set()
        return moment

    monkeypatch.setattr(shared_memory, "monotonic", now)

    def work(memory: SharedMemory) -> float:
        if memory.me:
            assert waits.wait(300)
            clock[0] = 5.25
        memory.gather(torch.zeros(1))
        return memory.take_waited()

    assert on_threads(2, work) == [0.25, 0.0]


def test_a_rank_that_never_comes_is_named() -> None:
    def work(memory: SharedMemory) -> str:
        if memory.me == 1:
            return ""
        with pytest.raises(TimeoutError) as caught:
            memory.gather(torch.zeros(1))
        return str(caught.value)

    assert on_threads(2, work, timeout_s=0.1)[0] == "timed out after 0.1 s waiting for rank 1"


def test_more_numbers_than_fit_are_refused_before_anything_is_written() -> None:
    """A batch norm of 20,000 channels in double precision: what is compiled would write beyond its slot."""

    def work(memory: SharedMemory) -> str:
        kind = np.dtype(np.float64)
        assert len(memory.slots(kind, SLOT // 8)) == 2
        with pytest.raises(SondaError) as caught:
            memory.slots(kind, 40_001)
        return str(caught.value)

    assert set(on_threads(2, work)) == {
        "40,001 numbers of float64 are too many for one exchange through memory; use @backend=gloo"
    }
