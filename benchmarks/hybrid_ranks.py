"""The ranks of the benchmark `hybrid`: what each of the two processes does when it is told to.

Both are forked with PyTorch in memory and listen to a pipe. All that is compared runs in the same processes, in turns.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from statistics import mode
from time import perf_counter, process_time
from typing import Any

RESNET = {"batch": "32", "image": "64x48", "channels": "1", "classes": "9"}
BATCH = 32
CLOCKS = {"wall": perf_counter, "processor": process_time}
Rates = tuple[float, tuple[float, ...]]
"""Samples/s by the clock on the wall, and s of processor time that a step took each rank."""


class _Silent:
    def announce_phase(self, name: str) -> Any:
        return nullcontext()


class Trainer:
    """One rank with its models: one that trains alone, and one for each way of exchanging gradients."""

    def __init__(self, group: Any, workload: str, options: dict[str, str], alone: bool = True) -> None:
        import torch.distributed as dist

        from sonda.frameworks.harness.settings import Driving
        from sonda.frameworks.torch.drive.steps import make_loop
        from sonda.frameworks.torch.parallel.calibration import TrialTask, count_norms
        from sonda.frameworks.torch.parallel.group import make_group
        from sonda.workloads.catalogue import describe

        self.make = lambda: describe(workload, options).build("torch", True, 0)
        self.group, self.how = group, Driving(True, None, 0, 10.0)
        world: Any = dist.group.WORLD
        self.keys = world.get_group_store()
        self.turns = 0
        self.memories = 0
        self.plain = self.make()
        self.norms = count_norms(self.plain.model)
        self.trial = TrialTask(self.plain)
        self.loop = make_loop(self.trial, _Silent(), self.how)
        self.memory = make_group(range(group.size), group.meter)
        self.memory.use_shared_memory(self.plain.model, self.keys)
        self.single = make_group([0], group.meter) if alone else None
        self._loops: dict[str, Any] = {}

    # ---- calibration ------------------------------------------------------------------------------------------

    def calibrate(self, by: str = "wall") -> dict[str, Any]:
        """Lines of both ranks by the clock on the wall or by `processor` time, and what exchanging costs, s."""
        from sonda.frameworks.torch.parallel.calibration import gather_lines, measure_exchange, measure_line

        def step(size: int) -> None:
            self.trial.size = size
            self.loop.step()

        self.turns += 1
        keys = _Prefixed(self.keys, f"turn{self.turns}/")
        self.lines = gather_lines(measure_line(step, BATCH, self.group, keys, CLOCKS[by]), self.group)
        self.exchange = measure_exchange(self.plain.model, self.memory, self.norms)
        sockets = measure_exchange(self.plain.model, self.group, self.norms)
        return {
            "lines": [(line.fixed, line.per_sample) for line in self.lines],
            "memory": (self.exchange.gradients, self.exchange.small),
            "gloo": (sockets.gradients, sockets.small),
            "norms": self.norms,
        }

    def outlook(self) -> Any:
        """What `@auto` would choose."""
        from sonda.frameworks.torch.parallel.outlook import choose_outlook

        return choose_outlook(self.lines, BATCH, self.exchange.seconds)

    # ---- what is timed ----------------------------------------------------------------------------------------

    def apart(self, sizes: tuple[int, ...], steps: int) -> Rates:
        """Samples/s of both together, each with batches of its own, nothing exchanged."""
        self.turns += 1
        self.trial.size = sizes[self.group.me]
        self.loop.step()
        self.group.barrier()
        begin, used, done, told = perf_counter(), process_time(), 0, False
        while not told or self.keys.add(f"apart/{self.turns}", 0) < self.group.size:
            self.loop.step()
            done += 1
            if done == steps:
                self.keys.add(f"apart/{self.turns}", 1)
                told = True
        own = sizes[self.group.me] * done / (perf_counter() - begin)
        numbers = self.group.gather_numbers([own, (process_time() - used) / done])
        return sum(row[0] for row in numbers), tuple(row[1] for row in numbers)

    def alone(self, steps: int) -> Rates:
        """Samples/s of the first rank with whole batches, while the other does nothing."""
        self.trial.size = BATCH
        return self._first_only(self.loop.step, steps)

    def wrapped(self, steps: int) -> Rates:
        """The same under DDP of one rank."""
        if self.group.me == 0 and "single" not in self._loops:
            self._loops["single"] = self._shared_loop(self.single)
        return self._first_only(self._loops["single"][0].step if self.group.me == 0 else self.loop.step, steps)

    def together(self, how: str, shares: tuple[int, ...] | None, steps: int) -> Rates:
        """Samples/s of both with exchanged gradients; `how`: memory, gloo. `shares` None: balanced, and moving."""
        name = f"{how} {shares}"
        if name not in self._loops:
            group = self._own_memory() if how == "memory" else self.group
            self._loops[name] = self._shared_loop(group, shares)
        loop, _ = self._loops[name]
        loop.step()
        self.group.barrier()
        begin, used = perf_counter(), process_time()
        for _ in range(steps):
            loop.step()
        used = (process_time() - used) / steps
        self.group.barrier()
        rate = BATCH * steps / (perf_counter() - begin)
        return rate, tuple(row[0] for row in self.group.gather_numbers([used]))

    def settle(self, steps: int) -> tuple[int, ...]:
        """The shares that the balanced pair had in most of so many steps: others are tried now and then."""
        self.together("memory", None, steps)
        balance = self._loops["memory None"][1].balance
        return mode(balance.shares_at(step) for step in range(steps))

    def followed(self, slow_down: Callable[[], None], before: int, after: int) -> list[tuple[int, ...]]:
        """Shares in force at every step, the other rank being slowed down in the middle."""
        self.turns += 1
        loop, task = self._loops[f"followed {self.turns}"] = self._shared_loop(self._own_memory(), None)
        found = []
        for step in range(before + after):
            if step == before:
                slow_down()
                self.group.barrier()
            loop.step()
            found.append(task.balance.shares)
        return found

    def busy(self, seconds: float) -> float:
        """The part of a processor that this rank gets while both work."""
        self.group.barrier()
        begin, used = perf_counter(), process_time()
        self.trial.size = BATCH // 2
        while perf_counter() - begin < seconds:
            self.loop.step()
        return (process_time() - used) / (perf_counter() - begin)

    # ---- parts ------------------------------------------------------------------------------------------------

    def _first_only(self, step: Callable[[], None], steps: int) -> Rates:
        rate = used = 0.0
        if self.group.me == 0:
            step()
            begin, used = perf_counter(), process_time()
            for _ in range(steps):
                step()
            rate, used = BATCH * steps / (perf_counter() - begin), (process_time() - used) / steps
        rate, used = self.group.gather_numbers([rate, used])[0]
        return rate, (used, 0.0)

    def _own_memory(self) -> Any:
        """A group with memory that no other loop uses: weights lie there."""
        from sonda.frameworks.torch.parallel.group import make_group

        self.memories += 1  # loops are not counted: the first rank has one that the other has not
        group = make_group(range(self.group.size), self.group.meter)
        group.use_shared_memory(self.plain.model, _Prefixed(self.keys, f"memory{self.memories}/"))
        return group

    def _shared_loop(self, group: Any, shares: tuple[int, ...] | None = (BATCH,)) -> tuple[Any, Any]:
        from sonda.frameworks.torch.drive.steps import make_loop
        from sonda.frameworks.torch.parallel.balance import Balance
        from sonda.frameworks.torch.parallel.batchnorm import share_batch_norms
        from sonda.frameworks.torch.parallel.gradients import distribute
        from sonda.frameworks.torch.parallel.shared_task import SharedTask

        task = self.make()
        balance = Balance(self.lines[: group.size], BATCH, shares)
        model = distribute(share_batch_norms(task.model, group), group, "cpu", shares=lambda: balance.shares)
        shared = SharedTask(task, model, group, balance, shares is None)
        return make_loop(shared, _Silent(), self.how), shared


class _Prefixed:
    """A store whose keys begin with a word, so that a count can be made again."""

    def __init__(self, keys: Any, prefix: str) -> None:
        self.keys, self.prefix = keys, prefix

    def add(self, key: str, amount: int) -> int:
        return int(self.keys.add(self.prefix + key, amount))

    def set(self, key: str, value: str) -> None:
        self.keys.set(self.prefix + key, value)

    def get(self, key: str) -> bytes:
        return bytes(self.keys.get(self.prefix + key))


def rank_main(rank: int, size: int, port: int, pipe: Any) -> None:
    """Listen for `(name, arguments)` and answer with what that method of the trainer returns."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="localhost",
                      MASTER_PORT=str(port))  # fmt: skip
    import torch

    from sonda.frameworks.torch.parallel.group import ExchangeMeter, join_ranks, leave_ranks

    torch.set_num_threads(1)
    group = join_ranks("gloo", ExchangeMeter(), 600)
    trainer: Any = None
    while True:
        name, arguments = pipe.recv()
        if name == "end":
            leave_ranks()
            return
        if name == "workload":
            trainer = Trainer(group, *arguments)
            pipe.send(None)
            continue
        if name == "followed":
            arguments = (lambda: (pipe.send("slow down"), pipe.recv()), *arguments)
        answer = getattr(trainer, name)(*arguments)
        pipe.send((answer.step, answer.shares, answer.alone) if name == "outlook" else answer)
