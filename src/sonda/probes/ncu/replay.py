"""Nsight Compute around one repetition: it counts every launch, and outlying ones a second time for their stalls.

It repeats a launch once per pass and restores its memory in between, so times under ncu are not those of the program.
The repetition is one of its own, outside everything that is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from sonda.imports.ncu.metrics import counted_quantities, duration, peaks, roofs
from sonda.imports.ncu.spans import HALF, launch_spans, list_first
from sonda.imports.ncu.tables import Damage, Launch, read_launches
from sonda.probes.ncu.chips import Chip, count_passes
from sonda.probes.ncu.command import CACHES, NcuOutcome, NcuSettings, ncu_version, run_under_ncu
from sonda.probes.ncu.failure import explain_failure, find_unknown_metrics, parse_messages
from sonda.probes.ncu.kernel_names import SYMBOL, align_names, demangle
from sonda.record.errors import SondaError
from sonda.record.progress import Say
from sonda.record.quantities import Metric
from sonda.record.readings import NcuFacts
from sonda.record.spans import Spans

ATTEMPTS = 3
"""How often ncu is asked again without the metrics that it does not know."""
AGAIN = (
    "the program is run again from its beginning to its end under Nsight Compute: what it writes is written again, "
    "what it prints is not shown, and it has no input"
)
"""Said before every such run, because it may overwrite what the program left before."""
PASSES = "profiler__replayer_passes"
Number = int | float
StallsFor = Callable[[Spans], Sequence[int]]
"""From the spans of all launches, with what was counted in them, to the rows whose stalls are wanted."""


@dataclass(frozen=True)
class CountedLaunch:
    """One launch. `metrics` are columns of spans (`flops:counted`), whole numbers exactly."""

    name: str
    process: str
    device: int
    stream: int
    grid: str
    block: str
    ns: int | None
    """Its duration under ncu."""
    metrics: dict[str, Number]


@dataclass(frozen=True)
class CountedKernels:
    """All launches of one repetition in order."""

    launches: tuple[CountedLaunch, ...]
    notes: tuple[str, ...]
    """How they were counted, and what could not be counted."""
    facts: NcuFacts = field(default_factory=NcuFacts)
    """How they were counted, for the run. `peaks` are those of the device, at its highest clock in these launches:
    FLOP/s by quantity (tensor cores dense), B/s."""


def count_kernels(
    command: Sequence[str],
    stdin: bytes,
    chip: Chip,
    say: Say,
    stalls_for: StallsFor | None = None,
    *,
    settings: NcuSettings | None = None,
    environment: Mapping[str, str] | None = None,
) -> CountedKernels:
    """Run a program under Nsight Compute and count what it launches; `say` is told of the passes before they run.

    The program runs once. It runs once more where `stalls_for` names rows and the settings do not ask for all stalls
    at once. Each of these runs is repeated, at most twice, where the device does not know some of the metrics. Where
    the settings call the program whole, every run is announced. Raises SondaError where nothing can be counted.
    """
    settings = settings or NcuSettings()
    version = ncu_version(settings.program)

    def count(metrics: tuple[str, ...], kernels: Sequence[str] = ()) -> tuple[list[Launch], list[str]]:
        def run(asked: Sequence[str]) -> NcuOutcome:
            if settings.whole:
                say(AGAIN)
            return run_under_ncu(command, stdin, asked, settings, kernels, environment)

        return _count_metrics(chip, metrics, say, run)

    asked, least = chip.core.metrics, chip.core.passes
    if settings.stalls:
        asked, least = tuple(dict.fromkeys((*asked, *chip.stalls.metrics))), least + chip.stalls.passes
    say(
        f"Nsight Compute {version} counts {len(asked)} metrics of every kernel of one repetition: "
        f"{least} passes each or one more, {CACHES[settings.cache]}, clocks left alone"
    )
    launches, notes = count(asked)
    if not chip.exact:
        notes.append(f"compute capability {chip.capability} is not known here: it was asked what {chip.name} is asked")
    passes = {"all" if settings.stalls else "core": _most_passes(launches)}
    symbols = [launch.kernel for launch in launches]
    launches = [replace(launch, kernel=demangle(launch.kernel)) for launch in launches]
    if stalls_for is not None and not settings.stalls:
        rows = sorted(set(stalls_for(launch_spans(launches))))
        if rows:
            passes["stalls"], more = _add_stalls(launches, symbols, rows, chip, say, count)
            notes += more
    took = f" in {' + '.join(map(str, passes.values()))} passes a launch" if all(passes.values()) else ""
    notes.insert(0, f"counted by Nsight Compute {version}{took}, {CACHES[settings.cache]}, clocks left alone")
    facts = NcuFacts(
        version=version,
        chip=chip.name,
        capability=chip.capability,
        cache=settings.cache,
        passes=passes,
        metrics=list(asked),
        peaks=_highest_peaks(launches),
    )
    counted = tuple(_counted_launch(launch) for launch in launches)
    return CountedKernels(counted, tuple(dict.fromkeys(notes)), facts)


def _add_stalls(
    launches: list[Launch],
    symbols: Sequence[str],
    rows: Sequence[int],
    chip: Chip,
    say: Say,
    count: Callable[[tuple[str, ...], Sequence[str]], tuple[list[Launch], list[str]]],
) -> tuple[int, list[str]]:
    """Count the kernels of these rows once more for their stalls, and add those to the launches.

    Gives the passes that it took, and notes.
    """
    names = list(dict.fromkeys(symbols[row] for row in rows))
    # ncu selects kernels by symbol: where a name is none, it counts all kernels.
    chosen = names if all(SYMBOL.fullmatch(name) for name in names) else []
    say(
        f"{len(names)} of {len(set(symbols))} kernels are counted once more, for what their warps wait for: "
        f"{chip.stalls.passes} passes each or one more"
    )
    again, notes = count(chip.stalls.metrics, chosen)
    return _most_passes(again), notes + _merge_stalls(launches, symbols, again, chosen)


def _count_metrics(
    chip: Chip, metrics: tuple[str, ...], say: Say, run: Callable[[Sequence[str]], NcuOutcome]
) -> tuple[list[Launch], list[str]]:
    """Launches with these metrics, or without those that the device does not know, process by process; and notes."""
    notes = []
    for _ in range(ATTEMPTS):
        ended = run(metrics)
        lacking = find_unknown_metrics(ended.log, metrics)
        if not lacking or len(lacking) == len(metrics):
            break
        notes.append(f"{chip.name} does not know {list_first(lacking)}: counted without")
        metrics = tuple(name for name in metrics if name not in lacking)
        say(f"{notes[-1]}, in {count_passes(chip, metrics)} passes or one more")
    damage = Damage()
    try:
        launches = list(read_launches(ended.log, damage))
    except SondaError:
        raise explain_failure(ended.log, ended.output, ended.code) from None
    notes += damage.notes()
    failed = [text for kind, text in parse_messages(ended.log) if kind == "ERROR"]
    if failed:
        notes.append(f"Nsight Compute did not count everything: {failed[0][:200]}")
    nowhere = [name for name in metrics if not any(name in launch.values for launch in launches)]
    if nowhere:
        notes.append(f"no launch has a value for {list_first(nowhere)}")
    partly = [name for name in metrics if name not in nowhere and any(name in launch.missing for launch in launches)]
    if partly:
        notes.append(f"some launches have no value for {list_first(partly)}")
    if any(counted_quantities(launch).get("flops_half") for launch in launches):
        notes.append(HALF)
    # Launches of several processes are mixed in the log; those of one process are in order.
    launches.sort(key=lambda launch: (len(launch.process), launch.process))
    return launches, notes


def _merge_stalls(
    launches: list[Launch], symbols: Sequence[str], again: Sequence[Launch], chosen: Sequence[str]
) -> list[str]:
    """Put the stalls of a second run onto the launches of the first, in order and by kernel, grid and block; notes."""
    rows = [row for row, name in enumerate(symbols) if not chosen or name in chosen]
    first = [f"{symbols[row]} {launches[row].grid} {launches[row].block}" for row in rows]
    second = [f"{launch.kernel} {launch.grid} {launch.block}" for launch in again]
    pairs = align_names(first, second)
    for place, number in pairs:
        for name, value in again[number].values.items():
            launches[rows[place]].take(name, str(value), again[number].units[name])
    lost = len(rows) - len(pairs)
    return [f"{lost:,} of {len(rows):,} launches were not met again in the run for stalls"] if lost else []


def _counted_launch(launch: Launch) -> CountedLaunch:
    metrics: dict[str, Number] = {}
    for source, values in (("counted", counted_quantities(launch)), ("derived", roofs(launch))):
        metrics |= {str(Metric(name, source)): _plain_number(value) for name, value in values.items()}
    return CountedLaunch(
        launch.kernel, launch.process, launch.device, launch.stream, launch.grid, launch.block, duration(launch),
        metrics,
    )  # fmt: skip


def _plain_number(value: Decimal) -> Number:
    return int(value) if value == value.to_integral_value() else float(value)


def _most_passes(launches: Sequence[Launch]) -> int:
    """The most passes that ncu took for a launch; 0 where it does not say."""
    return max((int(launch.values.get(PASSES, Decimal(0))) for launch in launches), default=0)


def _highest_peaks(launches: Sequence[Launch]) -> dict[str, Number]:
    highest: dict[str, Number] = {}
    for launch in launches:
        for name, value in peaks(launch).items():
            highest[name] = max(highest.get(name, 0.0), float(value))
    return highest
