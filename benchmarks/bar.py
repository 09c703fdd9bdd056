"""Bars: what a benchmark must reach, and whether the measured interval is below, above, or across it."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 4_000


@dataclass(frozen=True)
class Interval:
    """A median with its 95 % bootstrap interval."""

    median: float
    low: float
    high: float

    def text(self, digits: int = 2, unit: str = "") -> str:
        return f"{self.median:.{digits}f}{unit} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


@dataclass(frozen=True)
class Bar:
    """One promise. `state` is PASS, FAIL, or NOISY where the interval does not tell."""

    promise: str
    figure: str
    state: str

    def __str__(self) -> str:
        return f"{self.state:5}  {self.promise}: {self.figure}"


def paired_interval(values: Sequence[float] | np.ndarray) -> Interval:
    """The median of what interleaved rounds gave, one value each, with its bootstrap interval over rounds."""
    rounds = np.asarray(values, dtype=np.float64)
    chance = np.random.default_rng(0)
    medians = np.median(rounds[chance.integers(0, len(rounds), (RESAMPLES, len(rounds)))], axis=1)
    low, high = np.quantile(medians, (0.025, 0.975))
    return Interval(float(np.median(rounds)), float(low), float(high))


def ratio_interval(above: np.ndarray, below: np.ndarray) -> Interval:
    """The ratio of the medians of two costs that the same rounds gave, with its bootstrap interval over rounds."""
    chance = np.random.default_rng(0)
    chosen = chance.integers(0, len(above), (RESAMPLES, len(above)))
    ratios = np.median(above[chosen], axis=1) / np.median(below[chosen], axis=1)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return Interval(float(np.median(above) / np.median(below)), float(low), float(high))


def at_most(promise: str, interval: Interval, limit: float, unit: str = "", digits: int = 2) -> Bar:
    """PASS when the whole interval is at or below the limit, FAIL when all of it is above."""
    figure = f"{interval.text(digits, unit)}, bar {limit:g}{unit}"
    if interval.high <= limit:
        return Bar(promise, figure, "PASS")
    if interval.low > limit:
        return Bar(promise, figure, "FAIL")
    return Bar(promise, f"too noisy to resolve: interval is {figure}", "NOISY")


def at_least(promise: str, interval: Interval, limit: float, unit: str = "", digits: int = 2) -> Bar:
    """PASS when the whole interval is at or above the limit, FAIL when all of it is below."""
    figure = f"{interval.text(digits, unit)}, bar {limit:g}{unit}"
    if interval.low >= limit:
        return Bar(promise, figure, "PASS")
    if interval.high < limit:
        return Bar(promise, figure, "FAIL")
    return Bar(promise, f"too noisy to resolve: interval is {figure}", "NOISY")


def machine_line() -> str:
    """What the figures were measured on, and how busy it was."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            name = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), name)
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    return f"{name}, {cores} cores, load {load:.1f} when this began, Python {platform.python_version()}"
