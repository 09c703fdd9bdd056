"""The Pareto front: the points that no other point beats in everything."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
MOST_OBJECTIVES = 3
FEW = 10_000
"""Rows that are not worth thinning."""
ROUNDS = 8


def pareto_front(objectives: Numbers) -> NDArray[np.bool_]:
    """Which rows no other row dominates; up to three columns, less is better, and a row with NaN is on no front.

    A row dominates another when it is nowhere more and somewhere less; equal rows do not dominate each other. Takes
    n log n: rows are visited by growing first column, and a staircase keeps what the other two columns reached so far.
    """
    rows, columns = objectives.shape
    if not 1 <= columns <= MOST_OBJECTIVES:
        raise ValueError(f"{columns} objectives, not 1 to {MOST_OBJECTIVES}")
    wide = np.zeros((rows, MOST_OBJECTIVES))
    wide[:, :columns] = objectives
    on_front = np.zeros(rows, dtype=bool)
    known = _thin_out(wide, np.flatnonzero(~np.isnan(wide).any(axis=1)))
    order = known[np.lexsort(wide[known].T[::-1])]
    ordered = wide[order]
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    starts = np.flatnonzero(is_new)
    stairs = np.array(_staircase(ordered[starts, 1].tolist(), ordered[starts, 2].tolist()), dtype=bool)
    on_front[order] = np.repeat(stairs, np.diff(np.append(starts, len(order))))
    return on_front


def knee_row(objectives: Numbers) -> int:
    """The row with the least product of its objectives, the first of equals; -1 where no row is known.

    A product asks for no weights and no units: 10 % less of one objective is worth 10 % more of another.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        effort = np.log(objectives).sum(axis=1)
    known = ~np.isnan(objectives).any(axis=1)
    return least_row(np.where(known, effort, np.nan)[:, None], 0)


def least_row(objectives: Numbers, column: int) -> int:
    """The row that is least in a column, among equals in the others from the left; -1 where no row is known."""
    known = np.flatnonzero(~np.isnan(objectives).any(axis=1))
    if not len(known):
        return -1
    ties = [index for index in range(objectives.shape[1]) if index != column]
    keys = [objectives[known, index] for index in (column, *ties)]
    return int(known[np.lexsort(keys[::-1])[0]])


def _thin_out(wide: Numbers, known: NDArray[np.int64]) -> NDArray[np.int64]:
    """The known rows without most of those that a few good ones dominate: looking at all at once is cheap."""
    for turn in range(ROUNDS):
        if len(known) <= FEW:
            break
        values = wide[known]
        low, high = values.min(axis=0), values.max(axis=0)
        with np.errstate(invalid="ignore"):
            reach = high - low
        inside = np.where(np.isfinite(reach) & (reach > 0), reach, 1)
        # Each round weighs the objectives otherwise, so that it finds another good row.
        weights = 1 + np.arange(MOST_OBJECTIVES) * (turn % 3)
        good = values[np.argmin((values / inside * np.roll(weights, turn)).sum(axis=1))]
        known = known[~((values >= good).all(axis=1) & (values > good).any(axis=1))]
    return known


def _staircase(second: list[float], third: list[float]) -> list[bool]:
    """Of distinct rows in the order of their first column, which none before them dominates."""
    steps: list[float] = []
    heights: list[float] = []
    on_stairs = []
    for across, height in zip(second, third, strict=True):
        at = bisect_right(steps, across)
        if at and heights[at - 1] <= height:
            on_stairs.append(False)
            continue
        on_stairs.append(True)
        # Steps grow and heights fall: what the new step makes needless stands right behind it.
        begin = bisect_left(steps, across)
        end = begin
        while end < len(steps) and heights[end] >= height:
            end += 1
        steps[begin:end] = [across]
        heights[begin:end] = [height]
    return on_stairs
