"""Nsight Compute around one repetition: every launch counted, and those out of line a second time for their stalls.

A launch is repeated once per pass with its memory restored, so times under ncu are not those of the program. The
repetition is one of its own, outside everything that is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from sonda.imports.ncu.metrics import counted_quantities, duration, peaks, roofs
from sonda.imports.ncu.spans import HALF, launch_spans, list_first
from sonda.imports.ncu.tables import Damage, Launch, read_launches
from sonda.probes.ncu.chips import Chip, passes_of
from sonda.probes.ncu.command import CACHES, Ended, Settings, ncu_version, run_under
from sonda.probes.ncu.failure import explain_failure, messages, unknown_metrics
from sonda.probes.ncu.kernel_names import SYMBOL, align, demangled
from sonda.record.errors import SondaError
from sonda.record.progress import Say
from sonda.record.quantities import Metric
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
    """How it was counted, and what could not be."""
    peaks: dict[str, float] = field(default_factory=dict)
    """The device's own, at its highest clock in these launches: FLOP/s by quantity (tensor cores dense), B/s."""
    record: dict[str, Any] = field(default_factory=dict)
    """For the run: version, chip, cache control, passes by set, metrics."""


def count_kernels(
    command: Sequence[str],
    stdin: bytes,
    chip: Chip,
    say: Say,
    stalls_for: StallsFor | None = None,
    *,
    settings: Settings | None = None,
    environment: Mapping[str, str] | None = None,
) -> CountedKernels:
    """Run a program under Nsight Compute and count what it launches; `say` is told of the passes before they run.

    The program runs once, and once more where `stalls_for` names rows and the settings do not ask for all stalls at
    once; each of these again, at most twice, where the device does not know some of the metrics. Where the settings
    call it whole, every run is announced. Raises SondaError where nothing can be counted.
    """
    how = settings or Settings()
    version = ncu_version(how.program)

    def ask(metrics: tuple[str, ...], kernels: Sequence[str] = ()) -> tuple[list[Launch], list[str]]:
        def run(asked: Sequence[str]) -> Ended:
            if how.whole:
                say(AGAIN)
            return run_under(command, stdin, asked, how, kernels, environment)

        return _round(chip, metrics, say, run)

    asked, least = chip.core.metrics, chip.core.passes
    if how.stalls:
        asked, least = tuple(dict.fromkeys((*asked, *chip.stalls.metrics))), least + chip.stalls.passes
    say(
        f"Nsight Compute {version} counts {len(asked)} metrics of every kernel of one repetition: "
        f"{least} passes each or one more, {CACHES[how.cache]}, clocks left alone"
    )
    # Processes write in turn, and not in the same one twice.
    launches, notes = ask(asked)
    launches.sort(key=lambda launch: (len(launch.process), launch.process))
    if not chip.exact:
        notes.append(f"compute capability {chip.capability} is not known here: it was asked what {chip.name} is asked")
    passes = {"all" if how.stalls else "core": _passes(launches)}
    symbols = [launch.kernel for launch in launches]
    launches = [replace(launch, kernel=demangled(launch.kernel)) for launch in launches]
    wanted: list[int] = []
    if stalls_for is not None and not how.stalls:
        wanted = sorted(set(stalls_for(launch_spans(launches))))
    if wanted:
        names = list(dict.fromkeys(symbols[row] for row in wanted))
        # Names that are no symbols cannot be told to ncu, which then counts all.
        chosen = names if all(SYMBOL.fullmatch(name) for name in names) else []
        say(
            f"{len(names)} of {len(set(symbols))} kernels are counted once more, for what their warps wait for: "
            f"{chip.stalls.passes} passes each or one more"
        )
        again, more = ask(chip.stalls.metrics, chosen)
        again.sort(key=lambda launch: (len(launch.process), launch.process))
        passes["stalls"] = _passes(again)
        notes += more + _merge_stalls(launches, symbols, again, chosen)
    took = (
        f" in {' + '.join(str(number) for number in passes.values())} passes a launch" if all(passes.values()) else ""
    )
    notes.insert(0, f"counted by Nsight Compute {version}{took}, {CACHES[how.cache]}, clocks left alone")
    record = {"version": version, "chip": chip.name, "capability": chip.capability, "cache": how.cache,
              "passes": passes, "metrics": list(asked)}  # fmt: skip
    return CountedKernels(
        tuple(_counted_launch(launch) for launch in launches), tuple(dict.fromkeys(notes)), _peaks(launches), record
    )


def _round(
    chip: Chip, metrics: tuple[str, ...], say: Say, run: Callable[[Sequence[str]], Ended]
) -> tuple[list[Launch], list[str]]:
    """Launches with these metrics, or without those that the device does not know; and what to say about them."""
    notes = []
    for _ in range(ATTEMPTS):
        ended = run(metrics)
        lacking = unknown_metrics(ended.log, metrics)
        if not lacking or len(lacking) == len(metrics):
            break
        notes.append(f"{chip.name} does not know {list_first(lacking)}: counted without")
        metrics = tuple(name for name in metrics if name not in lacking)
        say(f"{notes[-1]}, in {passes_of(chip, metrics)} passes or one more")
    damage = Damage()
    try:
        launches = list(read_launches(ended.log, damage))
    except SondaError:
        raise explain_failure(ended.log, ended.output, ended.code) from None
    notes += damage.notes()
    failed = [text for kind, text in messages(ended.log) if kind == "ERROR"]
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
    return launches, notes


def _merge_stalls(
    launches: list[Launch], symbols: Sequence[str], again: Sequence[Launch], chosen: Sequence[str]
) -> list[str]:
    """Put the stalls of a second run onto the launches of the first, in order and by kernel, grid and block."""
    rows = [row for row, name in enumerate(symbols) if not chosen or name in chosen]
    left = [f"{symbols[row]} {launches[row].grid} {launches[row].block}" for row in rows]
    right = [f"{launch.kernel} {launch.grid} {launch.block}" for launch in again]
    pairs = align(left, right)
    for one, other in pairs:
        for name, value in again[other].values.items():
            launches[rows[one]].take(name, str(value), again[other].units[name])
    lost = len(rows) - len(pairs)
    return [f"{lost:,} of {len(rows):,} launches were not met again in the run for stalls"] if lost else []


def _counted_launch(launch: Launch) -> CountedLaunch:
    metrics: dict[str, Number] = {}
    for source, values in (("counted", counted_quantities(launch)), ("derived", roofs(launch))):
        metrics |= {str(Metric(name, source)): _plain(value) for name, value in values.items()}
    return CountedLaunch(
        launch.kernel, launch.process, launch.device, launch.stream, launch.grid, launch.block, duration(launch),
        metrics,
    )  # fmt: skip


def _plain(value: Decimal) -> Number:
    return int(value) if value == value.to_integral_value() else float(value)


def _passes(launches: Sequence[Launch]) -> int:
    """What ncu says it took, the most of all launches; 0 where it does not say."""
    return max((int(launch.values.get(PASSES, Decimal(0))) for launch in launches), default=0)


def _peaks(launches: Sequence[Launch]) -> dict[str, float]:
    found: dict[str, float] = {}
    for launch in launches:
        for name, value in peaks(launch).items():
            found[name] = max(found.get(name, 0.0), float(value))
    return found
