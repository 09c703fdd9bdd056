"""The target `sim:NAME`: a workload on a simulated accelerator.

The model runs once on this machine's processor, in a process of its own, to capture its operations. Engines then run
them one after the other. Workloads whose operations follow from their description are not run at all. Energy, area and
what-ifs of the run are computed here and kept with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sonda.accelerators.description.accelerator import Accelerator, load_accelerator
from sonda.accelerators.description.settings import with_settings
from sonda.accelerators.energy.spending import Spending
from sonda.accelerators.mapping.placement import OnHost, Placed, Placement
from sonda.accelerators.memory.traffic import with_memory
from sonda.accelerators.operations.program import Bags, ConvolutionShape, MatrixProduct, ModelProgram
from sonda.probes.machine.environment import installed_versions
from sonda.probes.machine.record import machine_record
from sonda.record.errors import SondaError
from sonda.record.progress import Say
from sonda.record.run import Run, now
from sonda.record.simulated import WhatIf
from sonda.record.spans import Spans
from sonda.record.store import Store
from sonda.record.target import SimulatedTarget
from sonda.record.workload import Workload
from sonda.targets.instrument import Circumstances, Launcher, Observation, RunPlan
from sonda.targets.instruments.registry import instruments_for
from sonda.targets.job import Job, check_job
from sonda.targets.local.child import run_child
from sonda.targets.local.worker import Outcome, SimulationOutcome
from sonda.targets.pipeline import RunLabels, make_run
from sonda.targets.simulated.program import capture_program, program_from_description
from sonda.targets.simulated.spans import spans_of
from sonda.targets.simulated.what_if import what_ifs
from sonda.targets.target import available_threads, parse_target
from sonda.workloads.catalogue import describe

SPANS = "spans.arrow"
MOST_NAMED = 8
"""Operations on the host that a note names; all are in the run's target."""


@dataclass(frozen=True)
class Simulation:
    """A simulated step."""

    spans: Spans
    mapping: list[dict[str, Any]]
    """The mapping and the cycles of every operation on an engine, in their order; equal ones are one entry with a
    `count`."""
    host: dict[str, int]
    """Operations that no engine took, by name."""
    energy: dict[str, Any]
    """`Spending.record`."""
    area: dict[str, Any]
    """`Spending.areas`."""
    what_if: list[WhatIf]
    """Of `what_ifs`."""
    notes: list[str]

    def target(self) -> dict[str, Any]:
        """Fields of the run's target, besides the accelerator's description."""
        return {
            "mapping": self.mapping,
            "host": self.host,
            "energy": self.energy,
            "area": self.area,
            "what_if": self.what_if,
        }


def measure_simulated(job: Job, store: Store, labels: RunLabels | None = None, say: Say = lambda text: None) -> Run:
    """Simulate a job and keep the run. Raises SondaError when the accelerator cannot run it."""
    in_study = bool(labels and labels.study)
    # Points of a study need no what-ifs, which would take time for each of them.
    launcher = SimulationLauncher(job, curious=not in_study)
    # A study may measure and simulate the same configuration: its probes are for the measured one.
    return make_run(launcher, instruments_for("" if in_study else job.probe, launcher), store, labels, say)


class SimulationLauncher(Launcher):
    """Simulates a job, of which nothing is measured. Raises SondaError for what its accelerator cannot run."""

    kind = "simulated"
    offers = frozenset()

    def __init__(self, job: Job, curious: bool = True) -> None:
        """`curious`: also simulate what a wider bottleneck would bring."""
        self.job = check_job(job)
        self.curious = curious
        self.accelerator = accelerator_of(self.job)
        self.accelerator.require_kernels()
        _refuse_job(self.job)
        self.workload = describe(job.workload, job.options)

    def plan(self, store: Store, directory: Path, say: Say) -> RunPlan:
        return RunPlan(self.kind, store, directory, say, self.job)

    def launch(self, plan: RunPlan, environment: Mapping[str, str]) -> None:
        job, workload = self.job, self.workload
        placement = Placement(self.accelerator, job.mapping)
        program = None if placement.patterns() else program_from_description(workload)
        plan.say(f"simulating {job.workload} on {job.on}")
        if program is not None:
            simulation = simulate(program, placement, self.curious)
            parameters = workload.parameters()
            self.description = {**parameters, "name": workload.name, "samples": parameters.get("batch", 0)}
            self.simulated = SimulationOutcome(target=simulation.target(), notes=simulation.notes)
            self.spans = simulation.spans
        else:
            child = run_child(job, plan.directory, job.threads or available_threads(), environment)
            assert child.simulation is not None
            self.description, self.simulated = child.workload, child.simulation
            self.spans = read_spans(plan.directory / SPANS)

    def observe(self, plan: RunPlan) -> Observation:
        job, simulated = self.job, self.simulated
        return Observation(
            self.spans,
            workload=Workload.of({**self.description, "framework": job.framework, **job.settings_record()}),
            target=SimulatedTarget.of(
                spec=job.on,
                device="sim",
                options={"mapping": job.mapping, "set": job.set},
                description=asdict(self.accelerator),
                **simulated.target,
            ),
            circumstances=Circumstances(
                now(), machine_record(redact=job.redact), {**installed_versions(), **simulated.versions}
            ),
            notes=simulated.notes,
        )


def accelerator_of(job: Job) -> Accelerator:
    """The accelerator that a job's target names, changed as the job says."""
    return with_settings(load_accelerator(parse_target(job.on).devices[0].name), job.set)


def _refuse_job(job: Job) -> None:
    if job.train:
        raise SondaError(f"{job.on} runs inference, not training", "leave out --train")
    if job.compile:
        raise SondaError(f"{job.on} runs a model's own operations, not compiled ones", "leave out --compile")
    if job.precision != "float32":
        raise SondaError(f"{job.on} computes in float32", "leave out --precision")


