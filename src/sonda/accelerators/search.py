"""The search for the mapping that costs least, with the simulator as its judge.

Mappings are tried in the order of what each takes at least (`least_cycles`), and only while that is below the best cost
so far: what is left out cannot be better. With a finite buffer, half of the trials go by what each reads from it. Where
more would have to be tried than a limit, the search ends there and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.result import Result
from sonda.record.errors import SondaError

Whole = NDArray[np.int64]
MOST_TRIED = 400
"""Mappings that are simulated for one operation, beside those given."""


@dataclass(frozen=True)
class Cost:
    """What a mapping costs, in cycles: the engine's own, and those in which it waits for memory."""

    of: Callable[[dict[str, Any], Result], int]
    per_element: float = 0.0
    """Cycles that the memory takes to bring an element; 0 where the buffer is unlimited."""


@dataclass(frozen=True)
class Choice:
    """A mapping, what an engine makes of it, and how it was found."""

    mapping: dict[str, Any]
    result: Result
    tried: int = 1
    """Mappings that were simulated."""
    proved: bool = False
    """Whether nothing that was listed can cost less."""


@dataclass(frozen=True)
class Options:
    """Mappings of one form, by number: what each takes at least, what it reads from the buffer, how to simulate it."""

    least: Whole
    reads: Whole
    simulate: Callable[[int], Choice]


def search(starts: Iterable[Choice], options: list[Options], cost: Cost, most: int = MOST_TRIED) -> Choice:
    """The cheapest of the starts and of all options; the first of equals, so that a start is kept where none is better.

    Raises SondaError where there is nothing to choose from.
    """
    best: Choice | None = None
    lowest = np.iinfo(np.int64).max
    tried = 0
    for start in starts:
        tried += 1
        costs = cost.of(start.mapping, start.result)
        if costs < lowest:
            best, lowest = start, costs
    form = np.repeat(np.arange(len(options)), [len(one.least) for one in options])
    number = np.concatenate([np.arange(len(one.least)) for one in options])
    least = np.concatenate([one.least for one in options])
    orders = [least]
    if cost.per_element:
        orders.append(np.maximum(least, np.concatenate([one.reads for one in options]) * cost.per_element))
    untried = np.ones(len(least), np.bool_)
    for order in orders:
        left = most // len(orders)
        for place in np.argsort(order, kind="stable").tolist():
            if not left or (order is least and least[place] >= lowest):
                break
            if not untried[place] or least[place] >= lowest:
                continue
            untried[place] = False
            try:
                found = options[form[place]].simulate(int(number[place]))
            except SondaError:
                continue  # more blocks of filters overlap than an engine follows
            left -= 1
            tried += 1
            costs = cost.of(found.mapping, found.result)
            if costs < lowest:
                best, lowest = found, costs
    if best is None:
        raise SondaError("no mapping of this layer fits the engine", "give more multipliers, or accumulators")
    return Choice(best.mapping, best.result, tried, proved=not bool((untried & (least < lowest)).any()))
