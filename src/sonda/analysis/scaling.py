"""Several devices against fewer: speed-up, efficiency, and the bounds of Amdahl (1967) and of Karp and Flatt (1990)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sonda.analysis.summary import Value
from sonda.analysis.training import Training


def amdahl(serial: float, times: float) -> float:
    """The most that `times` as many devices can bring where a share of the time, 0 to 1, is not shared by them."""
    return 1.0 / (serial + (1.0 - serial) / times)


def serial_share(training: Training) -> float:
    """The share of a training, 0 to 1, that is not training: validation and test, which every device may have to do."""
    return 1.0 - training.train / training.whole


def karp_flatt(speedup: float, times: float) -> float | None:
    """The serial share that explains a measured speed-up of `times` as many devices; None where there are no more.

    A. Karp and H. Flatt, Commun. ACM 33 (1990) 539. It holds everything that does not get faster: communication too.
    """
    return None if times <= 1 else (1.0 / speedup - 1.0 / times) / (1.0 - 1.0 / times)


def efficiency(speedup: Value, times: float) -> Value:
    """Speed-up over so many times the devices."""
    if speedup.value is None:
        return speedup
    low, high = (None if end is None else end / times for end in (speedup.low, speedup.high))
    return Value(speedup.value / times, "1", "derived", low, high, speedup.reason)


@dataclass(frozen=True)
class ScalingPoint:
    """One configuration on a scaling curve."""

    name: str
    devices: int
    whole: Value
    """Speed-up of training, validation and test together."""
    training: Value
    """Of the training part."""


@dataclass(frozen=True)
class ScalingCurve:
    """Speed-ups by number of devices, and the bound that the base's own validation and test set."""

    base: str
    devices: int
    """Of the base."""
    serial: float
    """Share of the base's time that is not training."""
    points: tuple[ScalingPoint, ...]

    def bound(self, devices: int) -> float:
        """Amdahl's, if only training is shared."""
        return amdahl(self.serial, devices / self.devices)


def scaling_curve(base: str, of_base: Sequence[Training], points: Sequence[ScalingPoint]) -> ScalingCurve | None:
    """None where the base was not trained, or nothing has another number of devices."""
    if not of_base or len({one.devices for one in points}) < 2:
        return None
    shares = sorted(serial_share(one) for one in of_base)
    return ScalingCurve(base, of_base[0].devices, shares[len(shares) // 2], tuple(points))
