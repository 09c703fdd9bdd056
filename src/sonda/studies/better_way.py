"""Which way of doing the same work is better, as a study found it, and what it costs besides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sonda.analysis.choice import best_of
from sonda.analysis.optimisation_words import at_places
from sonda.analysis.spread import quotient
from sonda.analysis.summary import Value
from sonda.analysis.wording import join
from sonda.studies.plan import NODE, configurations, simulated
from sonda.studies.study import VARIANT, Configuration, Study, key_of
from sonda.studies.table import Cell, StudyRow, StudyTable

HOW = (
    VARIANT, NODE, "on", "framework", "batch", "threads", "inter_op_threads", "bind", "precision", "prefetch",
    "workers", "cache", "pin", "channels_last", "compile", "gpu_private_threads", "transfer", "mapping", "set", "probe",
)  # fmt: skip
"""What may differ between two ways of doing the same work."""
RATES = (
    ("samples_per_second", True), ("training_epoch_s", False), ("rate_under_bound_per_second", True),
    ("latency_ms@90", False),
)  # fmt: skip
"""Figures that say which way is faster whatever the batch is, the first that a study has; larger is better or not."""
STEPS = ("step_us", "step_ms", "step_s", "cycles")
"""They say it where batches are equal: a step of a larger one does more."""
COSTS = (("energy_uJ", "energy"), ("energy_J", "energy"), ("peak_memory_MB", "memory"))
NOTICED = 0.05
"""Costs that differ by less are not said."""
ACCURACY = "accuracy_percent"


@dataclass(frozen=True)
class Better:
    """One way is better than another, at one place of a study."""

    best: str
    other: str
    place: str
    times: Value
    """How many times as fast."""
    costs: tuple[tuple[str, float], ...] = ()
    """What is spent besides, and how many times as much."""
    accuracy: tuple[float, float] | None = None
    """In percent, of the best and of the other, where it differs."""


def better_ways(study: Study, table: StudyTable) -> tuple[list[Better], int, int]:
    """What is better at which place of a study without a base; how many places have a choice, and how many
    repetitions there are at most where it cannot be told (0: nowhere)."""
    wanted = configurations(study)
    one_batch = len({one.get("batch") for one in wanted}) == 1
    groups = [group for group in _same_work(study, table) if len(group) > 1]
    figure = next((one for one in RATES if _known(groups, one[0])), None)
    if figure is None and one_batch:
        figure = next(((key, False) for key in STEPS if _known(groups, key)), None)
    if figure is None:
        return [], 0, 0
    found: list[Better] = []
    key, larger = figure
    chosen = [{name: row for name, row in group.items() if cell_of(row, key).value.value is not None}
              for group in groups]  # fmt: skip
    chosen = [group for group in chosen if len(group) > 1]
    comparisons = sum(len(group) - 1 for group in chosen)
    exact = all(simulated({**table.fixed, **one}) for one in wanted)
    same_energy = one_batch or all(one.get("epochs") for one in wanted)
    undecided = 0
    for group in chosen:
        values = {name: cell_of(row, key).values for name, row in group.items()}
        choice = best_of(values, next(iter(group)), larger=larger, exact=exact, comparisons=comparisons)
        if choice is None:
            undecided = 0 if exact else max(undecided, *map(len, values.values()))
            continue
        best, other = group[choice.best], group[choice.other]
        place = _place(table, best)
        price = costs(best, other, same_energy)
        found.append(Better(choice.best, choice.other, place, choice.times, price, accuracy(best, other)))
    return found, len(chosen), undecided


def sentences(found: Iterable[Better], places: int) -> Iterator[str]:
    """One for every pair of ways: `take "cache" instead of "base" with cnn: 1.70 times as fast (1.50 to 1.93)`."""
    pairs: dict[tuple[str, str], list[Better]] = {}
    for one in found:
        pairs.setdefault((one.best, one.other), []).append(one)
    for (best, other), of in sorted(pairs.items(), key=lambda pair: -max(_size(one) for one in pair[1])):
        where = at_places([one.place for one in of], places)
        times = _ends([one.times for one in of])
        yield f'take "{best}" instead of "{other}"{where}: {times} times as fast{_prices(of)}'


def costs(best: StudyRow, other: StudyRow, energy: bool = True) -> tuple[tuple[str, float], ...]:
    """What else is spent, how many times as much; nothing of what differs little. `energy`: also that, which is of a
    run, where both runs did as much."""
    found: dict[str, float] = {}
    for key, name in COSTS if energy else [one for one in COSTS if one[1] != "energy"]:
        ours, theirs = (cell_of(row, key).value.value for row in (best, other))
        if ours and theirs and abs(ours / theirs - 1) >= NOTICED:
            found[name] = ours / theirs
    return tuple(found.items())


def accuracy(best: StudyRow, other: StudyRow) -> tuple[float, float] | None:
    """In percent, of both; None where it is equal or not known."""
    ours, theirs = (cell_of(row, ACCURACY).value.value for row in (best, other))
    return None if ours is None or theirs is None or ours == theirs else (ours, theirs)


def loses_accuracy(best: StudyRow, other: StudyRow) -> bool:
    """Whether repetitions tell that it is less accurate."""
    ours, theirs = (cell_of(row, ACCURACY).values for row in (best, other))
    if min(len(ours), len(theirs)) < 2:
        return False
    ratio = quotient(theirs, ours)
    return ratio.low is not None and ratio.low > 1


def cell_of(row: StudyRow, key: str) -> Cell:
    """The row's figure; one without a value where the study has no such figure."""
    return next((cell for cell in row.cells if cell.figure == key), Cell(key, Value(None, "", "measured"), 0))


