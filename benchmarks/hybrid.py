"""Two unequal ranks: a processor and one that a quota slows three times, training ResNet-34 together.

Everything that is compared runs in the same two processes, in turns, so that what disturbs one disturbs all. Where
other programs take a part of the processors, a quota does not slow a rank three times, and only processor time tells:
a pair then takes as long as the rank whose processor time, times three for the slowed one, is longest. That leaves out
what ranks wait for each other, so it is the best case: it can miss a bar, and cannot pass one.

"Both apart" is what both reach at once without communication: each with its share, whose step has a fixed part that a
larger batch does not have, and each with whole batches, which is the harder bar.
"""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any

import numpy as np

from benchmarks.bar import Bar, Interval, at_least, at_most, paired_interval
from benchmarks.hybrid_command import ALONE, PAIR, by_command
from benchmarks.hybrid_ranks import BATCH, RESNET, Rates, rank_main
from sonda.targets.quota import limit_process

SLOWED = 3
ROUNDS, STEPS = 6, 3
SETTLING = 30
"""Steps of the balanced pair before the first round, in which shares settle."""
BEFORE, AFTER, FOLLOW_LIMIT = 15, 40, 20
QUIET = 0.9
"""Processors that a rank must get while both work, or a quota would not slow it three times."""
LIMITS = {
    "balanced pair / both apart, same shares": ("apart, same shares", 0.9),
    "balanced pair / both apart, whole batches": ("apart, whole batches", 0.9),
    "balanced pair / equal shares": ("together, equal shares", 1.0),
    "balanced pair / faster alone": ("faster alone", 1.15),
}
NEAR = 2
"""Samples by which shares may differ without having moved."""
FOLLOWED = 3
"""Times that a device is slowed down in the middle of training."""
BY_COMMAND, COMMAND_STEPS = 3, 12
"""Rounds of the command and its timed steps."""
GAIN = 1.15


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
        return limit_process(self.processes[1].pid or 0, share)

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
    """Equal and unequal ranks, all in the same two processes."""
    with _pair("resnet34", RESNET) as pair:
        return _equal_devices(pair) + _unequal_devices(pair)


def run_auto() -> list[Bar]:
    """What the command chooses."""
    with _pair("cnn", {"batch": str(BATCH)}) as pair:
        quiet = median(pair.all("busy", 5.0)) >= QUIET
    return _by_command(quiet)


def run_follow() -> list[Bar]:
    """A device that slows down."""
    with _pair("cnn", {"batch": str(BATCH)}) as pair:
        return _slowed_on_the_way(pair)


def _turns(names: list[str], rounds: int) -> Iterator[str]:
    """Every name once a round, in an order that turns."""
    for number in range(rounds):
        turned = names[number % len(names) :] + names[: number % len(names)]
        yield from turned if number % 2 else reversed(turned)


class Table:
    """Rates of several ways to train, found in turns."""

    def __init__(self, calls: dict[str, Callable[[], Rates]], rounds: int, slowed: float) -> None:
        """`slowed`: how many times a second of the second rank's processor counts."""
        self.wall: dict[str, np.ndarray] = {}
        self.processor: dict[str, np.ndarray] = {}
        found: dict[str, list[Rates]] = {name: [] for name in calls}
        for name in _turns(list(calls), rounds):
            found[name].append(calls[name]())
        for name, rates in found.items():
            self.wall[name] = np.array([rate for rate, _ in rates])
            self.processor[name] = np.array([(first, slowed * second) for _, (first, second) in rates])

    def rate(self, name: str, shares: Sequence[int] | None = None) -> np.ndarray:
        """Samples/s by processor time. `shares`: each rank at its own pace; else both at that of the slower."""
        used = self.processor[name]
        if shares is None:
            return BATCH / used.max(axis=1)
        return (np.array(shares) / used).sum(axis=1)

    def show(self, name: str, rate: np.ndarray, base: str) -> None:
        wall = paired_interval(self.wall[name] / self.wall[base])
        times = paired_interval(rate / self.rate(base))
        print(
            f"  {name:26} {np.median(self.wall[name]):6.1f} samples/s, {wall.text()} times {base}; "
            f"by processor time {np.median(rate):6.1f}, {times.text()}"
        )


