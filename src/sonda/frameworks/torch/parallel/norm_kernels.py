"""What ranks that share memory compute of each other's statistics, compiled: some hundred numbers a time, many times a
step, where every call of a framework costs more than the arithmetic.

`slots` are the small exchanges of all ranks, in their order. Everybody computes the same from the same numbers in the
same order, so that all have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from sonda.record.jit import compiled as compiled_one


def pack(one: np.ndarray, other: np.ndarray, last: float, slot: np.ndarray) -> None:
    """Write two arrays of equal length, and a number, one after the other."""
    length = len(one)
    for at in range(length):
        slot[at] = one[at]
        slot[length + at] = other[at]
    slot[2 * length] = last


def combine(slots: tuple[np.ndarray, ...], eps: float, found: np.ndarray) -> float:
    """Mean, biased variance and 1 / sqrt(variance + eps) of all ranks' values together, rows of `found`.

    Every slot holds a rank's means, variances and number of values. Chan's formula, which does not cancel. Returns the
    number of all values.
    """
    channels = found.shape[1]
    count = 0.0
    for slot in slots:
        count += slot[2 * channels]
    for at in range(channels):
        mean = 0.0
        for slot in slots:
            mean += slot[2 * channels] / count * slot[at]
        variance = 0.0
        for slot in slots:
            apart = slot[at] - mean
            variance += slot[2 * channels] / count * (slot[channels + at] + apart * apart)
        found[0, at] = mean
        found[1, at] = variance
        found[2, at] = 1.0 / np.sqrt(variance + eps)
    return count


def gradient_terms(
    slots: tuple[np.ndarray, ...], count: float, inverse: np.ndarray, weight: np.ndarray, found: np.ndarray
) -> None:
    """Slope, shift and factor of every channel, rows of `found`: dx = factor·dy + slope·normalised + shift.

    Every slot holds a rank's sums of gradient x normalised value, and of gradient. `weight` may be empty: all 1.
    """
    channels = found.shape[1]
    for at in range(channels):
        scaled = 0.0
        added = 0.0
        for slot in slots:
            scaled += slot[at]
            added += slot[channels + at]
        factor = inverse[at] * (weight[at] if len(weight) else 1.0)
        found[0, at] = -factor * scaled / count
        found[1, at] = -factor * added / count
        found[2, at] = factor


def statistics(values: np.ndarray, slot: np.ndarray) -> None:
    """Write mean, biased variance and number of this rank's values, samples x channels x places, to its slot, as `pack`
    would. Two passes, in double precision, so that a large mean does not cancel the variance."""
    samples, channels, places = values.shape
    count = samples * places
    for channel in range(channels):
        total = 0.0
        for sample in range(samples):
            row = values[sample, channel]
            for at in range(places):
                total += float(row[at])
        mean = total / count
        spread = 0.0
        for sample in range(samples):
            row = values[sample, channel]
            for at in range(places):
                apart = float(row[at]) - mean
                spread += apart * apart
        slot[channel] = mean
        slot[channels + channel] = spread / count
    slot[2 * channels] = count


def normalise(values: np.ndarray, found: np.ndarray, weight: np.ndarray, bias: np.ndarray, given: np.ndarray) -> None:
    """weight·(x - mean)/σ + bias, samples x channels x places; `found` are the rows of `combine`. `weight` and `bias`
    may be empty: 1 and 0."""
    line = np.empty_like(found[:2])  # in the type of the values: in double precision the pass would take twice as long
    for channel in range(values.shape[1]):
        line[0, channel] = found[2, channel] * (weight[channel] if len(weight) else 1.0)
        line[1, channel] = (bias[channel] if len(bias) else 0.0) - found[0, channel] * line[0, channel]
    for sample in range(values.shape[0]):
        for channel in range(values.shape[1]):
            slope, shift = line[0, channel], line[1, channel]
            x, y = values[sample, channel], given[sample, channel]
            for at in range(len(x)):
                y[at] = slope * x[at] + shift


def follow(found: np.ndarray, count: float, momentum: float, mean: np.ndarray, variance: np.ndarray) -> None:
    """Move running statistics, in place, towards those that `combine` found of so many values; the variance that is
    kept is the unbiased one."""
    unbiased = count / (count - 1)
    for at in range(len(mean)):
        mean[at] += momentum * (found[0, at] - mean[at])
        variance[at] += momentum * (found[1, at] * unbiased - variance[at])


def gradient_sums(values: np.ndarray, gradient: np.ndarray, found: np.ndarray, slot: np.ndarray) -> None:
    """Write this rank's sums of gradient x normalised value, and of gradient, of every channel to its slot, as `pack`
    would; they are the gradients of weight and bias too. In double precision."""
    samples, channels, places = values.shape
    for channel in range(channels):
        mean = found[0, channel]
        scaled = 0.0
        added = 0.0
        for sample in range(samples):
            x, dy = values[sample, channel], gradient[sample, channel]
            for at in range(places):
                scaled += float(dy[at] * (x[at] - mean))
                added += float(dy[at])
        slot[channel] = scaled * found[2, channel]
        slot[channels + channel] = added
    slot[2 * channels] = 0.0


def input_gradient(
    values: np.ndarray, gradient: np.ndarray, found: np.ndarray, terms: np.ndarray, given: np.ndarray
) -> None:
    """dx in one pass over x and dy, samples x channels x places; `found` are the rows of `combine`, `terms` those of
    `gradient_terms`."""
    for sample in range(values.shape[0]):
        for channel in range(values.shape[1]):
            factor = terms[2, channel]
            slope = terms[0, channel] * found[2, channel]
            shift = terms[1, channel] - slope * found[0, channel]
            x, dy, dx = values[sample, channel], gradient[sample, channel], given[sample, channel]
            for at in range(len(x)):
                dx[at] = factor * dy[at] + slope * x[at] + shift


class Kernels(NamedTuple):
    """All of them."""

    pack: Callable[..., Any]
    combine: Callable[..., Any]
    gradient_terms: Callable[..., Any]
    statistics: Callable[..., Any]
    normalise: Callable[..., Any]
    follow: Callable[..., Any]
    gradient_sums: Callable[..., Any]
    input_gradient: Callable[..., Any]


WRITTEN = Kernels(pack, combine, gradient_terms, statistics, normalise, follow, gradient_sums, input_gradient)
"""All of them as they are written here."""
LOOSE = (statistics, gradient_sums)
"""Sums over a rank's own values, which may be added up in any order, many at a time; what all ranks compute may not."""


@cache
def compiled() -> Kernels:
    """The kernels as machine code."""
    return Kernels(*(compiled_one(kernel, loose=kernel in LOOSE) for kernel in WRITTEN))
