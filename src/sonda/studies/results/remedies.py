"""What to try, as far as a study says: a better way, a better neighbour, a load that holds, what runs say themselves.

Every remedy follows from figures that repetitions tell from noise. Where they do not, the remedy is to repeat more
often. A study from which nothing follows has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sonda.analysis.comparison.findings import RemedyOfRuns
from sonda.analysis.comparison.optimisations import Options, main_limit
from sonda.analysis.comparison.option_effects import FASTER, NOTHING, SLOWER, UNKNOWN
from sonda.analysis.comparison.repetitions import best_of, quotient
from sonda.analysis.findings import Finding
from sonda.analysis.rules.limits import TooNoisy
from sonda.analysis.summary import Summary, Value
from sonda.analysis.wording import at_places, join
from sonda.studies.engine.plan import NODE, configurations, is_simulated
from sonda.studies.file.study import VARIANT, Configuration, Study, key_of
from sonda.studies.results.optimisations import place_of
from sonda.studies.results.table import StudyCell, StudyRow, StudyTable

# ---- Remedies -------------------------------------------------------------------------------------------------------

MOST = 6
"""Remedies that are said."""
MOST_LIMITS = 3
"""Of those that runs say themselves."""
SLOWDOWN, WORK, WITH = "slowdown", "workload", "with"
RATE = "rate_under_bound_per_second"


def remedies(
    study: Study, table: StudyTable, options: Sequence[Options], summaries: Mapping[str, Summary]
) -> list[str | Finding]:
    """Sentences without their full stop, and what runs advise, what brings most first; `summaries` are those of the
    runs, by id."""
    sentences_: list[str | Finding]
    if options:
        sentences_ = list(_of_options(study, table, options))
    else:
        better, places, undecided = better_ways(study, table)
        neighbours, lone = _of_neighbours(table)
        sentences_ = [*sentences(better, places), *neighbours, *_of_loads(study, table)]
        sentences_ += _repeat_remedy(table, max(undecided, lone)) if not sentences_ else []
        sentences_ += _of_limits(table, summaries)
    return sentences_[:MOST]


def _of_options(study: Study, table: StudyTable, places: Sequence[Options]) -> Iterator[str]:
    rows = {(place_of(study, row.configuration), str(row.configuration.get(VARIANT))): row for row in table.rows}
    better: list[BetterWay] = []
    still: list[tuple[str, str, int]] = []
    worse: dict[str, list[tuple[str, str]]] = {}
    undecided: list[StudyRow] = []
    for place in places:
        known = [option for option in place.options if option.effect]
        gains = sorted(
            (option for option in known if option.effect == FASTER), key=lambda one: -(one.speedup.value or 0.0)
        )
        base = rows[place.place, place.base]
        for option in gains:
            row = rows[place.place, option.name]
            price, right = costs(row, base), accuracy(row, base)
            better.append(BetterWay(option.name, place.base, place.place, option.speedup, price, right))
            if not loses_accuracy(row, base):  # else the next one is said too
                break
        if gains:
            continue
        for option in known:
            if option.effect == SLOWER:
                worse.setdefault(option.name, []).append((place.place, option.text))
        if known and all(option.effect in (SLOWER, NOTHING) for option in known):
            still.append((place.place, place.base, len(known)))
        undecided += [rows[place.place, option.name] for option in known if option.effect == UNKNOWN]
    yield from sentences(better, len(places))
    for name, count in dict.fromkeys((name, count) for _, name, count in still):
        where = at_places([place_name for place_name, *same in still if same == [name, count]], len(places))
        yield (
            f'stay with "{name}"{where}: '
            + ("the other is" if count == 1 else f"none of {count} others is")
            + " faster"
        )
    stays = {place for place, _, _ in still}
    for name, of in worse.items():
        left = [(place, text) for place, text in of if place not in stays]
        if left:
            reasons = ", ".join(dict.fromkeys(text for _, text in left))
            yield f'leave out "{name}"{at_places([place for place, _ in left], len(places))}: {reasons}'
    if not better:
        yield from _repeat_remedy(table, repetitions(undecided))


def _of_neighbours(table: StudyTable) -> tuple[list[str], int]:
    """The neighbour that slows a program most, where another surely slows it less; and how many repetitions there are
    where that cannot be told (0: nowhere)."""
    beside: dict[str, dict[str, StudyRow]] = {}
    for row in table.rows:
        if {WORK, WITH} <= set(row.configuration) and cell_of(row, SLOWDOWN).value.value is not None:
            beside.setdefault(str(row.configuration[WORK]), {}).setdefault(str(row.configuration[WITH]), row)
    sentences_, undecided = [], 0
    for work, by in beside.items():
        values = {name: cell_of(row, SLOWDOWN).value for name, row in by.items()}
        order = sorted(values, key=lambda name: values[name].value or 0.0)
        least, most = values[order[0]], values[order[-1]]
        if least.high is None or most.low is None:
            undecided = max(undecided, repetitions(list(by.values())))
        elif most.low > max(1.0, least.high):
            sentences_.append(
                f'run {work} beside "{order[0]}" rather than "{order[-1]}": a step takes {least.value:.2f} instead of '
                f"{most.value:.2f} times as long as alone"
            )
    return sentences_, undecided


def _of_loads(study: Study, table: StudyTable) -> Iterator[str]:
    """The highest load under which a bound of latency was found to hold."""
    for configuration, row in zip(configurations(study), table.rows, strict=True):
        rate = cell_of(row, RATE).value.value
        if rate is not None and configuration.get("find_qps"):
            server = f"{configuration.get(WORK)} on {configuration.get('on', 'cpu')}"
            bound = configuration.get("latency_bound")
            yield f"send {server} at most {rate:.3g} queries/s where answers must come within {bound}"


def _of_limits(table: StudyTable, summaries: Mapping[str, Summary]) -> Iterator[Finding]:
    """What the runs' own verdicts say to try, most rows first; of variants the first speaks."""
    first = table.rows[0].configuration.get(VARIANT) if table.rows else None
    rows = [row for row in table.rows if row.configuration.get(VARIANT) == first]
    axes = [axis for axis in table.axes if len({str(row.configuration.get(axis)) for row in rows}) > 1]
    places: dict[Finding, list[str]] = {}
    judged = 0
    for row in rows:
        own = [summaries[run] for run in row.runs if run in summaries]
        limits = main_limit(
            [summary for summary in own if summary.verdicts and not isinstance(summary.verdicts[0].finding, TooNoisy)]
        )
        judged += bool(limits.kind)
        if limits.advice is not None:
            places.setdefault(limits.advice, []).append(
                ", ".join(_remedy_sentence(axis, row.configuration.get(axis)) for axis in axes)
            )
    for advice, names in sorted(places.items(), key=lambda pair: -len(pair[1]))[:MOST_LIMITS]:
        yield RemedyOfRuns(advice, tuple(names), judged)


