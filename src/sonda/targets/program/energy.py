"""The target of `sonda energy -- command`: any program, unchanged, and what the machine spent while it ran."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

from sonda.probes.counters.command_counter import StoppedCommand
from sonda.probes.machine.contamination import MachineConditions, find_disturbances, read_conditions
from sonda.record.errors import SondaError
from sonda.record.progress import Say
from sonda.record.run import Run
from sonda.record.spans import Spans, Words
from sonda.record.store import Store
from sonda.record.target import EnergyTarget
from sonda.record.workload import Workload
from sonda.targets.circumstances import clocked_circumstances
from sonda.targets.instrument import AROUND, Launcher, Observation, RunPlan
from sonda.targets.instruments.energy import ENERGY, EnergyInstrument, EnergySettings
from sonda.targets.pipeline import make_run
from sonda.targets.program.launcher import pass_on_signals, program_name, recorded_command
from sonda.targets.program.process_counts import count_outside, describe_counts
from sonda.targets.target import available_threads


def measure_energy(
    command: Sequence[str],
    store: Store,
    settings: EnergySettings,
    *,
    redact: bool = False,
    output_to_stderr: bool = False,
    say: Say = lambda text: None,
) -> tuple[Run, int]:
    """Run any program unchanged and keep what it cost; returns the run and the program's own exit code.

    Raises SondaError before the program starts where no energy can be read at all.
    """
    if not command:
        raise SondaError("no command after --", "write: sonda energy python train.py")
    launcher = EnergyLauncher(command, redact, output_to_stderr)
    run = make_run(launcher, [EnergyInstrument(settings, required=True)], store, say=say)
    return run, run.info.exit_code or 0


class EnergyLauncher(Launcher):
    """Runs a command unchanged, counted from outside."""

    kind = "energy"
    offers = frozenset({AROUND})

    def __init__(self, command: Sequence[str], redact: bool, output_to_stderr: bool) -> None:
        self.command = command
        self.redact = redact
        self.output = sys.stderr.fileno() if output_to_stderr else None

    def plan(self, store: Store, directory: Path, say: Say) -> RunPlan:
        return RunPlan(self.kind, store, directory, say, outside=True)

    def launch(self, plan: RunPlan, environment: Mapping[str, str]) -> None:
        plan.say("")  # what the program prints stands alone
        self.before = read_conditions()
        variables = {**os.environ, **environment}

        def accompanied(child: StoppedCommand) -> AbstractContextManager[None]:
            plan.processes.add(child.pid)
            return pass_on_signals(child)

        self.counted = count_outside(self.command, {}, 0.0, variables, self.output, accompanied)
        self.after = read_conditions()

    def observe(self, plan: RunPlan) -> Observation:
        counted = self.counted
        code = counted.code if counted.code >= 0 else 128 - counted.code
        name = program_name(self.command)
        spans = Spans(
            {"start": np.array([0]), "duration": np.array([counted.end - counted.begin])},
            {"kind": Words.of(["run"]), "name": Words.of([name])},
        )
        return Observation(
            spans,
            workload=Workload(name=name, command=recorded_command(self.command, self.redact)),
            target=EnergyTarget.of(
                spec="", device="cpu", threads=available_threads(), **describe_counts(counted), alone=ENERGY
            ),
            circumstances=clocked_circumstances(self.redact, _describe_others(self.before, self.after)),
            begin=counted.begin,
            end=counted.end,
            used=None,
            complete=code == 0,
            exit_code=code,
        )


def _describe_others(before: MachineConditions, after: MachineConditions) -> list[str]:
    """Sentences on other programs that ran meanwhile: sensors measure the machine, so their energy is included."""
    flags = find_disturbances(before, after, before.cores or 1, "passive")
    return [
        f"other programs kept {flag.value:.1f} CPUs busy meanwhile: their energy is in these numbers; stop them"
        for flag in flags
        if flag.name == "others"
    ]
