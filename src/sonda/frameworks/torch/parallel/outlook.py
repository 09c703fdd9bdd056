"""The outlook: what several devices can gain at most, what communication takes of it, and whether it pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sonda.frameworks.torch.parallel.shares import Line, slowest_time, split_batch


@dataclass(frozen=True)
class Outlook:
    """A prediction before the first step. Times are in s. Ranks have the order of the target's devices."""

    batch: int
    alone: tuple[float, ...]
    """Step time of each rank with the whole batch, while no other rank works."""
    shares: tuple[int, ...]
    """Samples of each rank; 0 for a rank that is left out."""
    compute: float
    """Time until the slowest rank has computed its share."""
    communication: float
    """Time to exchange gradients and statistics of batch norms in one step, if none of it overlaps with computing."""

    @property
    def fastest(self) -> int:
        """The rank that takes least time alone."""
        return min(range(len(self.alone)), key=lambda rank: self.alone[rank])

    @property
    def bound(self) -> float:
        """Upper bound of the speed-up over the fastest rank alone: 1 + 1/F for two ranks.

        F is how many times slower the second rank is. The bound assumes that steps have no fixed cost and that nothing
        is exchanged.
        """
        best = self.alone[self.fastest]
        return sum(best / time for time in self.alone)

    @property
    def step(self) -> float:
        """The predicted step time, s."""
        return self.compute + self.communication

    @property
    def speedup(self) -> float:
        """The predicted speed-up over the fastest rank alone."""
        return self.alone[self.fastest] / self.step

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that take part."""
        return tuple(rank for rank, share in enumerate(self.shares) if share)

    def to_record(self) -> dict[str, Any]:
        """The outlook as `run.json` keeps it, with times in ns."""
        return {
            "batch": self.batch,
            "alone_ns": [round(1e9 * time) for time in self.alone],
            "shares": list(self.shares),
            "compute_ns": round(1e9 * self.compute),
            "communication_ns": round(1e9 * self.communication),
            "bound": self.bound,
            "speedup": self.speedup,
        }


def predict_outlook(
    lines: Sequence[Line],
    batch: int,
    communication: float,
    ranks: Sequence[int] | None = None,
    shares: Sequence[int] | None = None,
    alone: Sequence[float] | None = None,
) -> Outlook:
    """The outlook of `ranks` (default: all) with `shares` (default: the fastest).

    `lines` were measured while all ranks worked. `alone` are the times of the whole batch on each rank while the others
    waited, s; by default they are taken from the lines. A single rank exchanges nothing.
    """
    alone_times = tuple(alone) if alone is not None else tuple(line.time(batch) for line in lines)
    chosen = tuple(range(len(lines))) if ranks is None else tuple(ranks)
    own = [lines[rank] for rank in chosen]
    split = tuple(shares) if shares is not None else split_batch(own, batch)
    by_rank = dict(zip(chosen, split, strict=True))
    return Outlook(
        batch,
        alone_times,
        tuple(by_rank.get(rank, 0) for rank in range(len(lines))),
        slowest_time(own, split) if len(chosen) > 1 else alone_times[chosen[0]],
        communication if len(chosen) > 1 else 0.0,
    )


def choose_outlook(
    lines: Sequence[Line], batch: int, communication: float, alone: Sequence[float] | None = None
) -> Outlook:
    """The outlook with the shortest step among several sets of ranks.

    The sets are: the rank that is fastest alone, the two ranks with the fastest lines, the three, and so on to all.
    A few ranks are assumed to communicate as long as all do. They may take less, so this choice tends to leave ranks
    out.
    """
    order = sorted(range(len(lines)), key=lambda rank: (lines[rank].time(batch), rank))
    first = predict_outlook(lines, batch, communication, alone=alone).fastest
    several = [sorted(order[:count]) for count in range(2, min(len(lines), batch) + 1)]
    candidates = [predict_outlook(lines, batch, communication, ranks, alone=alone) for ranks in ([first], *several)]
    return min(candidates, key=lambda outlook: outlook.step)


def describe_outlook(whole: Outlook, chosen: Outlook, names: Sequence[str], auto: bool) -> list[str]:
    """The sentences printed before the run: the bound, the cost, the prediction, and what follows from them.

    `whole` is the outlook of all ranks, `chosen` that of the ranks that will run.
    """
    compute, communication = format_duration(whole.compute), format_duration(whole.communication)
    if len(names) == 1:
        return [f"a step of {whole.batch} samples: {compute}, on one rank, which exchanges nothing"]
    best = whole.fastest
    fast = names[best]
    times = ", ".join(
        f"{name} {format_duration(time)}" + (f" (F = {time / whole.alone[best]:.3g})" if rank != best else "")
        for rank, (name, time) in enumerate(zip(names, whole.alone, strict=True))
    )
    shares = " + ".join(str(share) for share in whole.shares)
    lines = [
        f"a step of {whole.batch} samples alone: {times}; so at most {whole.bound:.3g} times {fast} alone",
        f"shares {shares}: {compute} of work and {communication} of communication, "
        f"predicted {whole.speedup:.3g} times {fast} alone",
    ]
    if whole.speedup <= 1:
        saved = whole.alone[best] - whole.compute
        lines.append(
            f"several devices cannot pay here: communication takes {communication} a step, and sharing "
            f"the work saves {format_duration(saved) if saved > 0 else 'nothing'}"
        )
    if auto and chosen.ranks != whole.ranks:
        left = " and ".join(names[rank] for rank in whole.ranks if rank not in chosen.ranks)
        lines.append(f"@auto leaves out {left}")
    return lines


def format_duration(seconds: float) -> str:
    """A time with three digits: in ms, or in s from 1 s on."""
    return f"{seconds:.3g} s" if seconds >= 0.9995 else f"{1e3 * seconds:.3g} ms"
