"""One workload on several targets, several times: the smallest experiment, which `sonda run` carries out."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import msgspec

from sonda.analysis.doubts import SeveralProcesses
from sonda.analysis.run_summary import summarise
from sonda.analysis.statistics import median
from sonda.analysis.summary import Summary, Value
from sonda.record.errors import SondaError
from sonda.record.progress import Say
from sonda.record.run import Run, new_id
from sonda.record.store import Store
from sonda.targets.job import Job
from sonda.targets.pipeline import SIMULATED_ONLY, RunLabels, drop_measured_settings, measure
from sonda.targets.ranks.agent import KeptElsewhereError
from sonda.targets.target import parse_target, require_one_device

if TYPE_CHECKING:
    from sonda.studies.engine.measurement import MeasureJob


def measure_all(
    job: Job, on: list[str], repeat: int, store: Store, say: Say, measured: MeasureJob | None = None
) -> list[list[Run]]:
    """Runs by target, `repeat` of each. Targets take turns, so that a machine that drifts does not favour one.

    Beside targets that are measured, a simulated one, which is exact, runs once. Runs of several nodes that another
    node keeps are not among them; raises KeptElsewhereError where that leaves none. `measured` measures one job.
    """
    if repeat < 1:
        raise SondaError(f"--repeat {repeat} is too small", "give 1 or more")
    specs = [parse_target(target) for target in on]
    kinds = [spec.mode or require_one_device(spec).kind for spec in specs]
    # Beside a simulated accelerator its own settings are not meant for the others, nor theirs for it.
    plain = msgspec.structs.replace(job, **dict.fromkeys(SIMULATED_ONLY, "")) if "sim" in kinds else job
    exact = drop_measured_settings(job) if set(kinds) != {"sim"} else job
    groups = [new_id() if repeat > 1 else "" for _ in on]
    runs: list[list[Run]] = [[] for _ in on]
    elsewhere: KeptElsewhereError | None = None
    for turn in range(repeat):
        for index, target in enumerate(on):
            if turn and kinds[index] == "sim":
                continue
            if repeat > 1:
                say(f"{target}, {turn + 1} of {repeat}")
            place = RunLabels(group=groups[index])
            wanted = exact if kinds[index] == "sim" else plain
            try:
                runs[index].append((measured or measure)(msgspec.structs.replace(wanted, on=target), store, place, say))
            except KeptElsewhereError as error:
                elsewhere = error
                say(str(error))
    if elsewhere is not None and not any(runs):
        raise elsewhere
    return [group for group in runs if group]


def run_to_show(runs: list[Run]) -> tuple[Run, Summary]:
    """The run to show for a group: the one in the middle, with a note about all of them."""
    summaries = [summarise(run) for run in runs]
    timed = [index for index, summary in enumerate(summaries) if summary.parts and summary.parts[0].step.value]
    if len(runs) == 1 or not timed:
        return runs[-1], summaries[-1]
    steps = [summaries[index].parts[0].step.value or 0.0 for index in timed]
    middle = timed[sorted(range(len(timed)), key=lambda at: steps[at])[len(timed) // 2]]
    estimate = median(steps)
    note = SeveralProcesses(
        len(timed), Value(estimate.value, "ns", "measured", estimate.low, estimate.high, few=estimate.few)
    )
    summary = summaries[middle]
    return runs[middle], dataclasses.replace(summary, notes=(note, *summary.notes))