def _equal_devices(pair: Pair) -> list[Bar]:
    """What DDP costs on one rank, and what two equal ranks bring: a table, without a bar."""
    found = pair.first("calibrate")
    print("ResNet-34, 64x48 grey, batch 32, 1 thread a rank")
    for name, key in (("sockets (gloo)", "gloo"), ("shared memory", "memory")):
        large, small = (1e3 * value for value in found[key])
        print(f"  through {name:15} gradients (85 MB) {large:6.1f} ms, statistics of a batch norm {small:.3f} ms")
    half = (BATCH // 2, BATCH // 2)
    table = Table(
        {
            "alone": lambda: pair.first("alone", STEPS),
            "1 rank under DDP": lambda: pair.first("wrapped", STEPS),
            "2 ranks, gloo": lambda: pair.first("together", "gloo", half, STEPS),
            "2 ranks, memory": lambda: pair.first("together", "memory", half, STEPS),
        },
        ROUNDS // 2,
        1.0,
    )
    for name in table.wall:
        table.show(name, table.rate(name), "alone")
    return []


def _unequal_devices(pair: Pair) -> list[Bar]:
    """The balanced pair against both apart, equal shares, and the faster alone; by processor time only where the clock
    on the wall tells nothing."""
    busy = median(pair.all("busy", 5.0))
    if busy < QUIET:
        why = f"other programs leave a rank {busy:.2f} processors: a quota means nothing"
        noisy = [Bar(f"{promise}, by the clock on the wall", why, "NOISY") for promise in LIMITS]
        return _by_processor_time(pair) + noisy
    with pair.slowed(1 / SLOWED):
        pair.all("calibrate")
        _, _, alone = pair.first("outlook")
        slower = alone[1] / alone[0]
        print(
            f"second rank held to {1 / SLOWED:.2f} processors: measured F = {slower:.2f}, at most {1 + 1 / slower:.2f}"
        )
        settled = pair.first("settle", SETTLING)
        print(f"  shares in most of {SETTLING} steps: {settled[0]} + {settled[1]}")
        table = _table(pair, settled, SLOWED)
    for name in table.wall:
        rate = table.wall[name]
        print(f"  {name:24} {np.median(rate):6.1f} samples/s, "
              f"{paired_interval(rate / table.wall['faster alone']).text()} times the faster alone")  # fmt: skip
    return _bars(table.wall, "by the clock on the wall")


def _by_command(quiet: bool) -> list[Bar]:
    """What the command itself chooses under a quota, and what that brings, start to end by the clock on the wall."""
    promises = "@auto chooses the pair, by the command", "@auto / faster alone, by the command"
    if not quiet:
        return [
            Bar(one, "other programs take a part of the processors: a quota means nothing", "NOISY") for one in promises
        ]
    gains, shares = by_command(BY_COMMAND, COMMAND_STEPS, 1 / SLOWED)
    gain = paired_interval(gains)
    print(f"{PAIR} under a quota of {1 / SLOWED:.2f}: shares {shares}, {gain.text()} times {ALONE}")
    chosen = ", ".join("+".join(map(str, one)) for one in shares)
    return [
        Bar(promises[0], f"shares {chosen}", "PASS" if all(min(one, default=0) for one in shares) else "FAIL"),
        at_least(promises[1], gain, GAIN, "x"),
    ]


def _by_processor_time(pair: Pair) -> list[Bar]:
    """Nobody is stopped: a second of the second rank's processor counts as three."""
    from sonda.frameworks.torch.parallel.balance import Balance
    from sonda.frameworks.torch.parallel.shares import Line, slowest_time

    found = pair.first("calibrate", "processor")
    first, second = (Line(*line) for line in found["lines"])
    lines = [first, second.scaled(SLOWED)]
    balance = Balance(lines, BATCH)
    best = lines[0].time(BATCH) / slowest_time(lines, balance.shares)
    bare = balance.shares
    # What a rank does beside its own steps, such as adding up gradients, it does in every step: shares follow.
    for number in range(1, 3):
        _, used = pair.first("together", "memory", balance.shares, STEPS)
        foreseen = [line.time(share) for line, share in zip((first, second), balance.shares, strict=True)]
        balance.update(number, [time / line for time, line in zip(used, foreseen, strict=True)])
    shares = balance.shares
    print(f"by processor time, a step of n samples takes {1e3 * first.fixed:.0f} + {1e3 * first.per_sample:.1f} n ms")
    print(f"  what does not grow with the batch is done by both: shares {bare[0]} + {bare[1]} without any exchange "
          f"are {best:.2f} times the faster alone, not {1 + 1 / SLOWED:.2f}")  # fmt: skip
    print(f"  shares with it: {shares[0]} + {shares[1]}")
    table = _table(pair, shares, SLOWED)
    rates = {name: table.rate(name) for name in table.wall}
    rates["apart, same shares"] = table.rate("apart, same shares", shares)
    rates["apart, whole batches"] = table.rate("apart, whole batches", (BATCH, BATCH))
    for name, rate in rates.items():
        print(f"  {name:24} {np.median(rate):6.1f} samples/s, "
              f"{paired_interval(rate / rates['faster alone']).text()} times the faster alone")  # fmt: skip
    return [_best_case(bar) for bar in _bars(rates, "by processor time")]


def _best_case(bar: Bar) -> Bar:
    """Waiting is left out: what misses a bar even so, misses it; what does not, may."""
    if bar.state == "FAIL":
        return bar
    return Bar(bar.promise, f"{bar.figure}; waiting for each other left out", "NOISY")


def _table(pair: Pair, shares: Sequence[int], slowed: float) -> Table:
    half, whole = (BATCH // 2, BATCH // 2), (BATCH, BATCH)
    return Table(
        {
            "faster alone": lambda: pair.first("alone", STEPS),
            "apart, same shares": lambda: pair.first("apart", tuple(shares), STEPS),
            "apart, whole batches": lambda: pair.first("apart", whole, STEPS),
            "together, balanced": lambda: pair.first("together", "memory", tuple(shares), STEPS),
            "together, equal shares": lambda: pair.first("together", "memory", half, STEPS),
        },
        ROUNDS,
        slowed,
    )


def _bars(rates: dict[str, np.ndarray], clock: str) -> list[Bar]:
    together = rates["together, balanced"]
    return [
        at_least(f"{promise}, {clock}", paired_interval(together / rates[below]), limit, "x")
        for promise, (below, limit) in LIMITS.items()
    ]


def _slowed_on_the_way(pair: Pair) -> list[Bar]:
    """Steps until shares have followed a device that slows down in the middle of training."""
    pair.first("calibrate")
    found = [_slowed_once(pair) for _ in range(FOLLOWED)]
    told = [steps for steps, moved in found if moved]
    promise = f"steps until shares follow a device that slows down, {len(told)} times"
    if len(told) < len(found):
        why = f"in {len(found) - len(told)} of {len(found)} times other programs held both back"
        return [Bar(promise, why, "NOISY")]
    return [at_most(promise, Interval(median(told), min(told), max(told)), FOLLOW_LIMIT, digits=0)]


def _slowed_once(pair: Pair) -> tuple[int, bool]:
    """Steps until shares are nearer to where they end than to where they were, for good, and whether they have moved at
    all. Others are tried on the way."""
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
    before, end = first[BEFORE - 1], median(first[-10:])
    nearer = [abs(one - end) < abs(one - before) for one in first[BEFORE:]]
    steps = next((number for number in range(AFTER) if all(nearer[number:])), AFTER)
    print(f"  shares of the first rank: {before} before, then {first[BEFORE::5]}; they followed after {steps} steps")
    return steps, abs(end - before) > NEAR
