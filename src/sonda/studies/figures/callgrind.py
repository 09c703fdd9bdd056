"""What a study's table can show of a step that callgrind modelled: of all of it, of a phase, of a layer.

`modelled_instructions@backward` is a phase's, `modelled_instructions@stages.0` that of a module and what is inside it.
`modelled_misses@512KiB` is that of all phases with a last level of that size, `modelled_misses` with the machine's own.
"""

from __future__ import annotations

from collections.abc import Callable

from sonda.analysis import reasons
from sonda.analysis.counters.callgrind import Modelled, ModelledSummary
from sonda.analysis.doubts import why_silent
from sonda.analysis.summary import Summary, Value
from sonda.record.errors import SondaError
from sonda.record.spans import PHASES
from sonda.targets.instruments.miss_curve import parse_sizes

PREFIX = "modelled_"


def modelled_value(summary: Summary, metric: str, path: str = "") -> Value:
    """A metric in the unit in which Sonda keeps it; missing with a reason where the run does not have it."""
    unit, read = MODELLED[metric]
    modelled = summary.modelled
    if modelled is None:
        return Value(None, unit, "modelled", reason=why_silent(summary.notes, "callgrind") or reasons.NOT_MODELLED)
    if metric == MISSES:
        return _misses(modelled, path)
    places = _at(modelled, path)
    if not places:
        what = reasons.NO_PHASE.format(path) if path in PHASES else reasons.NO_MODULE
        return Value(None, unit, "modelled", reason=what)
    weights = [1.0 if metric in ADDED else place.counters["instructions"].value or 0.0 for place in places]
    values = [read(place) for place in places]
    total = sum((value.value or 0.0) * weight for value, weight in zip(values, weights, strict=True))
    if metric in ADDED:
        return Value(total, unit, "modelled")
    if not sum(weights):
        return Value(None, unit, "modelled", reason=reasons.NOTHING_EXECUTED)
    return Value(total / sum(weights), unit, "modelled")


def _at(modelled: ModelledSummary, path: str) -> list[Modelled]:
    """The step, a phase, or the layers at and below a path, each without the modules inside it."""
    if not path:
        return [modelled.step]
    phases = [phase.modelled for phase in modelled.phases if phase.name == path]
    inside = (layer for layer in modelled.layers if layer.path == path or layer.path.startswith(f"{path}."))
    return phases or [layer.own for layer in inside]


def _misses(modelled: ModelledSummary, path: str) -> Value:
    """Data misses of the last level in all phases: with the machine's own, or with one of another size."""
    if not path:
        # Of phases, as the points of the curve are: what lies between phases would make the sizes incomparable.
        counts = [phase.modelled.counters for phase in modelled.phases]
        names = ("ll_load_misses", "ll_store_misses")
        return Value(sum(count[name].value or 0.0 for count in counts for name in names), "1", "modelled")
    size = cache_size(path)
    for point in modelled.curve:
        if point.bytes == size:
            return Value(sum(point.phases.values()), "1", "modelled")
    return Value(None, "1", "modelled", reason=reasons.NO_CACHE_SIMULATED.format(path))


def cache_size(text: str) -> int | None:
    """`512KiB` in bytes, read as in `--probe callgrind:512KiB`; None for what is no size of one cache."""
    try:
        (size,) = parse_sizes(text)
    except (SondaError, ValueError):
        return None
    return size


def _counter(name: str) -> Callable[[Modelled], Value]:
    return lambda place: place.counters[name]


MISSES = "modelled_misses"
ADDED = ("modelled_instructions", "modelled_share", "modelled_memory")
"""What adds up; everything else is a ratio to instructions."""
MODELLED: dict[str, tuple[str, Callable[[Modelled], Value]]] = {
    "modelled_instructions": ("1", _counter("instructions")),
    "modelled_loads": ("1", lambda model: model.loads),
    "modelled_stores": ("1", lambda model: model.stores),
    "modelled_branches": ("1", lambda model: model.branches),
    "modelled_share": ("1", lambda model: Value(model.share, "1", "modelled")),
    "modelled_l1_mpki": ("1", lambda model: model.l1_misses),
    "modelled_mpki": ("1", lambda model: model.ll_misses),
    "modelled_branch_mpki": ("1", lambda model: model.mispredictions),
    "modelled_memory": ("B", lambda model: model.memory_bytes),
    MISSES: ("1", _counter("ll_load_misses")),
}
"""Metrics of a modelled step: the unit in which each is kept, and how it is read. Loads, stores and branches are per
instruction, misses (MPKI) per 1,000 instructions; `modelled_share` is of the step's instructions."""
