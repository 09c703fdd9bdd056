"""The target of `sonda energy -- command`: any program, unchanged, and what the machine spent while it ran."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import numpy as np

from sonda.probes.contamination import Conditions, contamination, read_conditions
from sonda.probes.energy import Energy, EnergySampler
from sonda.probes.environment import versions
from sonda.probes.machine import machine_record
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState, Run, RunInfo, new_id, now, write_run
from sonda.record.saying import Say
from sonda.record.span import Spans, Words
from sonda.record.store import Store
from sonda.targets.command import kept_command, passed_on, program_name
from sonda.targets.energy_sampling import ENERGY, Asked, sampling
from sonda.targets.outside import count_outside, kept
from sonda.targets.spec import available_threads


def measure_energy(
    command: Sequence[str],
    store: Store,
    wanted: Asked,
    *,
    redact: bool = False,
    output_to_stderr: bool = False,
    say: Say = lambda text: None,
) -> tuple[Run, int]:
    """Run any program unchanged and keep what it cost; returns the run and the program's own exit code.

    Raises SondaError before the program starts where no energy can be read at all.
    """
    if not command:
        raise SondaError("no command after --", "write: sonda energy -- any command")
    output = sys.stderr.fileno() if output_to_stderr else None
    with store.scratch() as directory:
        with sampling(wanted, directory, say) as energy:
            assert energy.sampler is not None
            _refuse_nothing(energy.sampler)
            say("")  # what the program prints stands alone
            before = read_conditions()
            environment = {**os.environ, **energy.environment}
            counted = count_outside(command, {}, 0.0, environment, output, passed_on)
            after = read_conditions()
        energy.finish(counted.begin, counted.end, ())
    assert energy.energy is not None
    energy.used = _busy_devices(energy.energy)
    code = counted.code if counted.code >= 0 else 128 - counted.code
    fields = energy.said({"probes": [ProbeState("clock", "ok")], "notes": []})
    info = RunInfo(
        id=new_id(),
        created=now(),
        status="complete" if code == 0 else "incomplete",
        workload={"name": program_name(command), "command": kept_command(command, redact)},
        target={
            "spec": "",
            "device": "cpu",
            "threads": available_threads(),
            **kept(counted),
            **energy.target,
            "alone": ENERGY,
        },
        machine=machine_record(redact=redact),
        versions=versions(),
        disturbed=_others(before, after),
        exit_code=code,
        **fields,
    )
    spans = Spans(
        {"start": np.array([0]), "duration": np.array([counted.end - counted.begin])},
        {"kind": Words.of(["run"]), "name": Words.of([program_name(command)])},
    )
    return write_run(store.root, info, energy.added(spans), energy.samples), code


def _refuse_nothing(sampler: EnergySampler) -> None:
    """Raise SondaError where the sampler has nothing to read: the program would run for nothing."""
    state = sampler.available()
    if state.state != "ok":
        raise SondaError(
            f"no energy can be read: {state.reason}",
            f"{state.remedy or 'see: sonda doctor'}; or estimate it from the processor's watts: --model cpu=20..95",
        )


def _others(before: Conditions, after: Conditions) -> list[str]:
    """A sensor measures the machine: what others did in the meantime is in its numbers."""
    flags = contamination(before, after, before.cores or 1, "passive")
    return [
        f"other programs kept {flag.value:.1f} CPUs busy meanwhile: their energy is in these numbers; stop them"
        for flag in flags
        if flag.name == "others"
    ]


def _busy_devices(energy: Energy) -> list[str]:
    """The processor, and every GPU that was busy at any time while the program ran."""
    busy = {
        one.device for one in energy.samples if one.sensor == "utilisation" and one.value > 0 and one.time >= 0
    }  # fmt: skip
    return ["cpu", *sorted(busy)]
