"""The probe `ncu` of a run: one more repetition under Nsight Compute, its counts on the kernels that were timed."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from sonda.probes.gpu_device import GpuDevice
from sonda.probes.ncu import CountedKernels, count_kernels
from sonda.probes.ncu_chip import chip_of
from sonda.probes.ncu_choice import out_of_line_rows
from sonda.probes.ncu_command import CACHES, Settings, ncu_version
from sonda.probes.ncu_join import join
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState
from sonda.record.saying import Say
from sonda.record.span import Spans
from sonda.record.store import Store
from sonda.targets.job import JOB, Job
from sonda.targets.worker import REPLAY

PROBE = "ncu"
EMPTIED, LEFT = "all", "none"
STALLS = "stalls"
PROGRAM_LIMIT_S = 3600.0
"""For one run of a program to its end."""


@dataclass(frozen=True)
class Replayed:
    """What the probe adds to a run; nothing where it was not asked for."""

    spans: Spans | None = None
    record: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    states: list[ProbeState] = field(default_factory=list)

    def added(self, timed: Spans) -> Spans:
        return self.spans if self.spans is not None else timed

    def kept(self) -> dict[str, Any]:
        """For the run's `target`."""
        return {"ncu": self.record} if self.record else {}

    def said(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields of a run's `info` with what is to be said of it."""
        return {**fields, "probes": [*fields["probes"], *self.states], "notes": [*fields["notes"], *self.notes]}


def settings_for(probes: str | Sequence[str], on_gpu: bool) -> Settings | None:
    """How to count where `ncu` is among these probes: `ncu`, or `ncu:none` to leave caches as they are.

    `ncu:stalls` asks every kernel what it waits for, at once; both are joined as in `ncu:none+stalls`. Raises
    SondaError at once where it cannot be.
    """
    for word in probes.split(",") if isinstance(probes, str) else probes:
        name, colon, how = word.strip().partition(":")
        if name != PROBE:
            continue
        if not on_gpu:
            raise SondaError("--probe ncu counts kernels of a GPU", "use --on cuda:0, or leave it out")
        words = how.split("+") if colon else []
        caches = [one for one in words if one != STALLS]
        if len(caches) > 1 or any(one not in CACHES for one in caches):
            raise SondaError(
                f"--probe ncu:{how} is unknown",
                "write ncu:all (caches emptied), ncu:none (left), ncu:stalls (stalls of every kernel)",
            )
        ncu_version()
        return Settings(cache=caches[0] if caches else EMPTIED, stalls=STALLS in words)
    return None


def count_job(
    job: Job,
    settings: Settings,
    device: GpuDevice,
    spans: Spans,
    store: Store,
    say: Say,
    variables: Mapping[str, str] | None = None,
) -> Replayed:
    """Count the kernels of one step of a job that was measured already. A failure is said and does not lose the run.

    `variables` are for the environment of the process that is counted.
    """
    with store.scratch() as directory:
        stdin = msgspec.json.encode(job)
        (directory / JOB).write_bytes(stdin)
        command = [sys.executable, "-P", "-m", "sonda.targets.worker", str(directory)]
        return _counted(command, stdin, {**(variables or {}), REPLAY: "1"}, settings, device, spans, say)


def count_program(
    command: Sequence[str],
    environment: dict[str, str],
    settings: Settings,
    device: GpuDevice,
    spans: Spans,
    say: Say,
) -> Replayed:
    """The same of a program, which is run to its end for every round; `environment` makes it say which step is counted.

    Usually that is twice: once for all kernels, once for those out of line.
    """
    whole = replace(settings, limit_s=PROGRAM_LIMIT_S, whole=True)
    return _counted(list(command), b"", environment, whole, device, spans, say)


def _counted(
    command: list[str],
    stdin: bytes,
    environment: dict[str, str],
    settings: Settings,
    device: GpuDevice,
    spans: Spans,
    say: Say,
) -> Replayed:
    major, _, minor = (device.capability or "0.0").partition(".")
    try:
        counted: CountedKernels = count_kernels(
            command,
            stdin,
            chip_of(int(major), int(minor)),
            say,
            out_of_line_rows,
            settings=settings,
            environment={**os.environ, **environment},
        )
    except SondaError as error:
        return Replayed(states=[ProbeState(PROBE, "missing", error.cause, error.remedy)])
    joined, notes = join(spans, counted)
    state = ProbeState(PROBE, "ok", counted.notes[0] if counted.notes else "")
    return Replayed(joined, {**counted.record, "peaks": counted.peaks}, [*counted.notes, *notes], [state])
