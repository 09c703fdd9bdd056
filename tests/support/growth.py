"""How processor time grows with the size of what is done: the same on a slow or a busy machine."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from time import process_time


def time_growth(work: Callable[[int], None], small: int, large: int, enough: float, tries: int = 5) -> float:
    """How many times longer the large size takes than the small one, by the best of several tries that take turns;
    fewer tries where it is less than `enough`."""
    best = {small: inf, large: inf}
    for _ in range(tries):
        for size in best:
            begin = process_time()
            work(size)
            best[size] = min(best[size], process_time() - begin)
        if best[large] < enough * best[small]:
            break
    return best[large] / best[small]
