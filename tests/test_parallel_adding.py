"""Gradients summed in shared memory: every piece once, by one rank, the same bits for all, and nothing overwritten."""

from __future__ import annotations

from contextlib import closing, nullcontext
from typing import Any

import pytest

from sonda.frameworks.parallel.shared_memory import SharedMemory, reason_against, room_for
from sonda.record.errors import SondaError
from test_parallel_memory import on_threads

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(bool(reason_against(2)), reason=reason_against(2))

from sonda.frameworks.parallel.adding import Adding, Pieces  # noqa: E402
from sonda.frameworks.parallel.group import Meter  # noqa: E402

SHAPES = ((7,), (25, 40), (33,), (3, 2, 2, 2))


def parameters() -> list[Any]:
    made = [torch.nn.Parameter(torch.zeros(shape)) for shape in SHAPES]
    made[-1] = torch.nn.Parameter(torch.zeros(SHAPES[-1]).to(memory_format=torch.channels_last))
    return made


@pytest.mark.parametrize(("size", "shares"), [(2, (1, 1)), (2, (30, 2)), (4, (4, 3, 2, 1))])
def test_every_rank_reads_the_same_sums_step_after_step(size: int, shares: tuple[int, ...]) -> None:
    """In single precision the order of summing shows: it is that of ranks, whoever sums."""
    steps = 12
    chance = torch.Generator().manual_seed(0)
    given = [[[torch.randn(shape, generator=chance) for shape in SHAPES] for _ in range(size)] for _ in range(steps)]

    def work(memory: SharedMemory) -> list[list[Any]]:
        own, found = parameters(), []
        pieces = Pieces(own, memory)
        for step in range(steps):
            for parameter, gradient in zip(own, given[step][memory.me], strict=True):
                pieces.write(parameter, gradient.to(memory_format=torch.preserve_format), shares)
            sums = pieces.finish()
            assert [one for one, _ in sums] == own
            found.append([total.clone() for _, total in sums])
            pieces.release()
        return found

    for rank in on_threads(size, work):
        for step in range(steps):
            for number, total in enumerate(rank[step]):
                expected = given[step][0][number].clone()
                for other in range(1, size):
                    expected += given[step][other][number]
                assert torch.equal(total, expected)


def test_ranks_sum_in_proportion_to_their_shares() -> None:
    """Eight pieces for shares of 5 and 4. Summing moves 3 bytes a byte, copying 2, so before the third piece they are
    at 6 and 4: with it at (6 + 3) / 5 or (4 + 3) / 4, and the second has it. By hand it also has the eighth."""

    def work(memory: SharedMemory) -> list[int]:
        own = [torch.nn.Parameter(torch.zeros(256)) for _ in range(8)]
        pieces = Pieces(own, memory)
        for parameter in own:
            pieces.write(parameter, torch.ones(256), (5.0, 4.0))
        given = [torch.full((256,), 2.0) for _ in own]
        places = [total.data_ptr() for _, total in pieces.finish()]
        lie = [pieces.write(one, gradient, (5.0, 4.0)) for one, gradient in zip(own, given, strict=True)]
        # What is summed here stays where it was computed; what others sum lies in this rank's region.
        stayed = [one is gradient for one, gradient in zip(lie, given, strict=True)]
        assert all((total == 4).all() for _, total in pieces.finish())
        mine = [pieces.place(parameter).data_ptr() for parameter in own]
        assert [place in mine for place in places] == stayed
        return stayed

    first, second = on_threads(2, work)
    assert first == [True, True, False, True, True, True, True, False]
    assert all(one != other for one, other in zip(first, second, strict=True))


def test_an_optimizer_that_changes_gradients_is_refused() -> None:
    """Its ranks would change the sum of all of them, each once more."""

    def work(memory: SharedMemory) -> str:
        own = parameters()
        pieces = Pieces(own, memory)
        for parameter in own:
            pieces.write(parameter, torch.ones(parameter.shape), (1, 1))
        for _, total in pieces.finish():
            total.mul_(0.5)
        with pytest.raises(SondaError) as caught:
            pieces.release()
        return caught.value.cause

    assert all("in place" in said for said in on_threads(2, work))


class _Group:
    def __init__(self) -> None:
        self.meter = Meter()


def test_gradients_that_are_kept_between_steps_are_refused() -> None:
    """What backward adds to them would be added to what others read."""

    def work(memory: SharedMemory) -> str:
        model = torch.nn.Linear(3, 2)
        with closing(Adding(model, _Group(), memory, nullcontext)):  # type: ignore[arg-type]
            model(torch.ones(1, 3)).sum().backward()
            try:
                model(torch.ones(1, 3)).sum().backward()
            except SondaError as error:
                return error.cause
        return ""

    model = torch.nn.Linear(3, 2)
    assert on_threads(2, work, room=room_for(model)) == ["gradients are not set to None between steps"] * 2


def test_backward_leaves_the_sums_as_gradients() -> None:
    def work(memory: SharedMemory) -> list[float]:
        model = torch.nn.Linear(3, 1)
        found: list[float] = []
        with closing(Adding(model, _Group(), memory, nullcontext, lambda: (5, 1))):  # type: ignore[arg-type]
            for _ in range(3):
                model.zero_grad()
                (model(torch.full((1, 3), float(memory.me + 1))).sum()).backward()
                found += model.weight.grad.reshape(-1).tolist() + model.bias.grad.tolist()
        return found

    # Gradients of the weight are the inputs, 1 and 2, of the bias 1 and 1.
    assert on_threads(2, work, room=room_for(torch.nn.Linear(3, 1))) == [[3.0, 3.0, 3.0, 2.0] * 3] * 2
