"""The probe `ncu` of a run: one more repetition under Nsight Compute, its counts on the kernels that were timed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from sonda.frameworks.reconstruction.events import read_events
from sonda.probes.ceilings.gpu import load_or_measure_gpu
from sonda.probes.machine.gpu import GpuDevice
from sonda.probes.ncu.chips import find_chip
from sonda.probes.ncu.command import CACHES, NcuSettings, ncu_version
from sonda.probes.ncu.join import join_counts
from sonda.probes.ncu.outliers import find_outlying_rows
from sonda.probes.ncu.replay import count_kernels
from sonda.record.errors import SondaError
from sonda.record.progress import Say
from sonda.record.run import ProbeState
from sonda.record.spans import Spans
from sonda.targets.adapters.registry import compilation_variables
from sonda.targets.instrument import AGAIN, REPLAY, Command, Contribution, EndedRun, Instrument, Rerun, RunPlan
from sonda.targets.job import ProbeWord

PROBE = "ncu"
CACHES_EMPTIED = "all"
STALLS = "stalls"
PROGRAM_LIMIT_S = 3600.0
"""For one run of a program to its end."""


class NcuInstrument(Instrument):
    """Runs the program once more under Nsight Compute, which counts the kernels of one step.

    A workload ends after that step. A program is run to its end for every round, usually twice: once for all kernels,
    once for those out of line; where none of its kernels were recorded, it is not run.
    """

    needs = frozenset({AGAIN, REPLAY})

    def __init__(self, settings: NcuSettings) -> None:
        self.settings = settings
        self.compiling: Mapping[str, str] = {}
        """Variables by which the two processes share what the framework compiles."""

    @classmethod
    def from_words(cls, words: Sequence[ProbeWord]) -> NcuInstrument:
        return cls(parse_ncu_settings(words[0]))

    def prepare(self, plan: RunPlan) -> Mapping[str, str]:
        if not plan.on_gpu:
            raise SondaError(
                f"--probe ncu counts kernels of a GPU, and this {plan.kind} run has none",
                "use --on cuda:0, or leave it out",
            )
        ncu_version()
        if plan.job is not None:
            self.compiling = compilation_variables(plan.job.framework, plan.directory / "compiled")
        return self.compiling

    def collect(self, ended_run: EndedRun) -> Contribution:
        plan, settings = ended_run.plan, self.settings
        if plan.job is None:
            settings = replace(settings, limit_s=PROGRAM_LIMIT_S, whole=True)
            assembly = ended_run.observation.assembly
            if assembly is None or not assembly.kernels:
                reason = assembly.no_kernels if assembly is not None else ""
                reason = reason or "the program used no GPU, or took too few steps"
                return Contribution(states=[ProbeState(PROBE, "missing", f"no kernels were recorded: {reason}")])
        used = [device for device in ended_run.observation.used or () if device.startswith("cuda:")]
        try:
            card = load_or_measure_gpu(plan.store.root, int(used[0].partition(":")[2]) if used else 0).device
        except SondaError as error:
            return Contribution(states=[ProbeState(PROBE, "missing", error.cause, error.remedy)])
        with plan.store.scratch() as directory:
            command = ended_run.again(Rerun(directory, replay=True))
            command = replace(command, environment={**self.compiling, **command.environment})
            return count_command(command, settings, card, ended_run.spans, plan.say, directory)


def read_ranks(directory: Path) -> dict[str, int] | None:
    """The ranks of observed processes by process number, from their files in a directory; None below two ranks."""
    ranks = {path.stem: int(read_events(path).fact("rank", 0)) for path in sorted(directory.glob("*.events"))}
    return ranks if len(set(ranks.values())) > 1 else None


def parse_ncu_settings(word: ProbeWord) -> NcuSettings:
    """How to count: `ncu`, or `ncu:none` to leave caches as they are. Raises SondaError for anything else.

    `ncu:stalls` asks every kernel what it waits for, at once; both are joined as in `ncu:none+stalls`.
    """
    words = word.written.split("+") if ":" in word.text else []
    caches = [option for option in words if option != STALLS]
    if len(caches) > 1 or any(option not in CACHES for option in caches):
        raise SondaError(
            f"--probe {word.text} is unknown",
            "write ncu:all (caches emptied), ncu:none (left), ncu:stalls (stalls of every kernel)",
        )
    return NcuSettings(cache=caches[0] if caches else CACHES_EMPTIED, stalls=STALLS in words)


def count_command(
    command: Command, settings: NcuSettings, card: GpuDevice, spans: Spans, say: Say, directory: Path
) -> Contribution:
    """Count the kernels of a command and join the counts to the spans that were timed.

    The command leaves its files in `directory`. A failure becomes the state of the probe and does not lose the run.
    """
    major, _, minor = (card.capability or "0.0").partition(".")
    try:
        counted = count_kernels(
            list(command.words),
            command.given or b"",
            find_chip(int(major), int(minor)),
            say,
            find_outlying_rows,
            settings=settings,
            environment={**os.environ, **command.environment},
        )
    except SondaError as error:
        return Contribution(states=[ProbeState(PROBE, "missing", error.cause, error.remedy)])
    joined, notes = join_counts(spans, counted, read_ranks(directory))
    return Contribution(
        joined,
        {PROBE: msgspec.to_builtins(counted.facts)},
        [ProbeState(PROBE, "ok", counted.notes[0] if counted.notes else "")],
        [*counted.notes, *notes],
    )
