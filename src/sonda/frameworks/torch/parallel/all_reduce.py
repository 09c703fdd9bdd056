"""Adding gradients up in shared memory: each is written once at most, summed once, and read by all where it lies.

A piece is summed by one rank; ranks divide the bytes that are to be moved by their shares of the batch, which say how
fast each is. As soon as backward has a gradient it goes to its rank's region, for the rank that sums it; whoever sums
takes its own from where it was computed, for nobody else reads that. All optimizers then read the same sums, so nothing
is copied back and all ranks have the same bits. Where an optimizer keeps nothing between steps, whoever sums a gradient
also takes the step (`weights.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sonda.frameworks.torch.parallel.group import Group, Waiting, unseen
from sonda.frameworks.torch.parallel.shared_memory import GRADIENTS, ROOM, SUMMED, TAKEN, SharedMemory
from sonda.frameworks.torch.parallel.weights import CommonWeights, keeps_nothing
from sonda.record.errors import SondaError

LINE = 64
"""Bytes of a line of cache; every piece begins at one."""
SUMMING, COPYING, STEPPING = 3, 2, 3
"""Bytes moved for each of a piece: two read and one written by whoever sums it, one of each by the others; two read and
one written by whoever takes the optimizer's step for it alone."""


class Piece:
    """One gradient: its bytes, and its place in the region of every rank, as a tensor like the parameter."""

    def __init__(self, number: int, parameter: Any, at: int, memory: SharedMemory) -> None:
        self.number, self.parameter = number, parameter
        self.bytes = (parameter.numel() * parameter.element_size() + LINE - 1) & -LINE
        self.places = [_place(memory, rank, at, parameter) for rank in range(memory.size)]
        self.owner = 0
        """The rank that sums it, in this step."""
        self.own: Any = None
        """This rank's gradient until it is summed here."""
        self.version = 0
        """Of its sum, when it was handed to this rank's optimizer."""

    @property
    def sum(self) -> Any:
        """Where its sum lies: in the place of one of the first two gradients, the one that is read from there. To write
        where something was read costs less than to write elsewhere."""
        return self.places[1 if self.owner == 0 else 0]


class Pieces:
    """The gradients of one step after another. Every rank must write the same ones in the same order; those that a step
    does not use are left out."""

    def __init__(self, parameters: Iterable[Any], memory: SharedMemory) -> None:
        self.memory = memory
        self.owning = SUMMING
        """Bytes moved for each of a piece by the rank that owns it."""
        self._of: dict[int, Piece] = {}
        at = ROOM
        for number, parameter in enumerate(parameters):
            piece = self._of[id(parameter)] = Piece(number, parameter, at, memory)
            at += piece.bytes
        self._written: list[Piece] = []
        self._mine: deque[tuple[Piece, int]] = deque()
        """Pieces to be summed here, and what the counter of those written says when they are there."""
        self._load = [0.0] * memory.size
        """Bytes that every rank has moved in this step."""
        self._held: list[Piece] = []
        """Sums that this rank's optimizer may still read."""

    @property
    def empty(self) -> bool:
        """Whether nothing was written in this step yet."""
        return not self._written

    def write(self, parameter: Any, gradient: Any, shares: Sequence[float]) -> Any:
        """Write a gradient; returns where it lies now. Sums what all have written and is to be summed here."""
        memory = self.memory
        if not self._written:
            self.release()
            memory.wait(TAKEN, memory.own(TAKEN))
        piece = self._of[id(parameter)]
        loads = [(load + self.owning * piece.bytes) / share for load, share in zip(self._load, shares, strict=True)]
        piece.owner = loads.index(min(loads))
        self._load = [
            load + (self.owning if rank == piece.owner else COPYING) * piece.bytes
            for rank, load in enumerate(self._load)
        ]
        self._written.append(piece)
        lies = gradient
        if piece.owner == memory.me:
            piece.own = gradient
            self._mine.append((piece, memory.announce(GRADIENTS)))
        else:
            lies = self.place(parameter).copy_(gradient)
            memory.announce(GRADIENTS)
        while self._mine and memory.reached(GRADIENTS, self._mine[0][1]):
            self._sum(self._mine.popleft()[0])
        return lies

    def finish(self) -> list[tuple[Any, Any]]:
        """Every parameter that was written with the sum of its gradient, once all ranks have summed theirs.

        Raises SondaError where ranks have written others: what was summed is no sum then.
        """
        memory = self.memory
        if missing := len(self._of) - len(self._written):
            memory.announce(GRADIENTS, missing)  # nobody waits for what does not come
        while self._mine:
            piece, number = self._mine.popleft()
            memory.wait(GRADIENTS, number)
            self._sum(piece)
        memory.tell(hash(tuple(piece.number for piece in self._written)))
        memory.wait(SUMMED, memory.announce(SUMMED))
        if len(set(memory.told())) > 1:
            raise SondaError(
                "ranks have gradients of different weights in one step",
                "use a model that uses the same weights whatever its samples are",
            )
        self._held, self._written, self._load = self._written, [], [0.0] * memory.size
        for piece in self._held:
            piece.version = piece.sum._version
        return [(piece.parameter, piece.sum) for piece in self._held]

    def release(self) -> None:
        """The sums of the last step are needed no more. Raises SondaError where somebody has changed them."""
        if not self._held:
            return
        changed = any(piece.sum._version != piece.version for piece in self._held)
        self._held = []
        self.memory.announce(TAKEN)
        if changed:
            raise SondaError(
                "the optimizer changes gradients in place, which ranks that share their memory have in common",
                "use @backend=gloo",
            )

    def place(self, parameter: Any) -> Any:
        """Where this rank's region has the parameter's gradient, or the sum of all."""
        return self._of[id(parameter)].places[self.memory.me]

    def holds(self, parameter: Any) -> bool:
        piece = self._of.get(id(parameter))
        return piece is not None and piece.parameter is parameter

    def mine(self) -> list[bool]:
        """Of every parameter, in order: whether this rank has summed its gradient in the step that has ended."""
        return [piece.owner == self.memory.me for piece in self._of.values()]

    def common_weights(self, optimizer: Any) -> CommonWeights | None:
        """The weights in memory that all ranks share; None where the optimizer has not all of them, or others lie there
        already. All ranks call this together."""
        memory, own = self.memory, {id(one) for group in optimizer.param_groups for one in group["params"]}
        if memory.weights_at is None or not own.issuperset(self._of):
            return None
        at, memory.weights_at = memory.weights_at, None
        places = []
        for piece in self._of.values():
            places.append(_place(memory, 0, at, piece.parameter))
            at += piece.bytes
        self.owning = SUMMING + STEPPING
        return CommonWeights([piece.parameter for piece in self._of.values()], places, memory)

    def lies_here(self, parameter: Any) -> bool:
        """Whether the parameter's gradient is still one of the places: the next one would be added to what others
        read."""
        address = parameter.grad.data_ptr()
        return any(place.data_ptr() == address for place in self._of[id(parameter)].places)

    def _sum(self, piece: Piece) -> None:
        """In the order of ranks, so that it does not matter who sums."""
        import torch

        first, second, *others = (
            piece.own if rank == self.memory.me else there for rank, there in enumerate(piece.places)
        )
        torch.add(first, second, out=piece.sum)
        for other in others:
            piece.sum.add_(other)
        piece.own = None