def _same_work(study: Study, table: StudyTable) -> list[dict[str, StudyRow]]:
    """Rows by way, a group for each work."""
    groups: dict[str, list[tuple[Configuration, StudyRow]]] = {}
    for configuration, row in zip(configurations(study), table.rows, strict=True):
        work = {key: value for key, value in configuration.items() if key not in HOW}
        key = key_of(work) + row.on_host
        groups.setdefault(key, []).append((configuration, row))
    return [{_way(table, row, [one for _, one in group]): row for _, row in group} for group in groups.values()]


def _way(table: StudyTable, row: StudyRow, group: Sequence[StudyRow]) -> str:
    """`JAX, CPU`, `batch 16`: what tells a row from others that do the same work."""
    names = []
    for axis in table.axes:
        value = row.configuration.get(axis)
        if axis in HOW and len({str(one.configuration.get(axis)) for one in group}) > 1:
            # An axis that follows from the variant adds nothing to its name.
            own = {str(one.configuration.get(axis)) for one in group
                   if one.configuration.get(VARIANT) == row.configuration.get(VARIANT)}  # fmt: skip
            if axis == VARIANT or len(own) > 1:
                names.append(str(value) if isinstance(value, str) else f"{axis} {value}")
    return ", ".join(names)


def _place(table: StudyTable, row: StudyRow) -> str:
    """The values of the axes that say what is done, where they differ."""
    axes = [axis for axis in table.axes if axis not in HOW]
    return ", ".join(
        str(row.configuration.get(axis)) if isinstance(row.configuration.get(axis), str)
        else f"{axis} {row.configuration.get(axis)}"
        for axis in axes
        if len({str(one.configuration.get(axis)) for one in table.rows}) > 1
    )  # fmt: skip


def _known(groups: Sequence[Mapping[str, StudyRow]], key: str) -> bool:
    """Whether two ways of some work have the figure."""
    return any(sum(cell_of(row, key).value.value is not None for row in group.values()) > 1 for group in groups)


def _size(one: Better) -> float:
    return one.times.value or 1.0


def _ends(values: Sequence[Value]) -> str:
    """`1.70 (1.50 to 1.93)` of one, `1.50 to 31.8` of several."""
    sizes = [one.value or 1.0 for one in values]
    if len(values) > 1:
        return _range(sizes)
    low, high = values[0].low, values[0].high
    interval = "" if low is None or high is None or low == high else f" ({low:.2f} to {high:.2f})"
    return f"{_digits(sizes[0])}{interval}"


def _prices(of: Sequence[Better]) -> str:
    said = []
    for name in dict.fromkeys(name for one in of for name, _ in one.costs):
        said.append(f"{_range([dict(one.costs).get(name, 1.0) for one in of])} times the {name}")
    pairs = [one.accuracy for one in of if one.accuracy is not None]
    if pairs:
        ours, theirs = ([pair[side] for pair in pairs] for side in (0, 1))
        said.append(f"{_range(ours)} % of the test right instead of {_range(theirs)} %")
    return f", {join(said)}" if said else ""


def _range(values: Sequence[float]) -> str:
    least, most = _digits(min(values)), _digits(max(values))
    return least if least == most else f"{least} to {most}"


def _digits(value: float) -> str:
    """Three digits, and two decimals of what is near 1."""
    return f"{value:.2f}" if 0.1 <= value < 10 else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def repetitions(rows: Sequence[StudyRow]) -> int:
    """The most that any figure has."""
    return max((cell.n for row in rows for cell in row.cells if cell.value.value is not None), default=0)