def _repeat_remedy(table: StudyTable, count: int) -> Iterator[str]:
    """More repetitions, where `count` of them do not suffice; nothing for none."""
    if not count:
        return
    quiet = " while no other program runs" if any(row.disturbed for row in table.rows) else ""
    why = "one run of each cannot be told from noise" if count == 1 else "intervals become half as wide"
    yield f"measure again with --repeat {3 if count == 1 else 4 * count}{quiet}: {why}"


def _remedy_sentence(axis: str, value: object) -> str:
    return str(value) if isinstance(value, str) else f"{axis} {str(value).lower()}"


# ----------------------------------------------------------------------------------------------------------------------

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
class BetterWay:
    """One way is better than another, at one place of a study."""

    best: str
    other: str
    place: str
    times: Value
    """How many times as fast."""
    costs: tuple[tuple[str, float], ...] = ()
    """What is spent besides, and how many times as much."""
    accuracy: tuple[Value, Value] | None = None
    """In percent, of the best and of the other, where it differs."""


def better_ways(study: Study, table: StudyTable) -> tuple[list[BetterWay], int, int]:
    """What is better at which place of a study without a base; how many places have a choice, and how many
    repetitions there are at most where it cannot be told (0: nowhere)."""
    wanted = configurations(study)
    one_batch = len({configuration.get("batch") for configuration in wanted}) == 1
    groups = [group for group in _same_work(study, table) if len(group) > 1]
    figure = next((rate for rate in RATES if _has_figure(groups, rate[0])), None)
    if figure is None and one_batch:
        figure = next(((key, False) for key in STEPS if _has_figure(groups, key)), None)
    if figure is None:
        return [], 0, 0
    better: list[BetterWay] = []
    key, larger = figure
    chosen = [{name: row for name, row in group.items() if cell_of(row, key).value.value is not None}
              for group in groups]  # fmt: skip
    chosen = [group for group in chosen if len(group) > 1]
    comparisons = sum(len(group) - 1 for group in chosen)
    exact = all(is_simulated({**table.fixed, **configuration}) for configuration in wanted)
    same_energy = one_batch or all(configuration.get("epochs") for configuration in wanted)
    undecided = 0
    for group in chosen:
        values = {name: cell_of(row, key).values for name, row in group.items()}
        choice = best_of(values, next(iter(group)), larger=larger, exact=exact, comparisons=comparisons)
        if choice is None:
            undecided = 0 if exact else max(undecided, *map(len, values.values()))
            continue
        best, worse = group[choice.best], group[choice.other]
        place = _place(table, best)
        price = costs(best, worse, same_energy)
        better.append(BetterWay(choice.best, choice.other, place, choice.times, price, accuracy(best, worse)))
    return better, len(chosen), undecided


def sentences(better: Iterable[BetterWay], places: int) -> Iterator[str]:
    """One for every pair of ways: `take "cache" instead of "base" with cnn: 1.70 times as fast (1.50 to 1.93)`."""
    pairs: dict[tuple[str, str], list[BetterWay]] = {}
    for way in better:
        pairs.setdefault((way.best, way.other), []).append(way)
    for (best, worse), of in sorted(pairs.items(), key=lambda pair: -max(_size(way) for way in pair[1])):
        where = at_places([way.place for way in of], places)
        times = _ends([way.times for way in of])
        yield f'take "{best}" instead of "{worse}"{where}: {times} times as fast{_prices(of)}'