class Adding:
    """Sums the gradients of a model while backward goes on. The time that others take is metered."""

    def __init__(
        self,
        model: Any,
        group: Group,
        memory: SharedMemory,
        waiting: Waiting,
        shares: Callable[[], Sequence[float]] | None = None,
    ) -> None:
        """`shares()` are those of the batch in force, the same on all ranks; without it all are alike."""
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        self.group, self.waiting = group, waiting
        self.shares = shares or (lambda: (1.0,) * memory.size)
        wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.pieces = Pieces(wanted, memory)
        self._hooks = [parameter.register_post_accumulate_grad_hook(self._ready) for parameter in wanted]
        self._hooks.append(register_optimizer_step_pre_hook(self._stepping))
        self._hooks.append(register_optimizer_step_post_hook(self._stepped))
        self._weights: CommonWeights | None = None
        self._decided = False
        """Whether it is known if weights are common."""

    def close(self) -> None:
        """Sum no more: the optimizers of the whole process were listened to."""
        for hook in self._hooks:
            hook.remove()

    def _over_these(self, optimizer: Any) -> bool:
        """Hooks are called for every optimizer of the process: only one over these parameters uses the sums."""
        return any(self.pieces.holds(one) for group in optimizer.param_groups for one in group["params"])

    def _stepping(self, optimizer: Any, arguments: Any, named: Any) -> None:
        if not self._over_these(optimizer):
            return
        plain = keeps_nothing(optimizer, arguments, named)
        with unseen():
            if not self._decided:
                self._decided = True
                self._weights = self.pieces.common_weights(optimizer) if plain else None
            if self._weights is None:
                return
            if not plain:
                raise SondaError(
                    "another optimizer goes on with weights that ranks have in common", "use @backend=gloo"
                )
            self._weights.begin_step(self.pieces.mine())

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        if not self._over_these(optimizer):
            return
        self.pieces.release()
        if self._weights is not None:
            with self.waiting(), unseen():
                self._weights.end_step()
            self.group.meter.add(self.pieces.memory.take_waited())

    def _ready(self, parameter: Any) -> None:
        import torch

        pieces = self.pieces
        if pieces.empty:
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)
        if pieces.lies_here(parameter):
            raise SondaError("gradients are not set to None between steps", "use zero_grad(), or @backend=gloo")
        with unseen(), torch.no_grad():
            parameter.grad = pieces.write(parameter, parameter.grad, self.shares())

    def _finish(self) -> None:
        meter, memory = self.group.meter, self.pieces.memory
        meter.add(memory.take_waited())  # while backward still went on
        with self.waiting():
            with unseen():
                for parameter, total in self.pieces.finish():
                    parameter.grad = total
            meter.add(memory.take_waited())


def _place(memory: SharedMemory, rank: int, at: int, parameter: Any) -> Any:
    """A rank's memory from there on as a tensor that lies as the parameter does."""
    strides = parameter.stride() if _dense(parameter) else _contiguous(parameter.shape)
    return memory.view(rank, at, parameter).as_strided(parameter.shape, strides)


def _dense(tensor: Any) -> bool:
    """Whether its elements fill its memory, in whatever order of dimensions."""
    expected = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for at in range(len(shape) - 2, -1, -1):
        strides[at] = strides[at + 1] * max(1, shape[at + 1])
    return tuple(strides)
