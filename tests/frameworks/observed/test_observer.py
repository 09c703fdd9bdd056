"""Observing inside this process: nothing is kept alive, nothing grows, everything is put back."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from observed import check_structure, seen
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.collector.sampling.schedule import Schedule
from sonda.frameworks.reconstruction.assembly import assemble
from sonda.frameworks.torch.observe.observer import TorchObserver
from sonda.frameworks.torch.observe.overhead import layer_cost

torch = pytest.importorskip("torch")
nn = torch.nn


@contextmanager
def observing(directory: Path, count: bool = False) -> Iterator[TorchObserver]:
    recorder = Recorder(str(directory))
    observer = TorchObserver(recorder, torch, Schedule(count=count))
    observer.install()
    try:
        yield observer
    finally:
        observer.remove()
        recorder.close()


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, size: int = 4) -> None:
    for _ in range(steps):
        loss = model(torch.randn(2, size)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_removing_puts_everything_back(tmp_path: Path) -> None:
    from torch.optim import optimizer
    from torch.utils.data import dataloader

    places = [(nn.Module, "__call__"), (nn.Module, "zero_grad"), (torch.optim.Optimizer, "zero_grad"),
              (torch.optim.Optimizer, "__init__"), (torch.amp.GradScaler, "step"), (torch.amp.GradScaler, "update"),
              (torch.autograd, "backward"), (torch.autograd, "grad"), (dataloader.DataLoader, "__iter__"),
              (dataloader._BaseDataLoaderIter, "__next__")]  # fmt: skip
    before = [vars(owner)[name] for owner, name in places]
    with observing(tmp_path):
        during = [vars(owner)[name] for owner, name in places]
    assert not any(one is other for one, other in zip(before, during, strict=True))
    assert all(vars(owner)[name] is one for (owner, name), one in zip(places, before, strict=True))
    assert not optimizer._global_optimizer_pre_hooks and not optimizer._global_optimizer_post_hooks


@pytest.mark.parametrize("count", [False, True])
def test_no_model_and_no_optimizer_is_kept_alive(tmp_path: Path, count: bool) -> None:
    with observing(tmp_path, count):
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer, 3)
        alive = [weakref.ref(model), weakref.ref(model[0]), weakref.ref(optimizer), weakref.ref(model[0].weight)]
        del model, optimizer
        gc.collect()
        assert [reference() for reference in alive] == [None] * 4


class Keeps(torch.autograd.Function):
    """Tells, by a weak reference, when what it saved for backward is freed."""

    saved: list[weakref.ref]

    @staticmethod
    def forward(ctx, x):
        ctx.kept = Token()
        Keeps.saved.append(weakref.ref(ctx.kept))
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Token:
    pass


class Keeper(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Keeps.apply(x)


def freed(model: nn.Module) -> list[bool]:
    """Whether the graph is there after forward, after backward, and once the loss is gone, without a garbage run."""
    Keeps.saved = []
    gc.disable()
    try:
        loss = model(torch.randn(2, 4)).mean()
        found = [Keeps.saved[0]() is not None]
        loss.backward()
        found.append(Keeps.saved[0]() is not None)
        del loss
        return [*found, Keeps.saved[0]() is not None]
    finally:
        gc.enable()


def test_the_graph_is_freed_when_it_would_have_been(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), Keeper(), nn.Linear(4, 1))
    bare = freed(model)
    assert bare == [True, True, False]
    with observing(tmp_path):
        assert freed(model) == bare


def test_in_place_changes_are_noticed_as_before(tmp_path: Path) -> None:
    def spoil() -> None:
        layer = nn.Sequential(nn.Linear(2, 2), nn.Sigmoid())
        output = layer(torch.ones(1, 2))
        output.add_(1)
        output.sum().backward()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        spoil()
    with observing(tmp_path), pytest.raises(RuntimeError, match="modified by an inplace operation"):
        spoil()


@pytest.mark.slow
def test_ten_thousand_steps_leave_nothing_behind(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    with observing(tmp_path) as observer:
        recorder, layers = observer.recorder, observer.layers

        def held() -> list[int]:
            stream = recorder.stream()
            return [len(recorder._codes), len(recorder.streams), len(layers.codes), len(layers._marks), layers._roots,
                    len(stream.layers), len(stream.phases), len(observer.optimizers._known.values())]  # fmt: skip

        def work(steps: int) -> None:
            train(model, optimizer, steps)
            for _ in range(steps // 10):
                nn.MSELoss()(model(torch.ones(1, 4)), torch.ones(1, 1))

        work(100)
        before = held()
        work(10_000)
        assert held() == before
        recorder.flush()
        assert not recorder.stream().events
        assert len(recorder.stream().hooked) <= 50_001
    spans = assemble(tmp_path, 0, 1 << 62).spans
    assert spans.where(kind="phase", name="backward").sum() == 10_100


def test_a_subclass_of_tensor_does_not_see_the_observer_look(tmp_path: Path) -> None:
    calls: list[str] = []

    class Logged(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            calls.append(str(func))
            return super().__torch_function__(func, types, args, kwargs or {})

    def work() -> list[str]:
        calls.clear()
        model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        model(torch.ones(1, 2).as_subclass(Logged)).sum().backward()
        return [call.split(" at 0x")[0] for call in calls]

    bare = work()
    assert bare
    with observing(tmp_path):
        assert work() == bare


def test_a_backward_over_a_kept_graph_is_seen_twice(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    with observing(tmp_path):
        loss = model(torch.randn(2, 4)).mean()
        loss.backward(retain_graph=True)
        loss.backward()
    spans = assemble(tmp_path, 0, 1 << 62).spans
    check_structure(spans)
    assert seen(spans).backward == {"0": 2, "1": 2}


def test_what_made_the_input_of_a_model_is_no_part_of_it(tmp_path: Path) -> None:
    """Backward of a model's first layer ends where the work on its input begins."""

    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            for _ in range(200):
                gradient = gradient * 1
            return gradient

    model = nn.Linear(4, 1)
    with observing(tmp_path):
        for _ in range(21):
            model(Slow.apply(torch.randn(2, 4, requires_grad=True))).mean().backward()
    spans = assemble(tmp_path, 0, 1 << 62).spans
    backward = spans.number("duration")[spans.where(kind="phase", name="backward")]
    layer = spans.number("duration")[spans.where(kind="layer", direction="backward")]
    assert len(layer) == 21
    # Two hundred operations against three: no clock is needed to tell which is longer, but others may come between.
    assert (layer < backward / 2).sum() > 10


def test_what_a_layer_costs_is_measured_without_touching_the_program(tmp_path: Path) -> None:
    called: list[str] = []
    hook = nn.modules.module.register_module_forward_hook(lambda module, args, result: called.append("hook"))
    try:
        with observing(tmp_path):
            cost = layer_cost(torch)
    finally:
        hook.remove()
    assert 0 < cost < 1e6
    assert not called
