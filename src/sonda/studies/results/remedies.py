"""What to try, as far as a study says: a better way, a better neighbour, a load that holds, what runs say themselves.

Every remedy follows from figures that repetitions tell from noise. Where they do not, the remedy is to repeat more
often. A study from which nothing follows has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sonda.analysis.comparison.findings import OptionOutcome, RemedyOfRuns
from sonda.analysis.comparison.optimisations import Options, main_limit
from sonda.analysis.comparison.option_effects import FASTER, NOTHING, SLOWER, UNKNOWN
from sonda.analysis.comparison.repetitions import best_of, quotient
from sonda.analysis.findings import Finding
from sonda.analysis.rules.limit_findings import TooNoisy
from sonda.analysis.study_findings import BetterWay, LeaveOut, RepeatMore, RunBeside, SendAtMost, StayWith, TakeInstead
from sonda.analysis.summary import Summary, Value
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
) -> list[Finding]:
    """What to try, what brings most first; `summaries` are those of the runs, by id."""
    if options:
        return list(_of_options(study, table, options))[:MOST]
    better, places, undecided = better_ways(study, table)
    neighbours, lone = _of_neighbours(table)
    advice: list[Finding] = [*take_instead(better, places), *neighbours, *_of_loads(study, table)]
    advice += _repeat_more(table, max(undecided, lone)) if not advice else []
    return [*advice, *_of_limits(table, summaries)][:MOST]


def _of_options(study: Study, table: StudyTable, places: Sequence[Options]) -> Iterator[Finding]:
    rows = {(place_of(study, row.configuration), str(row.configuration.get(VARIANT))): row for row in table.rows}
    better: list[BetterWay] = []
    still: list[tuple[str, str, int]] = []
    worse: dict[str, list[tuple[str, OptionOutcome]]] = {}
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
                worse.setdefault(option.name, []).append((place.place, option.outcome))
        if known and all(option.effect in (SLOWER, NOTHING) for option in known):
            still.append((place.place, place.base, len(known)))
        undecided += [rows[place.place, option.name] for option in known if option.effect == UNKNOWN]
    yield from take_instead(better, len(places))
    for name, count in dict.fromkeys((name, count) for _, name, count in still):
        at = tuple(place_name for place_name, *same in still if same == [name, count])
        yield StayWith(name, count, at, len(places))
    stays = {place for place, _, _ in still}
    for name, of in worse.items():
        left = {place: outcome for place, outcome in of if place not in stays}
        if left:
            yield LeaveOut(name, tuple(left), len(places), tuple(left.values()))
    if not better:
        yield from _repeat_more(table, repetitions(undecided))


def _of_neighbours(table: StudyTable) -> tuple[list[Finding], int]:
    """The neighbour that slows a program most, where another surely slows it less; and how many repetitions there are
    where that cannot be told (0: nowhere)."""
    beside: dict[str, dict[str, StudyRow]] = {}
    for row in table.rows:
        if {WORK, WITH} <= set(row.configuration) and cell_of(row, SLOWDOWN).value.value is not None:
            beside.setdefault(str(row.configuration[WORK]), {}).setdefault(str(row.configuration[WITH]), row)
    better: list[Finding] = []
    undecided = 0
    for work, by in beside.items():
        values = {name: cell_of(row, SLOWDOWN).value for name, row in by.items()}
        order = sorted(values, key=lambda name: values[name].value or 0.0)
        least, most = values[order[0]], values[order[-1]]
        if least.high is None or most.low is None:
            undecided = max(undecided, repetitions(list(by.values())))
        elif most.low > max(1.0, least.high):
            better.append(RunBeside(work, order[0], least.value or 0.0, order[-1], most.value or 0.0))
    return better, undecided


def _of_loads(study: Study, table: StudyTable) -> Iterator[Finding]:
    """The highest load under which a bound of latency was found to hold."""
    for configuration, row in zip(configurations(study), table.rows, strict=True):
        rate = cell_of(row, RATE).value.value
        if rate is not None and configuration.get("find_qps"):
            on, bound = str(configuration.get("on", "cpu")), str(configuration.get("latency_bound"))
            yield SendAtMost(str(configuration.get(WORK)), on, rate, bound)


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
                ", ".join(_setting(axis, row.configuration.get(axis)) for axis in axes)
            )
    for advice, names in sorted(places.items(), key=lambda pair: -len(pair[1]))[:MOST_LIMITS]:
        yield RemedyOfRuns(advice, tuple(names), judged)


def _repeat_more(table: StudyTable, count: int) -> Iterator[Finding]:
    """More repetitions, where `count` of them do not suffice; nothing for none."""
    if count:
        yield RepeatMore(count, any(row.disturbed for row in table.rows))


def _setting(axis: str, value: object) -> str:
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


def take_instead(better: Iterable[BetterWay], places: int) -> Iterator[Finding]:
    """One for every pair of ways, the largest gain first."""
    pairs: dict[tuple[str, str], list[BetterWay]] = {}
    for way in better:
        pairs.setdefault((way.best, way.other), []).append(way)
    for ways in sorted(pairs.values(), key=lambda ways: -max(way.times.value or 1.0 for way in ways)):
        yield TakeInstead(tuple(ways), places)


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


def repetitions(rows: Sequence[StudyRow]) -> int:
    """The most that any figure has."""
    return max((cell.n for row in rows for cell in row.cells if cell.value.value is not None), default=0)
