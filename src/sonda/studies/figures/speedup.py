"""What a study can show of one configuration against another: speed-up, efficiency, Amdahl's bound, energy, EDP.

Without a place the other is the study's base, `speedup@processor` is against the variant `processor`. Speed-ups are of
whole trainings, `training_` of their training part; of runs without epochs, of samples a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sonda.analysis import reasons
from sonda.analysis.bounds import BoundedRatio
from sonda.analysis.comparison.repetitions import quotient
from sonda.analysis.comparison.scaling import amdahl_bound, efficiency, serial_part
from sonda.analysis.steps.training import devices_of
from sonda.analysis.summary import Summary, Value
from sonda.record.target import RanksTarget
from sonda.studies.figures.training import energy_value
from sonda.studies.file.study import Configuration

WORK = ("workload", "epochs", "images", "data", "split", "image", "channels", "classes", "train")
"""Options that change what is to be done; all others change how."""


def different_work(configuration: Configuration, base: Configuration) -> str:
    """Why two configurations cannot be compared: they do different work. Empty where they do the same."""
    changed = [key for key in WORK if configuration.get(key) != base.get(key)]
    return reasons.OTHER_WORK.format(", ".join(changed)) if changed else ""


def relative_value(metric: str, base: Sequence[Summary], own: Sequence[Summary]) -> Value:
    """A metric of the runs of one configuration against those of another; missing with a reason."""
    unit, read = RELATIVE[metric]
    if not base or not own:
        return Value(None, unit, "derived", reason=reasons.NOT_MEASURED_YET if base else reasons.BASE_NOT_MEASURED_YET)
    value = read(base, own)
    return value if isinstance(value, Value) else Value(None, unit, "derived", reason=value)


Read = Callable[[Sequence[Summary], Sequence[Summary]], Value | str]


def _device_ratio(base: Sequence[Summary], own: Sequence[Summary]) -> float:
    """How many times as many devices worked together."""
    return devices_of(own[0].target) / devices_of(base[0].target)


def _times(summaries: Sequence[Summary], whole: bool) -> list[float]:
    """ns of every training; of runs without epochs, ns a sample."""
    trainings = [summary.training for summary in summaries if summary.training is not None]
    if trainings:
        return [training.whole if whole else training.train for training in trainings]
    rates = [summary.parts[0].samples_per_second.value for summary in summaries if summary.parts]
    return [1e9 / rate for rate in rates if rate]


def _speedup(whole: bool) -> Read:
    def value(base: Sequence[Summary], own: Sequence[Summary]) -> Value | str:
        if (base[0].training is None) != (own[0].training is None):
            return reasons.ONE_WITHOUT_EPOCHS
        speedup = quotient(_times(base, whole), _times(own, whole))
        most = _most_of_devices(base[0], own[0])
        if most is None or speedup.value is None:
            return speedup
        return BoundedRatio(speedup, most).value(reasons.ABOVE_DEVICES.format(speedup.value, most))

    return value


def _most_of_devices(base: Summary, own: Summary) -> float | None:
    """The most that unequal devices were foretold to bring over the fastest of them alone; None where the base is not
    that one, or has another batch."""
    if not isinstance(own.target, RanksTarget) or own.target.outlook is None or devices_of(base.target) > 1:
        return None
    outlook, ranks = own.target.outlook, own.target.ranks
    alone = [time for time in outlook.alone_ns or () if time is not None]
    if not alone or not outlook.bound or len(ranks) != len(alone):
        return None
    fastest = ranks[alone.index(min(alone))].device
    same = base.workload.batch == own.workload.batch and base.target.spec == fastest
    return outlook.bound if same else None


def _scaling(whole: bool) -> Read:
    def value(base: Sequence[Summary], own: Sequence[Summary]) -> Value | str:
        speedup = _speedup(whole)(base, own)
        return speedup if isinstance(speedup, str) else efficiency(speedup, _device_ratio(base, own))

    return value


def _amdahl(base: Sequence[Summary], own: Sequence[Summary]) -> Value | str:
    """The most that so many more devices can bring where validation and test of the base are not shared."""
    trainings = [summary.training for summary in base if summary.training is not None]
    speedup = _speedup(True)(base, own)
    if not trainings or isinstance(speedup, str):
        return reasons.NO_EPOCHS if not trainings else speedup
    return amdahl_bound(trainings, _device_ratio(base, own), speedup)


def _serial(base: Sequence[Summary], own: Sequence[Summary]) -> Value | str:
    speedup = _speedup(True)(base, own)
    return speedup if isinstance(speedup, str) else serial_part(speedup, _device_ratio(base, own))


def _energy(metric: str) -> Read:
    def value(base: Sequence[Summary], own: Sequence[Summary]) -> Value | str:
        sides = [[energy_value(summary, metric) for summary in of] for of in (own, base)]
        known = [[energy for energy in of if energy.value] for of in sides]
        if not known[0] or not known[1]:
            return next((energy.reason for of in sides for energy in of if energy.reason), reasons.ENERGY_NOT_READ)
        if len({energy.source for of in known for energy in of}) > 1:
            return reasons.ONE_ESTIMATED
        ratio = quotient([energy.value or 0.0 for energy in known[0]], [one.value or 0.0 for one in known[1]])
        source = "estimated" if known[0][0].source == "estimated" else "derived"
        return Value(ratio.value, "1", source, ratio.low, ratio.high, ratio.reason)

    return value


RELATIVE: dict[str, tuple[str, Read]] = {
    "speedup": ("1", _speedup(True)),
    "training_speedup": ("1", _speedup(False)),
    "scaling": ("1", _scaling(True)),
    "training_scaling": ("1", _scaling(False)),
    "amdahl_speedup": ("1", _amdahl),
    "serial": ("1", _serial),
    "relative_energy": ("1", _energy("energy")),
    "relative_energy_with_idle": ("1", _energy("energy_with_idle")),
    "relative_edp": ("1", _energy("edp")),
    "relative_edp_with_idle": ("1", _energy("edp_with_idle")),
}
"""Metrics of two configurations. `scaling` is the speed-up over the number of devices, `serial` the share of the time
that explains the speed-up (Karp and Flatt)."""
RELATIVE_OF_ENERGY = {name for name in RELATIVE if name.startswith("relative_")}
"""What energy runs tell."""
