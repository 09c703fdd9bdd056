"""All-reduce of gradients in shared memory: each is written at most once, summed once, and read by all in place.

One rank sums each piece. The bytes to be moved are divided by the ranks' shares of the batch, which say how fast each
rank is. As soon as backward has computed a gradient, it is copied to its rank's region for the rank that sums it. The
summing rank reads its own gradient where it was computed, because nobody else reads that one. All optimizers then read
the same sums, so nothing is copied back and all ranks have the same bits. Where the optimizer is stateless, the rank
that sums a gradient also takes the step (`weights.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sonda.frameworks.torch.parallel.group import Communicator, Waiting, hide_from_counter
from sonda.frameworks.torch.parallel.shared_memory import GRADIENTS, RELEASED, ROOM, SUMMED, SharedMemory
from sonda.frameworks.torch.parallel.weights import CommonWeights, is_stateless
from sonda.record.errors import SondaError

CACHE_LINE = 64
"""Bytes of a cache line; every piece begins at one."""
SUMMING, COPYING, STEPPING = 3, 2, 3
"""Bytes moved for each byte of a piece. The rank that sums reads two and writes one. Each of the others reads one and
writes one. The rank that takes the optimizer's step for all reads two and writes one."""


class GradientPiece:
    """One gradient: its bytes, and its place in the region of every rank, as tensors shaped like the parameter."""

    def __init__(self, number: int, parameter: Any, at: int, memory: SharedMemory) -> None:
        self.number, self.parameter = number, parameter
        self.bytes = (parameter.numel() * parameter.element_size() + CACHE_LINE - 1) & -CACHE_LINE
        self.places = [_place(memory, rank, at, parameter) for rank in range(memory.size)]
        self.owner = 0
        """The rank that sums it in this step."""
        self.own: Any = None
        """This rank's gradient, until this rank has summed the piece; None otherwise."""
        self.version = 0
        """Version of the sum when it was handed to this rank's optimizer."""

    @property
    def sum(self) -> Any:
        """The tensor that takes the sum: the place of one of the first two gradients, the one that is read from its
        place. Writing to memory that was just read costs less than writing elsewhere."""
        return self.places[1 if self.owner == 0 else 0]


class GradientPieces:
    """The gradients of one step after another. All ranks must write the same gradients in the same order. A step may
    leave out parameters that it does not use."""

    def __init__(self, parameters: Iterable[Any], memory: SharedMemory) -> None:
        self.memory = memory
        self.owner_bytes = SUMMING
        """Bytes that the owner of a piece moves for each byte of it."""
        self._by_parameter: dict[int, GradientPiece] = {}
        at = ROOM
        for number, parameter in enumerate(parameters):
            piece = self._by_parameter[id(parameter)] = GradientPiece(number, parameter, at, memory)
            at += piece.bytes
        self._written: list[GradientPiece] = []
        self._to_sum: deque[tuple[GradientPiece, int]] = deque()
        """Pieces that this rank has to sum, each with the value of `GRADIENTS` at which all ranks have written it."""
        self._load = [0.0] * memory.size
        """Bytes that each rank has moved in this step."""
        self._last_step: list[GradientPiece] = []
        """Pieces of the last step, whose sums this rank's optimizer may still read."""

    @property
    def empty(self) -> bool:
        """Whether this step has written nothing yet."""
        return not self._written

    def write(self, parameter: Any, gradient: Any, shares: Sequence[float]) -> Any:
        """Write a gradient, and sum the pieces of this rank that all ranks have written. Returns the gradient's tensor:
        its place in shared memory, or `gradient` itself where this rank will sum it."""
        memory = self.memory
        if not self._written:
            self.release()
            memory.wait(RELEASED, memory.own_count(RELEASED))
        piece = self._by_parameter[id(parameter)]
        loads = [
            (load + self.owner_bytes * piece.bytes) / share for load, share in zip(self._load, shares, strict=True)
        ]
        piece.owner = loads.index(min(loads))
        self._load = [
            load + (self.owner_bytes if rank == piece.owner else COPYING) * piece.bytes
            for rank, load in enumerate(self._load)
        ]
        self._written.append(piece)
        written = gradient
        if piece.owner == memory.me:
            piece.own = gradient
            self._to_sum.append((piece, memory.announce(GRADIENTS)))
        else:
            written = self.own_place(parameter).copy_(gradient)
            memory.announce(GRADIENTS)
        while self._to_sum and memory.all_reached(GRADIENTS, self._to_sum[0][1]):
            self._sum(self._to_sum.popleft()[0])
        return written

    def finish(self) -> list[tuple[Any, Any]]:
        """Wait for all sums of this step. Returns every parameter that was written, with the sum of its gradients.

        Raises SondaError where ranks have written gradients of different parameters: the sums are wrong then.
        """
        memory = self.memory
        if missing := len(self._by_parameter) - len(self._written):
            memory.announce(GRADIENTS, missing)  # so that nobody waits for gradients that will not come
        while self._to_sum:
            piece, number = self._to_sum.popleft()
            memory.wait(GRADIENTS, number)
            self._sum(piece)
        memory.publish(hash(tuple(piece.number for piece in self._written)))
        memory.wait(SUMMED, memory.announce(SUMMED))
        if len(set(memory.published())) > 1:
            raise SondaError(
                "ranks have gradients of different weights in one step",
                "use a model that uses the same weights whatever its samples are",
            )
        self._last_step, self._written, self._load = self._written, [], [0.0] * memory.size
        for piece in self._last_step:
            piece.version = piece.sum._version
        return [(piece.parameter, piece.sum) for piece in self._last_step]

    def release(self) -> None:
        """Give up the sums of the last step. Raises SondaError where they were changed in place."""
        if not self._last_step:
            return
        changed = any(piece.sum._version != piece.version for piece in self._last_step)
        self._last_step = []
        self.memory.announce(RELEASED)
        if changed:
            raise SondaError(
                "the optimizer changes gradients in place, which ranks that share their memory have in common",
                "use @backend=gloo",
            )

    def own_place(self, parameter: Any) -> Any:
        """This rank's place for the parameter's gradient; it may hold the sum."""
        return self._by_parameter[id(parameter)].places[self.memory.me]

    def holds(self, parameter: Any) -> bool:
        """Whether this parameter has a piece here."""
        piece = self._by_parameter.get(id(parameter))
        return piece is not None and piece.parameter is parameter

    def summed_here(self) -> list[bool]:
        """For every parameter, in order: whether this rank summed its gradient in the last step."""
        return [piece.owner == self.memory.me for piece in self._by_parameter.values()]

    def common_weights(self, optimizer: Any) -> CommonWeights | None:
        """Move the weights to memory that all ranks share. All ranks must call this together.

        Returns None where the optimizer does not have all parameters, or where the memory for weights is in use.
        """
        memory = self.memory
        own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        if memory.weights_at is None or not own.issuperset(self._by_parameter):
            return None
        at, memory.weights_at = memory.weights_at, None
        places = []
        for piece in self._by_parameter.values():
            places.append(_place(memory, 0, at, piece.parameter))
            at += piece.bytes
        self.owner_bytes = SUMMING + STEPPING
        return CommonWeights([piece.parameter for piece in self._by_parameter.values()], places, memory)

    def is_in_shared_memory(self, parameter: Any) -> bool:
        """Whether the parameter's gradient is still in a shared place, where backward would add to what others read."""
        address = parameter.grad.data_ptr()
        return any(place.data_ptr() == address for place in self._by_parameter[id(parameter)].places)

    def _sum(self, piece: GradientPiece) -> None:
        """Sum a piece in the order of ranks, so that every rank would get the same bits."""
        import torch

        first, second, *rest = (
            piece.own if rank == self.memory.me else place for rank, place in enumerate(piece.places)
        )
        torch.add(first, second, out=piece.sum)
        for gradient in rest:
            piece.sum.add_(gradient)
        piece.own = None


