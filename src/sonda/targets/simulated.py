"""The target `sim:NAME`: a workload on a simulated accelerator.

The model runs once on this machine's processor, in a process of its own, to see its operations; engines then take them
one after the other. Workloads whose operations follow from their description are not run at all. Everything that the
analysis says of the run (energy, area, what-ifs) is computed here and kept with it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sonda.accelerators.behind import with_memory
from sonda.accelerators.description import Accelerator, load_accelerator
from sonda.accelerators.operation import Bags, Convolution, MatrixProduct, Program
from sonda.accelerators.placement import OnHost, Placed, Placement
from sonda.accelerators.settings import with_settings
from sonda.accelerators.spending import Spending
from sonda.probes.environment import versions
from sonda.probes.machine import machine_record
from sonda.record.errors import SondaError
from sonda.record.run import Run, RunInfo, new_id, now, write_run
from sonda.record.saying import Say
from sonda.record.span import Spans
from sonda.record.store import Store
from sonda.targets.child import run_child
from sonda.targets.described import described_program
from sonda.targets.job import Job, check_job
from sonda.targets.keeping import Place
from sonda.targets.program import captured_program
from sonda.targets.simulated_spans import spans_of
from sonda.targets.spec import available_threads, parse_target
from sonda.targets.what_if import what_ifs
from sonda.workloads.catalogue import describe

SPANS = "spans.arrow"
MOST_NAMED = 8
"""Operations on the host that a note names; all are in the run's target."""


@dataclass(frozen=True)
class Simulation:
    """A simulated step."""

    spans: Spans
    mapping: list[dict[str, Any]]
    """What was chosen for every operation on an engine, and what one of them took, in their order; those alike are one
    entry with a `count`."""
    host: dict[str, int]
    """Operations that no engine took, by name."""
    energy: dict[str, Any]
    """`Spending.record`."""
    area: dict[str, Any]
    """`Spending.areas`."""
    what_if: list[dict[str, Any]]
    """`what_ifs`."""
    notes: list[str]

    def target(self) -> dict[str, Any]:
        """What `run.json` says of the target, besides its description."""
        return {
            "mapping": self.mapping,
            "host": self.host,
            "energy": self.energy,
            "area": self.area,
            "what_if": self.what_if,
        }


def measure(job: Job, store: Store, place: Place | None = None, say: Say = lambda text: None) -> Run:
    """Simulate a job and keep the run. Raises SondaError when the accelerator cannot run it."""
    place = place or Place()
    job = check_job(job)
    accelerator = accelerator_of(job)
    _refuse(job)
    workload = describe(job.workload, job.options)
    placement = Placement(accelerator, job.mapping)
    program = None if placement.patterns() else described_program(workload)
    say(f"simulating {job.workload} on {job.on}")
    if program is not None:
        # Many points of a study would each pay for what nobody asks of one of them.
        simulation = simulate(program, placement, curious=not place.study)
        outcome = {**workload.parameters(), "name": workload.name, "samples": workload.parameters().get("batch", 0)}
        found, spans, seen = simulation.target(), simulation.spans, {}
        notes = simulation.notes
    else:
        with store.scratch() as directory:
            child = run_child(job, directory, job.threads or available_threads())
            spans = read_spans(directory / SPANS)
        outcome, found = child.workload, child.simulation["target"]
        notes, seen = child.simulation["notes"], child.simulation["versions"]
    info = RunInfo(
        id=place.identity or new_id(),
        created=now(),
        status="complete",
        workload={**outcome, "framework": job.framework, **job.how()},
        target={
            "spec": job.on,
            "device": "sim",
            "options": {"mapping": job.mapping, "set": job.set},
            "description": asdict(accelerator),
            **found,
        },
        machine=machine_record(redact=job.redact),
        versions={**versions(), **seen},
        seed=job.seed,
        notes=notes,
        group=place.group,
        study=place.study,
        point=place.point,
    )
    return write_run(store.root, info, spans)


def accelerator_of(job: Job) -> Accelerator:
    """The accelerator that a job's target names, changed as the job says."""
    return with_settings(load_accelerator(parse_target(job.on).devices[0].name), job.set)


def _refuse(job: Job) -> None:
    if job.train:
        raise SondaError(f"{job.on} runs inference, not training", "leave out --train")
    if job.compile:
        raise SondaError(f"{job.on} runs a model's own operations, not compiled ones", "leave out --compile")
    if job.precision != "float32":
        raise SondaError(f"{job.on} computes in float32", "leave out --precision")


