"""The outlook: what several devices can gain at most, what communication takes of it, and whether it pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sonda.frameworks.torch.parallel.shares import Line, slowest, split_batch


@dataclass(frozen=True)
class Outlook:
    """A prediction before the first step. Times in s; ranks are numbered in the order of the target's devices."""

    batch: int
    alone: tuple[float, ...]
    """Step of each rank that has the whole batch, and the machine, to itself."""
    shares: tuple[int, ...]
    """Samples of each rank; 0 for one that is left out."""
    compute: float
    """Until the slowest rank is done with its share."""
    communication: float
    """What one step exchanges: gradients, and statistics of batch norms, if nothing of it is overlapped."""

    @property
    def fastest(self) -> int:
        return min(range(len(self.alone)), key=lambda rank: self.alone[rank])

    @property
    def bound(self) -> float:
        """Speed-up over the fastest rank alone if nothing were exchanged and nothing fixed: 1 + 1/F for two ranks.

        F is how many times slower the other one is.
        """
        best = self.alone[self.fastest]
        return sum(best / time for time in self.alone)

    @property
    def step(self) -> float:
        """The predicted step."""
        return self.compute + self.communication

    @property
    def speedup(self) -> float:
        """Predicted, over the fastest rank alone."""
        return self.alone[self.fastest] / self.step

    @property
    def ranks(self) -> tuple[int, ...]:
        """Those that take part."""
        return tuple(rank for rank, share in enumerate(self.shares) if share)

    def record(self) -> dict[str, Any]:
        """For `run.json`, times in ns."""
        return {
            "batch": self.batch,
            "alone_ns": [round(1e9 * time) for time in self.alone],
            "shares": list(self.shares),
            "compute_ns": round(1e9 * self.compute),
            "communication_ns": round(1e9 * self.communication),
            "bound": self.bound,
            "speedup": self.speedup,
        }


def foresee(
    lines: Sequence[Line],
    batch: int,
    communication: float,
    ranks: Sequence[int] | None = None,
    shares: Sequence[int] | None = None,
    alone: Sequence[float] | None = None,
) -> Outlook:
    """The outlook of these ranks (all, where none are named) with these shares (the best, where none are given).

    `lines` are those of ranks that work at once, `alone` is what the whole batch takes each while the others wait; as
    in company where that is not known. One rank alone exchanges nothing.
    """
    by_itself = tuple(alone) if alone is not None else tuple(line.time(batch) for line in lines)
    chosen = tuple(range(len(lines))) if ranks is None else tuple(ranks)
    own = [lines[rank] for rank in chosen]
    split = tuple(shares) if shares is not None else split_batch(own, batch)
    by_rank = dict(zip(chosen, split, strict=True))
    return Outlook(
        batch,
        by_itself,
        tuple(by_rank.get(rank, 0) for rank in range(len(lines))),
        slowest(own, split) if len(chosen) > 1 else by_itself[chosen[0]],
        communication if len(chosen) > 1 else 0.0,
    )


def choose(lines: Sequence[Line], batch: int, communication: float, alone: Sequence[float] | None = None) -> Outlook:
    """The best of the rank that is fastest alone, the two that are fastest in company, and so on to all.

    What few ranks exchange, and how far they hold each other up, is taken to cost what it costs all: less is possible,
    so a rank is rather left out.
    """
    order = sorted(range(len(lines)), key=lambda rank: (lines[rank].time(batch), rank))
    first = foresee(lines, batch, communication, alone=alone).fastest
    several = [sorted(order[:count]) for count in range(2, min(len(lines), batch) + 1)]
    candidates = [foresee(lines, batch, communication, ranks, alone=alone) for ranks in ([first], *several)]
    return min(candidates, key=lambda outlook: outlook.step)


def sentences(whole: Outlook, chosen: Outlook, names: Sequence[str], auto: bool) -> list[str]:
    """What is printed before the run: the bound, the cost, the prediction, and what follows from them.

    `whole` is the outlook of all ranks, `chosen` that of the ranks that will run.
    """
    if len(names) == 1:
        return [f"a step of {whole.batch} samples: {duration(whole.compute)}, on one rank, which exchanges nothing"]
    best = whole.fastest
    fast = names[best]
    times = ", ".join(
        f"{name} {duration(time)}" + (f" (F = {time / whole.alone[best]:.3g})" if rank != best else "")
        for rank, (name, time) in enumerate(zip(names, whole.alone, strict=True))
    )
    shares = " + ".join(str(share) for share in whole.shares)
    lines = [
        f"a step of {whole.batch} samples alone: {times}; so at most {whole.bound:.3g} times {fast} alone",
        f"shares {shares}: {duration(whole.compute)} of work and {duration(whole.communication)} of communication, "
        f"predicted {whole.speedup:.3g} times {fast} alone",
    ]
    if whole.speedup <= 1:
        saved = whole.alone[best] - whole.compute
        lines.append(
            f"several devices cannot pay here: communication takes {duration(whole.communication)} a step, and sharing "
            f"the work saves {duration(saved) if saved > 0 else 'nothing'}"
        )
    if auto and chosen.ranks != whole.ranks:
        left = " and ".join(names[rank] for rank in whole.ranks if rank not in chosen.ranks)
        lines.append(f"@auto leaves out {left}")
    return lines


def duration(seconds: float) -> str:
    """Three digits, in ms, or in s from one on."""
    return f"{seconds:.3g} s" if seconds >= 0.9995 else f"{1e3 * seconds:.3g} ms"
