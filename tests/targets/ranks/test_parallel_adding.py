"""Gradients summed in shared memory: every piece once, by one rank, the same bits for all, and nothing overwritten."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from threading import Barrier
from typing import Any

import pytest

from parallel_memory_cases import on_threads
from sonda.frameworks.torch.parallel.shared_memory import SharedMemory, reason_against, shared_bytes
from sonda.record.errors import SondaError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(bool(reason_against(2)), reason=reason_against(2))

from sonda.frameworks.torch.parallel.all_reduce import GradientAdder, GradientPieces  # noqa: E402
from sonda.frameworks.torch.parallel.group import ExchangeMeter  # noqa: E402

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
        pieces = GradientPieces(own, memory)
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

    def work(memory: SharedMemory) -> list[bool]:
        own = [torch.nn.Parameter(torch.zeros(256)) for _ in range(8)]
        pieces = GradientPieces(own, memory)
        for parameter in own:
            pieces.write(parameter, torch.ones(256), (5.0, 4.0))
        sums = [total for _, total in pieces.finish()]
        assert all((total == 2).all() for total in sums)
        # A sum lies where the other's gradient was, so that all can read it.
        mine = [pieces.own_place(parameter).data_ptr() for parameter in own]
        assert [total.data_ptr() not in mine for total in sums] == pieces.summed_here()
        return pieces.summed_here()

    first, second = on_threads(2, work)
    assert first == [True, True, False, True, True, True, True, False]
    assert all(one != other for one, other in zip(first, second, strict=True))


def test_an_optimizer_that_changes_gradients_is_refused() -> None:
    """Its ranks would change the sum of all of them, each once more."""

    def work(memory: SharedMemory) -> str:
        own = parameters()
        pieces = GradientPieces(own, memory)
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
        self.meter = ExchangeMeter()


def test_gradients_that_are_kept_between_steps_are_refused() -> None:
    """What backward adds to them would be added to what others read."""

    def work(memory: SharedMemory) -> str:
        model = torch.nn.Linear(3, 2)
        with closing(GradientAdder(model, _Group(), memory, nullcontext)):  # type: ignore[arg-type]
            model(torch.ones(1, 3)).sum().backward()
            try:
                model(torch.ones(1, 3)).sum().backward()
            except SondaError as error:
                return error.cause
        return ""

    model = torch.nn.Linear(3, 2)
    assert on_threads(2, work, room=shared_bytes(model)) == ["gradients are not set to None between steps"] * 2


def test_backward_leaves_the_sums_as_gradients() -> None:
    def work(memory: SharedMemory) -> list[float]:
        model = torch.nn.Linear(3, 1)
        found: list[float] = []
        with closing(GradientAdder(model, _Group(), memory, nullcontext, lambda: (5, 1))):  # type: ignore[arg-type]
            for _ in range(3):
                model.zero_grad()
                (model(torch.full((1, 3), float(memory.me + 1))).sum()).backward()
                found += model.weight.grad.reshape(-1).tolist() + model.bias.grad.tolist()
        return found

    # Gradients of the weight are the inputs, 1 and 2, of the bias 1 and 1.
    assert on_threads(2, work, room=shared_bytes(torch.nn.Linear(3, 1))) == [[3.0, 3.0, 3.0, 2.0] * 3] * 2


def small() -> Any:
    """Two layers with the same weights every time, whatever other threads draw."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)).double()
    chance = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=chance, dtype=torch.float64))
    return model


@contextmanager
def listening(model: Any, memory: SharedMemory, everybody: Barrier) -> Iterator[None]:
    """Ranks are threads here, and optimizers call what they have in common: nobody may come or go while one steps."""
    with closing(GradientAdder(model, _Group(), memory, nullcontext, lambda: (5, 1))):  # type: ignore[arg-type]
        everybody.wait(60)
        try:
            yield
        finally:
            everybody.wait(60)


def trained(memory: SharedMemory, make: Any, everybody: Barrier, steps: int = 3) -> tuple[Any, list[float]]:
    """A model and its weights after some steps, each rank with inputs of its own."""
    model = small()
    optimizer = make(model.parameters())
    with listening(model, memory, everybody):
        for step in range(steps):
            optimizer.zero_grad()
            (model(torch.full((2, 3), 0.1 * (memory.me + step)).double()) ** 2).sum().backward()
            gradients = [one.grad for one in model.parameters()]
            optimizer.step()
            assert all(one.grad is gradient for one, gradient in zip(model.parameters(), gradients, strict=True))
    return model, [value for one in model.parameters() for value in one.detach().reshape(-1).tolist()]