def simulate(program: Program, placement: Placement, curious: bool = True) -> Simulation:
    """Every operation of a program on its engine; where `curious`, also with its bottleneck widened.

    Raises SondaError naming the layer that an engine cannot run.
    """
    accelerator = placement.accelerator
    spending = Spending(accelerator)
    placed = with_memory(placement.place(program), accelerator)
    energies = [spending.charge(one) if isinstance(one, Placed) else None for one in placed]
    return Simulation(
        spans=spans_of(program, placed, accelerator.clock_hz, energies),
        mapping=_mapping(program, placed),
        host=_host(program, placed),
        energy=spending.record(),
        area=spending.areas(),
        what_if=what_ifs(program, placement, placed) if curious else [],
        notes=[*_notes(program, placed, accelerator), *program.notes],
    )


def simulate_job(job: Job, directory: Path) -> dict[str, Any]:
    """Capture and simulate in this process; leaves the spans in the directory and returns the fields of an outcome."""
    workload = describe(job.workload, job.options)
    placement = Placement(accelerator_of(job), job.mapping)
    task, program = captured_program(job, workload, placement.patterns())
    import torch  # it is there: the model ran

    simulation = simulate(program, placement)
    write_spans(directory / SPANS, simulation.spans)
    return {
        "workload": {
            **workload.parameters(), "name": workload.name, "samples": task.samples, "tokens": task.tokens,
        },
        "simulation": {
            "target": simulation.target(), "notes": simulation.notes,
            "versions": {"torch": str(torch.__version__)},
        },
    }  # fmt: skip


def write_spans(path: Path, spans: Spans) -> None:
    """Spans as an Arrow file, for the process that reads them back."""
    import pyarrow as pa

    table = spans.to_arrow()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def read_spans(path: Path) -> Spans:
    """What `write_spans` wrote."""
    import pyarrow as pa

    with pa.OSFile(str(path), "rb") as source:
        return Spans.from_arrow(pa.ipc.open_file(source).read_all())


def _mapping(program: Program, placed: list[Placed | OnHost]) -> list[dict[str, Any]]:
    entries: dict[Any, dict[str, Any]] = {}
    for one in placed:
        if isinstance(one, OnHost):
            continue
        entry = {
            "path": program.path(one.operation),
            "operation": one.operation.name,
            "kind": one.operation.kind,
            "shape": shape_words(one.operation.shape),
            "engine": one.engine.name,
            "mapping": one.mapping,
            "words": one.words,
            "cycles": one.cycles,
            "stall_cycles": one.traffic.stall_cycles if one.traffic else 0,
            "reads": {
                "weight": one.result.weight_reads,
                "input": one.result.input_reads,
                "psum": one.result.psum_reads,
            },
            "counters": one.result.counters,
        }
        kept = entries.setdefault(str(entry), {**entry, "count": 0})
        kept["count"] += 1
    return list(entries.values())


def shape_words(shape: MatrixProduct | Convolution | Bags) -> str:
    """`50x784 by 784x192`, `16 of 64x64 by 64x64`, `20 bags, 1026 rows of 1000000x64`."""
    if isinstance(shape, Bags):
        return f"{len(shape.sizes)} bags, {len(shape.indices)} rows of {shape.rows}x{shape.columns}"
    if isinstance(shape, Convolution):
        sizes = " ".join(f"{letter}={getattr(shape, letter)}" for letter in "RSCKGNXY")
        return f"{sizes} stride={shape.stride[0]}x{shape.stride[1]} padding={shape.padding[0]}x{shape.padding[1]}"
    several = f"{shape.count} of " if shape.count > 1 else ""
    return f"{several}{shape.m}x{shape.k} by {shape.k}x{shape.n}"


def _host(program: Program, placed: list[Placed | OnHost]) -> dict[str, int]:
    names: Counter[str] = Counter()
    for one in placed:
        if isinstance(one, OnHost):
            names[one.operation.name] += 1
    for (_, name), count in program.others.items():
        names[name] += count
    return dict(names.most_common())


def _notes(program: Program, placed: list[Placed | OnHost], accelerator: Accelerator) -> list[str]:
    notes = []
    refused = Counter((program.path(one.operation) or "the model", one.reason)
                      for one in placed if isinstance(one, OnHost))  # fmt: skip
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
