"""Live tensor memory with sizes known by hand."""

from __future__ import annotations

import gc
import threading
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from sonda.frameworks.torch.observe.counting.memory import LiveTensors

torch.set_num_threads(1)


class Showing(TorchDispatchMode):
    """Shows every result of every operation to a tracker."""

    def __init__(self, live: LiveTensors) -> None:
        super().__init__()
        self.live = live
        self.owner: Hashable = "none"

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, list | tuple) else [out]:
            if isinstance(tensor, Tensor):
                self.live.track(tensor, self.owner)
        return out


def test_a_storage_counts_while_any_tensor_holds_it() -> None:
    live = LiveTensors()
    tensor = torch.zeros(100)
    live.track(tensor, "a")
    view = tensor.view(10, 10)[2:]
    live.track(view, "b")
    assert live.current == 400
    assert live.bytes_by_owner() == {"a": 400}
    del tensor
    gc.collect()
    assert live.current == 400
    del view
    assert live.current == 0
    assert live.bytes_by_owner() == {}
    assert live.peak == 400


def test_the_peak_is_the_most_alive_at_once_and_can_begin_again() -> None:
    live = LiveTensors()
    kept = torch.zeros(10)
    live.track(kept, "kept")
    for _ in range(5):
        passing = torch.zeros(1000)
        live.track(passing, "passing")
        del passing
    assert live.peak == 40 + 4000
    assert live.current == 40
    live.reset_peak()
    assert live.peak == 40


def test_tracking_keeps_nothing_alive_and_the_saved_activation_does() -> None:
    live = LiveTensors()
    x = torch.randn(8, 8, requires_grad=True)
    y = torch.tanh(x)  # backward needs the result
    z = y + 1  # backward needs nothing
    live.track(y, "tanh")
    live.track(z, "add")
    loss = z.sum()
    del y, z
    assert live.bytes_by_owner() == {"tanh": 256}
    loss.backward()
    assert live.current == 0


def test_a_chain_of_layers_holds_its_saved_outputs() -> None:
    live = LiveTensors()
    layers = [nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8), nn.ReLU()]
    x = torch.randn(4, 16)
    live.adopt([*(p for layer in layers for p in layer.parameters()), x])
    parameters = 4 * (16 * 32 + 32 + 32 * 8 + 8)
    assert live.bytes_by_owner() == {"model": parameters + 4 * 4 * 16}
    with Showing(live) as showing:
        hidden = x
        for number, layer in enumerate(layers):
            showing.owner = number
            hidden = layer(hidden)
    held = live.bytes_by_owner()
    # A linear layer's output is freed (relu keeps its own result); both relu outputs are saved for backward.
    assert held == {"model": parameters + 256, 1: 4 * 4 * 32, 3: 4 * 4 * 8}
    # The most at once: the first relu's input and output together (the second's are a quarter of that).
    assert live.peak == parameters + 256 + 2 * (4 * 4 * 32)
    hidden.sum().backward()
    del hidden
    assert live.bytes_by_owner() == {"model": parameters + 256}


def test_a_resized_storage_takes_its_new_size() -> None:
    live = LiveTensors()
    tensor = torch.zeros(10)
    live.track(tensor, "a")
    tensor.resize_(100)
    live.track(tensor, "later")
    assert live.bytes_by_owner() == {"a": 400}
    tensor.untyped_storage().resize_(0)
    live.track(tensor, "later")
    assert live.current == 0
    assert live.peak == 400
    del tensor
    assert live.current == 0


def test_an_address_used_again_is_a_new_storage() -> None:
    live = LiveTensors()
    for number in range(1000):
        live.track(torch.empty(4), number)
    assert live.current == 0
    assert live.peak == 16


def test_sparse_tensors_count_indices_and_values() -> None:
    live = LiveTensors()
    sparse = torch.sparse_coo_tensor(torch.tensor([[1, 3]]), torch.randn(2, 5), (10, 5))
    live.track(sparse, "grad")
    assert live.current == 2 * 8 + 10 * 4
    del sparse
    assert live.current == 0


def test_tensors_without_memory_of_their_own_are_passed_over() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    class Wrapped(Tensor):
        @staticmethod
        def __new__(cls, inner: Tensor) -> Wrapped:
            return Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise AssertionError("observing must start no operation")

        __torch_function__ = torch._C._disabled_torch_function_impl

    with FakeTensorMode():
        fake = torch.zeros(10)
    opaque = torch.randn(4, 4).to_mkldnn() if torch.backends.mkldnn.is_available() else torch.zeros(0)
    compressed = torch.eye(3).to_sparse_csr()
    live = LiveTensors()
    for tensor in (torch.empty(10, device="meta"), fake, Wrapped(torch.zeros(3)), opaque, compressed):
        live.track(tensor, "none")
    assert live.current == 0


def test_threads_may_make_and_free_tensors_together() -> None:
    live = LiveTensors()
    kept: list[Tensor] = []

    def work(number: int) -> None:
        for turn in range(300):
            tensor = torch.empty(10 + number)
            live.track(tensor, number)
            if turn == 0:
                kept.append(tensor)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert live.bytes_by_owner() == {number: 4 * (10 + number) for number in range(4)}
    kept.clear()
    assert live.current == 0