@pytest.mark.parametrize(("momentum", "common"), [(0.0, True), (0.9, False)])
def test_weights_are_stepped_once_where_the_optimizer_keeps_nothing(momentum: float, common: bool) -> None:
    """A momentum would have to move with whoever steps; then every rank steps its own weights. The same bits either
    way: one process with the losses of both added up gives them."""

    def make(parameters: Any) -> Any:
        return torch.optim.SGD(parameters, lr=0.1, momentum=momentum, weight_decay=0.01)

    everybody = Barrier(2)

    def work(memory: SharedMemory) -> tuple[bool, list[float]]:
        model, weights = trained(memory, make, everybody)
        region = memory.view(0, 0, torch.empty(len(memory._maps[0]), dtype=torch.uint8))
        first = region.data_ptr()
        lie = [first <= one.data_ptr() < first + len(region) for one in model.parameters()]
        return (True in lie, weights) if len(set(lie)) == 1 else (False, [])

    alone = small()
    optimizer = make(alone.parameters())
    for step in range(3):
        optimizer.zero_grad()
        for rank in range(2):
            (alone(torch.full((2, 3), 0.1 * (rank + step)).double()) ** 2).sum().backward()
        optimizer.step()
    expected = [value for one in alone.parameters() for value in one.detach().reshape(-1).tolist()]
    first, second = on_threads(2, work, room=shared_bytes(alone))
    assert first == second
    assert first[0] is common
    assert first[1] == pytest.approx(expected, rel=1e-12)


def test_weights_in_common_are_changed_by_the_optimizer_only() -> None:
    """Every rank would change the same weights, each once more."""

    everybody = Barrier(2)

    def work(memory: SharedMemory) -> list[str]:
        model, said = torch.nn.Linear(3, 1), []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with listening(model, memory, everybody):
            for _ in range(2):
                optimizer.zero_grad()
                model(torch.ones(1, 3)).sum().backward()
                try:
                    optimizer.step()
                except SondaError as error:
                    said.append(error.cause)
                with torch.no_grad():
                    model.weight.clamp_(-1, 1)
        return said

    for said in on_threads(2, work, room=shared_bytes(torch.nn.Linear(3, 1))):
        assert len(said) == 1 and "outside of the optimizer" in said[0]


class _Ways(torch.nn.Module):  # type: ignore[misc]
    """Two layers, of which a forward may use one, or none."""

    def __init__(self) -> None:
        super().__init__()
        self.always, self.one, self.other = (torch.nn.Linear(3, 3) for _ in range(3))

    def forward(self, values: Any, used: str) -> Any:
        values = self.always(values)
        for name in used.split():
            values = getattr(self, name)(values)
        return values.sum()


@pytest.mark.parametrize("used", [("one", "other"), ("one other", ""), ("", "other"), ("one other", "other one")])
def test_ranks_whose_gradients_are_of_different_weights_are_refused(used: tuple[str, str]) -> None:
    """As many of others, more of them, or the same in another order: what lay there before would be added. Nobody waits
    for what does not come."""

    def work(memory: SharedMemory) -> str:
        model = _Ways()
        with closing(GradientAdder(model, _Group(), memory, nullcontext)):  # type: ignore[arg-type]
            try:
                model(torch.ones(1, 3), used[memory.me]).backward()
            except SondaError as error:
                return error.cause
        return ""

    said = on_threads(2, work, room=shared_bytes(_Ways()))
    assert said == ["ranks have gradients of different weights in one step"] * 2


def test_weights_that_no_rank_uses_have_no_gradient() -> None:
    """In one step both layers are used, in the next one of them, and so on; every sum is that of both ranks."""

    def work(memory: SharedMemory) -> list[list[float] | None]:
        model, found = _Ways(), []
        with closing(GradientAdder(model, _Group(), memory, nullcontext)):  # type: ignore[arg-type]
            for used in ("one", "one other", "other", ""):
                model.zero_grad()
                model(torch.full((1, 3), float(memory.me + 1)), used).backward()
                found += [None if one.bias.grad is None else one.bias.grad.tolist() for one in (model.one, model.other)]
                if not used:
                    found.append(model.always.weight.grad[0].tolist())
        return found

    for rank in on_threads(2, work, room=shared_bytes(_Ways())):
        # The gradient of the last bias is 1 of each rank; that of the first weight the input, 1 and 2.
        assert rank[0] == [2.0] * 3 and rank[1] is None
        assert rank[2] is not None and rank[3] == [2.0] * 3
        assert rank[4] is None and rank[5] == [2.0] * 3
        assert rank[6:] == [None, None, [3.0] * 3]