def simulate(program: ModelProgram, placement: Placement, curious: bool = True) -> Simulation:
    """Simulate every operation of a program on its engine; where `curious`, also with the bottleneck widened.

    Raises SondaError naming the layer that an engine cannot run.
    """
    accelerator = placement.accelerator
    spending = Spending(accelerator)
    placed = with_memory(placement.place(program), accelerator)
    energies = [
        spending.charge(placed_operation) if isinstance(placed_operation, Placed) else None
        for placed_operation in placed
    ]
    return Simulation(
        spans=spans_of(program, placed, accelerator.clock_hz, energies),
        mapping=_describe_mapping(program, placed),
        host=_host_operations(program, placed),
        energy=spending.record(),
        area=spending.areas(),
        what_if=what_ifs(program, placement, placed) if curious else [],
        notes=[*_notes(program, placed, accelerator), *program.notes],
    )


def simulate_job(job: Job, directory: Path) -> Outcome:
    """Capture and simulate a job in this process; leaves the spans in the directory."""
    workload = describe(job.workload, job.options)
    placement = Placement(accelerator_of(job), job.mapping)
    task, program = capture_program(job, workload, placement.patterns())
    import torch  # it is there: the model ran

    simulation = simulate(program, placement)
    write_spans(directory / SPANS, simulation.spans)
    return Outcome(
        workload={**workload.parameters(), "name": workload.name, "samples": task.samples, "tokens": task.tokens},
        simulation=SimulationOutcome(
            target=simulation.target(), notes=simulation.notes, versions={"torch": str(torch.__version__)}
        ),
    )


def write_spans(path: Path, spans: Spans) -> None:
    """Spans as an Arrow file, for the process that reads them back."""
    import pyarrow as pa

    table = spans.to_arrow()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def read_spans(path: Path) -> Spans:
    """Read what `write_spans` wrote."""
    import pyarrow as pa

    with pa.OSFile(str(path), "rb") as source:
        return Spans.from_arrow(pa.ipc.open_file(source).read_all())


def _describe_mapping(program: ModelProgram, placed: list[Placed | OnHost]) -> list[dict[str, Any]]:
    entries: dict[Any, dict[str, Any]] = {}
    for placed_operation in placed:
        if isinstance(placed_operation, OnHost):
            continue
        entry = {
            "path": program.path(placed_operation.operation),
            "operation": placed_operation.operation.name,
            "kind": placed_operation.operation.kind,
            "shape": describe_shape(placed_operation.operation.shape),
            "engine": placed_operation.engine.name,
            "mapping": placed_operation.mapping,
            "words": placed_operation.words,
            "cycles": placed_operation.cycles,
            "stall_cycles": placed_operation.traffic.stall_cycles if placed_operation.traffic else 0,
            "reads": {
                "weight": placed_operation.result.weight_reads,
                "input": placed_operation.result.input_reads,
                "psum": placed_operation.result.psum_reads,
            },
            "counters": placed_operation.result.counters,
        }
        counted_entry = entries.setdefault(str(entry), {**entry, "count": 0})
        counted_entry["count"] += 1
    return list(entries.values())


def describe_shape(shape: MatrixProduct | ConvolutionShape | Bags) -> str:
    """`50x784 by 784x192`, `16 of 64x64 by 64x64`, `20 bags, 1026 rows of 1000000x64`."""
    if isinstance(shape, Bags):
        return f"{len(shape.sizes)} bags, {len(shape.indices)} rows of {shape.rows}x{shape.columns}"
    if isinstance(shape, ConvolutionShape):
        sizes = " ".join(f"{letter}={getattr(shape, letter)}" for letter in "RSCKGNXY")
        return f"{sizes} stride={shape.stride[0]}x{shape.stride[1]} padding={shape.padding[0]}x{shape.padding[1]}"
    several = f"{shape.count} of " if shape.count > 1 else ""
    return f"{several}{shape.m}x{shape.k} by {shape.k}x{shape.n}"


def _host_operations(program: ModelProgram, placed: list[Placed | OnHost]) -> dict[str, int]:
    names: Counter[str] = Counter()
    for placed_operation in placed:
        if isinstance(placed_operation, OnHost):
            names[placed_operation.operation.name] += 1
    for (_, name), count in program.others.items():
        names[name] += count
    return dict(names.most_common())


def _notes(program: ModelProgram, placed: list[Placed | OnHost], accelerator: Accelerator) -> list[str]:
    notes = []
    refused = Counter((program.path(placed_operation.operation) or "the model", placed_operation.reason)
                      for placed_operation in placed if isinstance(placed_operation, OnHost))  # fmt: skip
    by_reason: dict[str, list[str]] = {}
    for path, reason in refused:
        by_reason.setdefault(reason, []).append(path)
    for reason, paths in by_reason.items():
        more = f" and {len(paths) - MOST_NAMED} more" if len(paths) > MOST_NAMED else ""
        notes.append(f"on the host: {', '.join(paths[:MOST_NAMED])}{more} ({reason})")
    others: Counter[str] = Counter()
    for (_, name), count in program.others.items():
        others[name] += count
    if others:
        named = ", ".join(f"{name} {count}" for name, count in others.most_common(MOST_NAMED))
        more = f" and {len(others) - MOST_NAMED} more by name in the run" if len(others) > MOST_NAMED else ""
        notes.append(f"on the host, not simulated: {named}{more}")
    if accelerator.clock_hz is None:
        notes.append(f"no times: the description of {accelerator.name} gives no clock")
    return notes
