"""What to try, as far as a study says: a better way, a better neighbour, a load that holds, what runs say themselves.

Every remedy follows from figures that repetitions tell from noise; where they do not, the remedy is to repeat more
often. A study from which nothing follows has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sonda.analysis.optimisation_words import FASTER, MOST_PLACES, NOTHING, SLOWER, UNKNOWN, at_places
from sonda.analysis.optimisations import Options, limit
from sonda.analysis.summary import Summary
from sonda.studies.better_way import (
    Better,
    accuracy,
    better_ways,
    cell_of,
    costs,
    loses_accuracy,
    repetitions,
    sentences,
)
from sonda.studies.optimisation import place_of
from sonda.studies.plan import configurations
from sonda.studies.study import VARIANT, Study
from sonda.studies.table import StudyRow, StudyTable

MOST = 6
"""Remedies that are said."""
MOST_LIMITS = 3
"""Of those that runs say themselves."""
SLOWDOWN, WORK, WITH = "slowdown", "workload", "with"
RATE = "rate_under_bound_per_second"


def remedies(
    study: Study, table: StudyTable, options: Sequence[Options], summaries: Mapping[str, Summary]
) -> list[str]:
    """Sentences without their full stop, what brings most first; `summaries` are those of the runs, by id."""
    if options:
        found = list(_of_options(study, table, options))
    else:
        better, places, undecided = better_ways(study, table)
        neighbours, lone = _of_neighbours(table)
        found = [*sentences(better, places), *neighbours, *_of_loads(study, table)]
        found += _again(table, max(undecided, lone)) if not found else []
        found += _of_limits(table, summaries)
    return found[:MOST]


def _of_options(study: Study, table: StudyTable, places: Sequence[Options]) -> Iterator[str]:
    rows = {(place_of(study, row.configuration), str(row.configuration.get(VARIANT))): row for row in table.rows}
    better: list[Better] = []
    still: list[tuple[str, str, int]] = []
    worse: dict[str, list[tuple[str, str]]] = {}
    undecided: list[StudyRow] = []
    for place in places:
        known = [one for one in place.options if one.effect]
        gains = sorted((one for one in known if one.effect == FASTER), key=lambda one: -(one.speedup.value or 0.0))
        base = rows[place.place, place.base]
        for one in gains:
            row = rows[place.place, one.name]
            price, right = costs(row, base), accuracy(row, base)
            better.append(Better(one.name, place.base, place.place, one.speedup, price, right))
            if not loses_accuracy(row, base):  # else the next one is said too
                break
        if gains:
            continue
        for one in known:
            if one.effect == SLOWER:
                worse.setdefault(one.name, []).append((place.place, one.text))
        if known and all(one.effect in (SLOWER, NOTHING) for one in known):
            still.append((place.place, place.base, len(known)))
        undecided += [rows[place.place, one.name] for one in known if one.effect == UNKNOWN]
    yield from sentences(better, len(places))
    for name, count in dict.fromkeys((name, count) for _, name, count in still):
        where = at_places([one for one, *same in still if same == [name, count]], len(places))
        yield (
            f'stay with "{name}"{where}: '
            + ("the other is" if count == 1 else f"none of {count} others is")
            + " faster"
        )
    stays = {place for place, _, _ in still}
    for name, of in worse.items():
        left = [(place, text) for place, text in of if place not in stays]
        if left:
            said = ", ".join(dict.fromkeys(text for _, text in left))
            yield f'leave out "{name}"{at_places([place for place, _ in left], len(places))}: {said}'
    if not better:
        yield from _again(table, repetitions(undecided))


def _of_neighbours(table: StudyTable) -> tuple[list[str], int]:
    """The neighbour that slows a program most, where another surely slows it less; and how many repetitions there are
    where that cannot be told (0: nowhere)."""
    beside: dict[str, dict[str, StudyRow]] = {}
    for row in table.rows:
        if {WORK, WITH} <= set(row.configuration) and cell_of(row, SLOWDOWN).value.value is not None:
            beside.setdefault(str(row.configuration[WORK]), {}).setdefault(str(row.configuration[WITH]), row)
    said, undecided = [], 0
    for work, by in beside.items():
        values = {name: cell_of(row, SLOWDOWN).value for name, row in by.items()}
        order = sorted(values, key=lambda name: values[name].value or 0.0)
        least, most = values[order[0]], values[order[-1]]
        if least.high is None or most.low is None:
            undecided = max(undecided, repetitions(list(by.values())))
        elif most.low > max(1.0, least.high):
            said.append(
                f'run {work} beside "{order[0]}" rather than "{order[-1]}": a step takes {least.value:.2f} instead of '
                f"{most.value:.2f} times as long as alone"
            )
    return said, undecided


def _of_loads(study: Study, table: StudyTable) -> Iterator[str]:
    """The highest load under which a bound of latency was found to hold."""
    for configuration, row in zip(configurations(study), table.rows, strict=True):
        rate = cell_of(row, RATE).value.value
        if rate is not None and configuration.get("find_qps"):
            server = f"{configuration.get(WORK)} on {configuration.get('on', 'cpu')}"
            bound = configuration.get("latency_bound")
            yield f"send {server} at most {rate:.3g} queries/s where answers must come within {bound}"


def _of_limits(table: StudyTable, summaries: Mapping[str, Summary]) -> Iterator[str]:
    """What the runs' own verdicts say to try, most rows first; of variants the first speaks."""
    first = table.rows[0].configuration.get(VARIANT) if table.rows else None
    rows = [row for row in table.rows if row.configuration.get(VARIANT) == first]
    axes = [axis for axis in table.axes if len({str(row.configuration.get(axis)) for row in rows}) > 1]
    places: dict[str, list[str]] = {}
    judged = 0
    for row in rows:
        own = [summaries[run] for run in row.runs if run in summaries]
        found = limit([one for one in own if one.verdicts and "noise" not in one.verdicts[0].evidence])
        judged += bool(found.kind)
        if found.remedy:
            places.setdefault(found.remedy, []).append(
                ", ".join(_said(axis, row.configuration.get(axis)) for axis in axes)
            )
    for remedy, names in sorted(places.items(), key=lambda pair: -len(pair[1]))[:MOST_LIMITS]:
        few = "; ".join(names) if len(names) <= MOST_PLACES else f"{len(names)} of {judged} configurations"
        yield remedy if len(names) == judged else f"{remedy} ({few})"


def _again(table: StudyTable, count: int) -> Iterator[str]:
    """More repetitions, where `count` of them do not suffice; nothing for none."""
    if not count:
        return
    quiet = " while no other program runs" if any(row.disturbed for row in table.rows) else ""
    why = "one run of each cannot be told from noise" if count == 1 else "intervals become half as wide"
    yield f"measure again with --repeat {3 if count == 1 else 4 * count}{quiet}: {why}"


def _said(axis: str, value: object) -> str:
    return str(value) if isinstance(value, str) else f"{axis} {str(value).lower()}"
