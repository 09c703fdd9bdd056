"""Two unequal ranks: a processor and one that a quota slows three times, training ResNet-34 together.

Everything that is compared runs in the same two processes, in turns, so that what disturbs one disturbs all. Where other
programs take a part of the processors, the quota is a third of what a rank gets, not of a whole one.
"""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any

import numpy as np

from benchmarks.bar import Bar, Interval, at_least, at_most, paired_interval
from benchmarks.hybrid_ranks import BATCH, RESNET, rank_main
from benchmarks.quota import quota

SLOWED = 3
ROUNDS, STEPS = 8, 3
SETTLING = 10
"""Steps of the balanced pair before the first round, in which shares settle."""
BEFORE, AFTER, FOLLOW_LIMIT = 15, 40, 20
NEAR = 2
"""Samples from where shares end up: they have followed when they stay this near."""


class Pair:
    """The two ranks."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        self.pipes, self.processes = [], []
        for rank in range(2):
            ours, theirs = context.Pipe()
            process = context.Process(target=rank_main, args=(rank, 2, port, theirs), daemon=True)
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)

    def all(self, name: str, *arguments: Any) -> list[Any]:
        """Have both do something; what each says."""
        for pipe in self.pipes:
            pipe.send((name, arguments))
        return [pipe.recv() for pipe in self.pipes]

    def first(self, name: str, *arguments: Any) -> Any:
        return self.all(name, *arguments)[0]

    def slowed(self, share: float) -> Any:
        return quota(self.processes[1].pid or 0, share)

    def end(self) -> None:
        for pipe in self.pipes:
            pipe.send(("end", ()))
        for process in self.processes:
            process.join(10)
            process.kill()


@contextmanager
def _pair(workload: str, options: dict[str, str]) -> Iterator[Pair]:
    pair = Pair()
    try:
        pair.all("workload", workload, options)
        yield pair
    finally:
        pair.end()


def run() -> list[Bar]:
    with _pair("resnet34", RESNET) as pair:
        bars = _equal_devices(pair) + _unequal_devices(pair)
    with _pair("cnn", {"batch": str(BATCH)}) as pair:
        bars += _slowed_on_the_way(pair)
    return bars


def _turns(names: list[str], rounds: int) -> Iterator[str]:
    """Every name once a round, in an order that turns."""
    for number in range(rounds):
        turned = names[number % len(names) :] + names[: number % len(names)]
        yield from turned if number % 2 else reversed(turned)


def _equal_devices(pair: Pair) -> list[Bar]:
    """What DDP costs on one rank, and what two equal ranks bring: a table, without a bar."""
    found = pair.first("calibrate")
    fixed, each = found["lines"][0]
    print(f"ResNet-34, 64x48 grey, 1 thread a rank; a step of n samples: {1e3 * fixed:.0f} + {1e3 * each:.1f} n ms")
    for name, key in (("sockets (gloo)", "gloo"), ("shared memory", "memory")):
        large, small = (1e3 * value for value in found[key])
        print(
            f"  exchange through {name:15} gradients (85 MB) {large:6.1f} ms, statistics of a batch norm {small:.3f} ms"
        )
    half = (BATCH // 2, BATCH // 2)
    calls: dict[str, Any] = {
        "alone": lambda: pair.first("alone", STEPS),
        "1 rank under DDP": lambda: pair.first("wrapped", STEPS),
        "2 ranks, gloo": lambda: pair.first("together", "gloo", half, STEPS)["rate"],
        "2 ranks, memory": lambda: pair.first("together", "memory", half, STEPS)["rate"],
    }
    rates: dict[str, list[float]] = {name: [] for name in calls}
    for name in _turns(list(calls), ROUNDS // 2):
        rates[name].append(calls[name]())
    for name, values in rates.items():
        ratio = paired_interval(np.array(values) / np.array(rates["alone"]))
        print(f"  {name:20} {median(values):6.1f} samples/s   {ratio.text()} times alone")
    return []


def _unequal_devices(pair: Pair) -> list[Bar]:
    share = min(1.0, median(pair.all("busy", 5.0)))
    print(f"each rank gets {share:.2f} processors while both work; the second is now held to {share / SLOWED:.2f}")
    with pair.slowed(share / SLOWED):
        lines = pair.first("calibrate")["lines"]
        step, shares, alone = pair.first("outlook")
        slower = alone[1] / alone[0]
        print(f"  measured F = {slower:.2f}, so at most {1 + 1 / slower:.2f} times the faster alone")
        fixed = [BATCH * (each / (fixed + each * BATCH)) for fixed, each in lines]
        print(f"  part of a step that grows with the batch: {100 * fixed[0]:.0f} %; the rest is done twice by a pair")
        print(
            f"  @auto chooses shares {shares[0]} + {shares[1]}, predicts {alone[0] / step:.2f} times the faster alone"
        )
        settled = pair.first("together", "memory", None, SETTLING)["shares"]
        half = (BATCH // 2, BATCH // 2)
        calls: dict[str, Any] = {
            "faster alone": lambda: pair.first("alone", STEPS),
            "both apart, same shares": lambda: pair.first("apart", settled, STEPS),
            "both apart, whole batches": lambda: pair.first("apart", (BATCH, BATCH), STEPS),
            "together, balanced": lambda: pair.first("together", "memory", None, STEPS)["rate"],
            "together, equal shares": lambda: pair.first("together", "memory", half, STEPS)["rate"],
        }
        rates: dict[str, list[float]] = {name: [] for name in calls}
        for name in _turns(list(calls), ROUNDS):
            rates[name].append(calls[name]())
        final = pair.first("together", "memory", None, 1)["shares"]
    kept = {name: np.array(values) for name, values in rates.items()}
    print(f"  shares after calibration {shares}, settled {settled}, at the end {final}")
    for name, values in kept.items():
        print(f"  {name:26} {np.median(values):6.1f} samples/s   "
              f"{paired_interval(values / kept['faster alone']).text()} times the faster alone")  # fmt: skip
    together = kept["together, balanced"]
    chosen = Bar("@auto chooses the pair", f"shares {shares[0]} + {shares[1]}", "PASS" if min(shares) else "FAIL")
    return [
        at_least("balanced pair / both apart with the same shares", _ratio(together, kept["both apart, same shares"]),
                 0.9, "x"),
        at_least("balanced pair / equal shares", _ratio(together, kept["together, equal shares"]), 1.0, "x"),
        chosen,
        at_least("balanced pair / faster alone", _ratio(together, kept["faster alone"]), 1.15, "x"),
    ]  # fmt: skip


def _ratio(above: np.ndarray, below: np.ndarray) -> Interval:
    return paired_interval(above / below)


def _slowed_on_the_way(pair: Pair) -> list[Bar]:
    """Steps until shares have followed a device that slows down in the middle of training."""
    pair.first("calibrate")
    share = min(1.0, median(pair.all("busy", 2.0)))
    for pipe in pair.pipes:
        pipe.send(("followed", (BEFORE, AFTER)))
    with ExitStack() as slow:
        for pipe in pair.pipes:
            assert pipe.recv() == "slow down"
        slow.enter_context(pair.slowed(share / SLOWED))
        for pipe in pair.pipes:
            pipe.send("done")
        series, other = (pipe.recv() for pipe in pair.pipes)
    assert series == other, "ranks must agree on shares at every step"
    first = [shares[0] for shares in series]
    end = median(first[-10:])
    steps = next(number for number in range(AFTER) if all(abs(one - end) <= NEAR for one in first[BEFORE + number :]))
    print(
        f"  shares of the first rank: {first[BEFORE - 1]} before, {end:g} at the end; within {NEAR} after {steps} steps"
    )
    moved = abs(end - first[BEFORE - 1]) > NEAR
    bar = at_most(
        "steps until shares follow a device that slows down", Interval(steps, steps, steps), FOLLOW_LIMIT, "", 0
    )
    return [bar if moved else Bar(bar.promise, "the device did not slow down: other programs held both back", "NOISY")]
