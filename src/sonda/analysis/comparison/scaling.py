"""Several devices against fewer: speed-up, efficiency, and the bounds of Amdahl (1967) and of Karp and Flatt (1990)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sonda.analysis import reasons
from sonda.analysis.bounds import BoundedRatio
from sonda.analysis.statistics import median
from sonda.analysis.steps.training import Training
from sonda.analysis.summary import Value


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


def serial_part(speedup: Value, times: float) -> Value:
    """The same with the interval of the speed-up, 0 to 1; missing with a reason where no serial part explains it."""
    if speedup.value is None or not speedup.value:
        return speedup
    if times <= 1:
        return Value(None, "1", "derived", reason=reasons.NO_MORE_DEVICES)
    low, high = (karp_flatt(end, times) if end else None for end in (speedup.high, speedup.low))
    part = Value(karp_flatt(speedup.value, times), "1", "derived", low, high, speedup.reason)
    slower = speedup.value < 1
    return BoundedRatio(part).value(reasons.SLOWER_THAN_BASE if slower else _beyond_devices(speedup.value, times))


def efficiency(speedup: Value, times: float) -> Value:
    """Speed-up over so many times the devices, 0 to 1; missing with a reason where it is more than they can bring."""
    if speedup.value is None:
        return speedup
    low, high = (None if end is None else end / times for end in (speedup.low, speedup.high))
    share = Value(speedup.value / times, "1", "derived", low, high, speedup.reason)
    return BoundedRatio(share).value(_beyond_devices(speedup.value, times))


def _beyond_devices(speedup: float, times: float) -> str:
    reason = reasons.FASTER_THAN_DEVICES if times == 1 else reasons.FASTER_THAN_MORE_DEVICES
    return reason.format(speedup, times)


def amdahl_bound(base: Sequence[Training], times: float, speedup: Value) -> Value:
    """Amdahl's bound where validation and test of the base are not shared, with the interval of the base's runs.

    Missing with a reason where the measured speed-up is beyond it: then they were shared, or devices differ.
    """
    share = median([serial_share(training) for training in base])
    low, high = (None if end is None else amdahl(end, times) for end in (share.high, share.low))
    most = amdahl(share.value, times)
    bound = Value(most, "1", "derived", low, high, few=share.few)
    if not BoundedRatio(speedup, most if high is None else high).broken:
        return bound
    return Value(None, "1", "derived", reason=reasons.BEYOND_BOUND.format(speedup.value, most))


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

    def bound(self, devices: int) -> float | None:
        """Amdahl's, if only training is shared; None where a point of so many devices is beyond it, so that it is
        not."""
        most = amdahl(self.serial, devices / self.devices)
        beyond = any(BoundedRatio(point.whole, most).broken for point in self.points if point.devices == devices)
        return None if beyond else most


def scaling_curve(base: str, of_base: Sequence[Training], points: Sequence[ScalingPoint]) -> ScalingCurve | None:
    """None where the base was not trained, or nothing has another number of devices."""
    if not of_base or len({point.devices for point in points}) < 2:
        return None
    shares = sorted(serial_share(training) for training in of_base)
    return ScalingCurve(base, of_base[0].devices, shares[len(shares) // 2], tuple(points))