def costs(best: StudyRow, worse: StudyRow, energy: bool = True) -> tuple[tuple[str, float], ...]:
    """What else is spent, how many times as much; nothing of what differs little. `energy`: also that, which is of a
    run, where both runs did as much."""
    prices: dict[str, float] = {}
    for key, name in COSTS if energy else [cost for cost in COSTS if cost[1] != "energy"]:
        ours, theirs = (cell_of(row, key).value.value for row in (best, worse))
        if ours and theirs and abs(ours / theirs - 1) >= NOTICED:
            prices[name] = ours / theirs
    return tuple(prices.items())


def accuracy(best: StudyRow, worse: StudyRow) -> tuple[Value, Value] | None:
    """In percent, of both; None where it is equal or not known."""
    ours, theirs = (cell_of(row, ACCURACY).value for row in (best, worse))
    return None if ours.value is None or theirs.value is None or ours.value == theirs.value else (ours, theirs)


def loses_accuracy(best: StudyRow, worse: StudyRow) -> bool:
    """Whether repetitions tell that it is less accurate."""
    ours, theirs = (cell_of(row, ACCURACY).values for row in (best, worse))
    if min(len(ours), len(theirs)) < 2:
        return False
    ratio = quotient(theirs, ours)
    return ratio.low is not None and ratio.low > 1


def cell_of(row: StudyRow, key: str) -> StudyCell:
    """The row's figure; one without a value where the study has no such figure."""
    return next((cell for cell in row.cells if cell.figure == key), StudyCell(key, Value(None, "", "measured"), 0))


def _same_work(study: Study, table: StudyTable) -> list[dict[str, StudyRow]]:
    """Rows by way, a group for each work."""
    groups: dict[str, list[tuple[Configuration, StudyRow]]] = {}
    for configuration, row in zip(configurations(study), table.rows, strict=True):
        work = {key: value for key, value in configuration.items() if key not in HOW}
        key = key_of(work) + row.on_host
        groups.setdefault(key, []).append((configuration, row))
    return [{_way(table, row, [row for _, row in group]): row for _, row in group} for group in groups.values()]


def _way(table: StudyTable, row: StudyRow, group: Sequence[StudyRow]) -> str:
    """`JAX, CPU`, `batch 16`: what tells a row from others that do the same work."""
    names = []
    for axis in table.axes:
        value = row.configuration.get(axis)
        if axis in HOW and len({str(row.configuration.get(axis)) for row in group}) > 1:
            # An axis that follows from the variant adds nothing to its name.
            own = {str(neighbour.configuration.get(axis)) for neighbour in group
                   if neighbour.configuration.get(VARIANT) == row.configuration.get(VARIANT)}  # fmt: skip
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
        if len({str(row.configuration.get(axis)) for row in table.rows}) > 1
    )  # fmt: skip


def _has_figure(groups: Sequence[Mapping[str, StudyRow]], key: str) -> bool:
    """Whether two ways of some work have the figure."""
    return any(sum(cell_of(row, key).value.value is not None for row in group.values()) > 1 for group in groups)


def _size(way: BetterWay) -> float:
    return way.times.value or 1.0


def _ends(values: Sequence[Value]) -> str:
    """`1.70 (1.50 to 1.93)` of one, `1.50 to 31.8` of several."""
    sizes = [value.value or 1.0 for value in values]
    if len(values) > 1:
        return _range(sizes)
    low, high = values[0].low, values[0].high
    interval = "" if low is None or high is None or low == high else f" ({low:.2f} to {high:.2f})"
    return f"{_digits(sizes[0])}{interval}"


def _prices(of: Sequence[BetterWay]) -> str:
    prices = []
    for name in dict.fromkeys(name for way in of for name, _ in way.costs):
        prices.append(f"{_range([dict(way.costs).get(name, 1.0) for way in of])} times the {name}")
    pairs = [way.accuracy for way in of if way.accuracy is not None]
    if pairs:
        ours, theirs = ([pair[side] for pair in pairs] for side in (0, 1))
        prices.append(f"{_percents(ours)} of the test right instead of {_percents(theirs)}")
    return f", {join(prices)}" if prices else ""


def _percents(values: Sequence[Value]) -> str:
    """`81.2 % (70.0 to 88.9 %)` of one, `70 to 81 %` of several."""
    if len(values) > 1 or values[0].low is None or values[0].high is None:
        return f"{_range([value.value or 0.0 for value in values])} %"
    return f"{_digits(values[0].value or 0.0)} % ({_digits(values[0].low)} to {_digits(values[0].high)} %)"


def _range(values: Sequence[float]) -> str:
    least, most = _digits(min(values)), _digits(max(values))
    return least if least == most else f"{least} to {most}"


def _digits(value: float) -> str:
    """Three digits, and two decimals of what is near 1."""
    return f"{value:.2f}" if 0.1 <= value < 10 else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def repetitions(rows: Sequence[StudyRow]) -> int:
    """The most that any figure has."""
    return max((cell.n for row in rows for cell in row.cells if cell.value.value is not None), default=0)