class GradientAdder:
    """Sums the gradients of a model while backward runs. The time spent waiting for other ranks is metered."""

    def __init__(
        self,
        model: Any,
        group: Communicator,
        memory: SharedMemory,
        waiting: Waiting,
        shares: Callable[[], Sequence[float]] | None = None,
    ) -> None:
        """`shares()` gives the shares of the batch in force, the same on all ranks; by default they are equal."""
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        self.group, self.waiting = group, waiting
        self.shares = shares or (lambda: (1.0,) * memory.size)
        wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.pieces = GradientPieces(wanted, memory)
        self._hooks = [parameter.register_post_accumulate_grad_hook(self._write_gradient) for parameter in wanted]
        self._hooks.append(register_optimizer_step_pre_hook(self._before_step))
        self._hooks.append(register_optimizer_step_post_hook(self._after_step))
        self._weights: CommonWeights | None = None
        self._decided = False
        """Whether the first step has decided if ranks share their weights."""

    def close(self) -> None:
        """Remove all hooks, those on the process's optimizers too."""
        for hook in self._hooks:
            hook.remove()

    def _uses_sums(self, optimizer: Any) -> bool:
        """Whether an optimizer has parameters of this model. Hooks are called for every optimizer of the process."""
        return any(self.pieces.holds(parameter) for group in optimizer.param_groups for parameter in group["params"])

    def _before_step(self, optimizer: Any, arguments: Any, named: Any) -> None:
        if not self._uses_sums(optimizer):
            return
        plain = is_stateless(optimizer, arguments, named)
        with hide_from_counter():
            if not self._decided:
                self._decided = True
                self._weights = self.pieces.common_weights(optimizer) if plain else None
            if self._weights is None:
                return
            if not plain:
                raise SondaError(
                    "another optimizer goes on with weights that ranks have in common", "use @backend=gloo"
                )
            self._weights.begin_step(self.pieces.summed_here())

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        if not self._uses_sums(optimizer):
            return
        self.pieces.release()
        if self._weights is not None:
            with self.waiting(), hide_from_counter():
                self._weights.end_step()
            self.group.meter.add(self.pieces.memory.take_waited())

    def _write_gradient(self, parameter: Any) -> None:
        import torch

        pieces = self.pieces
        if pieces.empty:
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)
        if pieces.is_in_shared_memory(parameter):
            raise SondaError("gradients are not set to None between steps", "use zero_grad(), or @backend=gloo")
        with hide_from_counter(), torch.no_grad():
            parameter.grad = pieces.write(parameter, parameter.grad, self.shares())

    def _finish(self) -> None:
        meter, memory = self.group.meter, self.pieces.memory
        meter.add(memory.take_waited())  # while backward was still running
        with self.waiting():
            with hide_from_counter():
                for parameter, total in self.pieces.finish():
                    parameter.grad = total
            meter.add(memory.take_waited())


def _place(memory: SharedMemory, rank: int, at: int, parameter: Any) -> Any:
    """A rank's memory from offset `at` as a tensor with the shape, type and strides of the parameter."""
    strides = parameter.stride() if _is_dense(parameter) else _contiguous_strides(parameter.shape)
    return memory.view(rank, at, parameter).as_strided(parameter.shape, strides)


def _is_dense(tensor: Any) -> bool:
    """Whether a tensor's elements fill its memory without gaps, in any order of dimensions."""
    expected = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True


def _contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for at in range(len(shape) - 2, -1, -1):
        strides[at] = strides[at + 1] * max(1, shape[at + 1])
    return tuple(strides)
