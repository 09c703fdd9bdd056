"""Compiled kernels of the shared batch norm, for ranks that share memory.

They combine a few hundred numbers at a time, many times a step, where every call of a framework costs more than the
arithmetic. `slots` are the small exchanges of all ranks, in order. Every rank computes the same from the same numbers
in the same order, so all have the same bits. "Moments" are the three rows that `combine` writes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from sonda.record.jit import compiled


def pack(first: np.ndarray, second: np.ndarray, last: float, slot: np.ndarray) -> None:
    """Write two arrays of equal length and a number to `slot`, one after the other."""
    length = len(first)
    for at in range(length):
        slot[at] = first[at]
        slot[length + at] = second[at]
    slot[2 * length] = last


def combine(slots: tuple[np.ndarray, ...], eps: float, moments: np.ndarray) -> float:
    """Write mean, biased variance and 1 / sqrt(variance + eps) of all ranks' values as the rows of `moments`.

    Every slot holds a rank's means, variances and number of values. Chan's formula combines them without cancellation.
    Returns the number of all values.
    """
    channels = moments.shape[1]
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
        moments[0, at] = mean
        moments[1, at] = variance
        moments[2, at] = 1.0 / np.sqrt(variance + eps)
    return count


def gradient_terms(
    slots: tuple[np.ndarray, ...], count: float, inverse: np.ndarray, weight: np.ndarray, terms: np.ndarray
) -> None:
    """Write slope, shift and factor of every channel as the rows of `terms`: dx = factor·dy + slope·normalised + shift.

    Every slot holds a rank's sums of gradient x normalised value, and of gradient. An empty `weight` means all 1.
    """
    channels = terms.shape[1]
    for at in range(channels):
        scaled = 0.0
        added = 0.0
        for slot in slots:
            scaled += slot[at]
            added += slot[channels + at]
        factor = inverse[at] * (weight[at] if len(weight) else 1.0)
        terms[0, at] = -factor * scaled / count
        terms[1, at] = -factor * added / count
        terms[2, at] = factor


def statistics(values: np.ndarray, slot: np.ndarray) -> None:
    """Write mean, biased variance and number of this rank's values to its slot, in the layout of `pack`.

    `values` are samples x channels x places. Two passes in double precision, so that a large mean does not cancel the
    variance.
    """
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


def normalise(
    values: np.ndarray, moments: np.ndarray, weight: np.ndarray, bias: np.ndarray, result: np.ndarray
) -> None:
    """Write weight·(x - mean)/σ + bias to `result`, samples x channels x places.

    An empty `weight` means 1, an empty `bias` 0.
    """
    # In the type of the values: in double precision the pass would take twice as long.
    line = np.empty_like(moments[:2])
    for channel in range(values.shape[1]):
        line[0, channel] = moments[2, channel] * (weight[channel] if len(weight) else 1.0)
        line[1, channel] = (bias[channel] if len(bias) else 0.0) - moments[0, channel] * line[0, channel]
    for sample in range(values.shape[0]):
        for channel in range(values.shape[1]):
            slope, shift = line[0, channel], line[1, channel]
            x, y = values[sample, channel], result[sample, channel]
            for at in range(len(x)):
                y[at] = slope * x[at] + shift


def update_running(moments: np.ndarray, count: float, momentum: float, mean: np.ndarray, variance: np.ndarray) -> None:
    """Move running statistics in place towards the moments of `count` values. The running variance is unbiased."""
    unbiased = count / (count - 1)
    for at in range(len(mean)):
        mean[at] += momentum * (moments[0, at] - mean[at])
        variance[at] += momentum * (moments[1, at] * unbiased - variance[at])


def gradient_sums(values: np.ndarray, gradient: np.ndarray, moments: np.ndarray, slot: np.ndarray) -> None:
    """Write this rank's sums of gradient x normalised value, and of gradient, to its slot, in the layout of `pack`.

    They are also the gradients of weight and bias. Sums are in double precision.
    """
    samples, channels, places = values.shape
    for channel in range(channels):
        mean = moments[0, channel]
        scaled = 0.0
        added = 0.0
        for sample in range(samples):
            x, dy = values[sample, channel], gradient[sample, channel]
            for at in range(places):
                scaled += float(dy[at] * (x[at] - mean))
                added += float(dy[at])
        slot[channel] = scaled * moments[2, channel]
        slot[channels + channel] = added
    slot[2 * channels] = 0.0


def input_gradient(
    values: np.ndarray, gradient: np.ndarray, moments: np.ndarray, terms: np.ndarray, result: np.ndarray
) -> None:
    """Write dx to `result` in one pass over x and dy, samples x channels x places; `terms` are those of
    `gradient_terms`."""
    for sample in range(values.shape[0]):
        for channel in range(values.shape[1]):
            factor = terms[2, channel]
            slope = terms[0, channel] * moments[2, channel]
            shift = terms[1, channel] - slope * moments[0, channel]
            x, dy, dx = values[sample, channel], gradient[sample, channel], result[sample, channel]
            for at in range(len(x)):
                dx[at] = factor * dy[at] + slope * x[at] + shift


class NormKernels(NamedTuple):
    """The kernels of this module, compiled or not."""

    pack: Callable[..., Any]
    combine: Callable[..., Any]
    gradient_terms: Callable[..., Any]
    statistics: Callable[..., Any]
    normalise: Callable[..., Any]
    update_running: Callable[..., Any]
    gradient_sums: Callable[..., Any]
    input_gradient: Callable[..., Any]


PYTHON_KERNELS = NormKernels(
    pack, combine, gradient_terms, statistics, normalise, update_running, gradient_sums, input_gradient
)
"""The kernels as Python functions."""
REORDERABLE = (statistics, gradient_sums)
"""Sums over a rank's own values, which may be vectorised in any order. Kernels that all ranks compute may not."""


@cache
def compile_kernels() -> NormKernels:
    """The kernels as machine code."""
    return NormKernels(*(compiled(kernel, loose=kernel in REORDERABLE) for kernel in PYTHON_KERNELS))
