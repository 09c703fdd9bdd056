"""What a study can show of one configuration against another: speed-up, efficiency, Amdahl's bound, energy, EDP.

Without a place the other is the study's base, `speedup@processor` is against the variant `processor`. Speed-ups are of
whole trainings, `training_` of their training part; of runs without epochs, of samples a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from sonda.analysis.scaling import amdahl, efficiency, karp_flatt, serial_share
from sonda.analysis.spread import quotient
from sonda.analysis.summary import Summary, Value
from sonda.analysis.training import devices_of
from sonda.studies.study import Configuration
from sonda.studies.trained_figure import NO_EPOCHS, NOT_READ, energy_value

NO_BASE = "the study names no base"
WORK = ("workload", "epochs", "images", "data", "split", "image", "channels", "classes", "train")
"""Options that change what is to be done; all others change how."""


def other_work(one: Configuration, base: Configuration) -> str:
    """Why two configurations cannot be held against each other: they do not do the same work. Empty where they do."""
    changed = [key for key in WORK if one.get(key) != base.get(key)]
    return f"it does other work than the base ({', '.join(changed)})" if changed else ""


def relative_value(metric: str, base: Sequence[Summary], own: Sequence[Summary]) -> Value:
    """A metric of the runs of one configuration against those of another; missing with a reason."""
    unit, read = RELATIVE[metric]
    if not base or not own:
        return Value(None, unit, "derived", reason="not measured yet" if base else "the base is not measured yet")
    found = read(base, own)
    return found if isinstance(found, Value) else Value(None, unit, "derived", reason=found)


Read = Callable[[Sequence[Summary], Sequence[Summary]], Value | str]


def _more(base: Sequence[Summary], own: Sequence[Summary]) -> float:
    """How many times as many devices worked together."""
    return devices_of(own[0].target) / devices_of(base[0].target)


def _times(summaries: Sequence[Summary], whole: bool) -> list[float]:
    """ns of every training; of runs without epochs, ns a sample."""
    trainings = [one.training for one in summaries if one.training is not None]
    if trainings:
        return [one.whole if whole else one.train for one in trainings]
    rates = [one.parts[0].samples_per_second.value for one in summaries if one.parts]
    return [1e9 / rate for rate in rates if rate]


def _speedup(whole: bool) -> Read:
    def value(base: Sequence[Summary], own: Sequence[Summary]) -> Value | str:
        if (base[0].training is None) != (own[0].training is None):
            return "only one of the two trained by epochs"
        return quotient(_times(base, whole), _times(own, whole))

    return value


def _scaling(whole: bool) -> Read:
    def value(base: Sequence[Summary], own: Sequence[Summary]) -> Value | str:
        speedup = _speedup(whole)(base, own)
        return speedup if isinstance(speedup, str) else efficiency(speedup, _more(base, own))

    return value


def _amdahl(base: Sequence[Summary], own: Sequence[Summary]) -> Value | str:
    """The most that so many more devices can bring where validation and test of the base are not shared."""
    shares = [serial_share(one.training) for one in base if one.training is not None]
    if not shares:
        return NO_EPOCHS
    return Value(amdahl(median(shares), _more(base, own)), "1", "derived")


def _serial(base: Sequence[Summary], own: Sequence[Summary]) -> Value | str:
    speedup = _speedup(True)(base, own)
    if isinstance(speedup, str) or speedup.value is None:
        return speedup
    found = karp_flatt(speedup.value, _more(base, own))
    return "there are no more devices than in the base" if found is None else Value(found, "1", "derived")


def _energy(metric: str) -> Read:
    def value(base: Sequence[Summary], own: Sequence[Summary]) -> Value | str:
        sides = [[energy_value(one, metric) for one in of] for of in (own, base)]
        known = [[one for one in of if one.value] for of in sides]
        if not known[0] or not known[1]:
            return next((one.reason for of in sides for one in of if one.reason), NOT_READ)
        if len({one.source for of in known for one in of}) > 1:
            return "one of the two is estimated"
        found = quotient([one.value or 0.0 for one in known[0]], [one.value or 0.0 for one in known[1]])
        source = "estimated" if known[0][0].source == "estimated" else "derived"
        return Value(found.value, "1", source, found.low, found.high, found.reason)

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
