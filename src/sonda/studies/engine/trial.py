"""Tries the remedies that are a flag away, and says what each brought."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec
import numpy as np

from sonda.analysis.run_summary import summarise
from sonda.analysis.statistics import effective_size, ratio, side
from sonda.analysis.summary import Remedy, Summary, Value
from sonda.record.errors import SondaError
from sonda.record.progress import Say
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.targets.job import Job, with_options
from sonda.targets.pipeline import RunLabels, measure

ROUNDS = 3
"""Processes of each configuration; the base and the remedies take turns."""


def try_remedies(job: Job, base: Sequence[Run], summary: Summary, store: Store, say: Say) -> Summary:
    """The summary with every remedy that has options tried: its speed-up per sample, or why it could not be had."""
    wanted = dict.fromkeys(
        remedy.options for verdict in summary.verdicts for remedy in verdict.remedies if remedy.options
    )
    if not wanted:
        return summary
    job = msgspec.structs.replace(job, on=base[0].info.target.spec)
    bases = list(base)
    tried: dict[tuple[str, ...], list[Run]] = {options: [] for options in wanted}
    outcome: dict[tuple[str, ...], Value] = {}

    def measured(words: Sequence[str], turn: int) -> Run:
        what = f"trying {' '.join(words)}" if words else "measuring the base again"
        return measure(with_options(job, words), store, RunLabels(), lambda _: say(f"{what} ({turn} of {ROUNDS})"))

    for turn in range(1, ROUNDS + 1):
        for options, runs in tried.items():
            if options not in outcome:
                try:
                    runs.append(measured(options, turn))
                except SondaError as error:
                    outcome[options] = Value(None, "1", "measured", reason=error.cause)
        if len(bases) < ROUNDS:
            bases.append(measured((), turn))
    for options, runs in tried.items():
        if options not in outcome:
            outcome[options] = _speedup(bases, runs)

    def with_outcome(remedy: Remedy) -> Remedy:
        return dataclasses.replace(remedy, speedup=outcome[remedy.options]) if remedy.options else remedy

    return dataclasses.replace(
        summary,
        verdicts=tuple(
            dataclasses.replace(verdict, remedies=tuple(map(with_outcome, verdict.remedies)))
            for verdict in summary.verdicts
        ),
    )


def _speedup(base: Sequence[Run], trial: Sequence[Run]) -> Value:
    """How many times as many samples a second, with its 95 % interval over processes."""
    a, b = (_per_sample(runs) for runs in (base, trial))
    if a is None or b is None:
        return Value(None, "1", "measured", reason="no timed steps")
    middle, low, high = (float(end[0]) for end in ratio(side(*b), side(*a)))
    return Value(middle, "1", "measured", low, high)


def _per_sample(runs: Sequence[Run]) -> tuple[list[np.ndarray], list[int]] | None:
    """ns per sample of the timed steps of every run, one column, and how many independent steps each is worth."""
    tables, sizes = [], []
    for run in runs:
        parts = summarise(run).parts
        if not parts:
            return None
        steps = np.array(parts[0].timed) / max(1, run.info.workload.samples or 1)
        if not len(steps):
            return None
        tables.append(steps.reshape(-1, 1))
        sizes.append(effective_size(steps))
    return tables, sizes
