"""Makes one table of spans from the files of all collectors of a program."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sonda.frameworks.reconstruction.events import CODE, ProcessEvents, read_events
from sonda.frameworks.reconstruction.inspections import (
    read_compilations,
    read_denormals,
    read_inspections,
    read_repeated_forwards,
)
from sonda.frameworks.reconstruction.paths import LayerPlaces
from sonda.frameworks.reconstruction.processes import Processes
from sonda.frameworks.reconstruction.span_rows import SpanRows
from sonda.frameworks.reconstruction.stacks import read_stacks
from sonda.frameworks.reconstruction.stages import read_stages, stage_columns
from sonda.frameworks.reconstruction.steps import StepSection
from sonda.frameworks.reconstruction.thread import read_thread
from sonda.record.spans import Spans
from sonda.record.stacks import Stacks


@dataclass
class Assembly:
    """The spans of a program and what its collectors stated."""

    spans: Spans
    framework: str = ""
    """The framework that computed, where a program was observed: torch, tensorflow, jax, pytensor."""
    versions: dict[str, str] = field(default_factory=dict)
    threads: int | None = None
    span_ns: float | None = None
    """What recording one layer cost, ns."""
    phase_ns: float | None = None
    """What recording one phase cost, ns, without reading counters."""
    reading: dict[str, float] = field(default_factory=dict)
    """What reading counters cost a phase, ns: `group_ns`, `os_ns`, `wait_ns` (`collector/overhead.py`); `mark_ns` of a
    layer's backward and `forward_ns` of a forward, where they differ (`torch/observe/overhead.py`)."""
    notes: list[str] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)
    """Operations without a formula, and how many different ones of each name there were."""
    flops: dict[str, float] = field(default_factory=dict)
    """FLOPs of the distinct operations by the type of their elements."""
    counting: dict[str, Any] = field(default_factory=dict)
    """Where counts came from, by probe: `os` and, where it was requested, `pmu`."""
    devices: dict[str, dict[str, Any]] = field(default_factory=dict)
    """GPUs that were used, by number: their names, and the peaks of allocated and reserved memory."""
    tf32: dict[str, bool] = field(default_factory=dict)
    """Whether products (`matmul`) and convolutions of a GPU may run as TF32."""
    kernels: list[tuple[str, int]] = field(default_factory=list)
    """Traces of kernels that lie beside the events, each with its rank."""
    launching: dict[str, int] = field(default_factory=dict)
    """By the name of a trace with thread numbers of its own: the thread that launched all its kernels."""
    no_kernels: str = ""
    """Why there is no trace of kernels."""
    graphs: list[dict[str, Any]] = field(default_factory=list)
    """Profiles of graphs, each with the graphs' names and their scopes (`tensorflow/observe/graph_pass.py`)."""
    jitted: list[dict[str, Any]] = field(default_factory=list)
    """Profiles of jitted functions, process by process (`jax/observe/jit_pass.py`)."""
    traced: list[dict[str, Any]] = field(default_factory=list)
    """Functions that were traced and compiled: how often, how long, and why again (`collector/traces.py`)."""
    pipelines: list[dict[str, Any]] = field(default_factory=list)
    """Stages of tf.data, by the loader that they belong to (`tensorflow/observe/fetches.py`)."""
    stacks: Stacks | None = None
    """Sampled stacks of its threads, where they were sampled."""
    sampling_share: float = 0.0
    """Part of the time of the process with the most samples that sampling them took, 0 to 1."""
    evidence: list[dict[str, Any]] = field(default_factory=list)
    """What counted steps showed beside costs, of the process with the most steps (`record/evidence.py`)."""
    denormals: dict[str, Any] = field(default_factory=dict)
    repeated_forwards: dict[str, Any] = field(default_factory=dict)
    division: dict[str, Any] = field(default_factory=dict)
    """The line in which its files divide work among processes (`record/evidence.py`)."""
    compilations: dict[str, Any] = field(default_factory=dict)
    fault_ns: float = 0.0
    """What a page fault cost there, ns; 0 where that was not measured."""
    step_faults: float = 0.0
    """Page faults of its process in a step, wherever in it."""
    processes: int = 0
    crew: Processes = field(default_factory=Processes)
    """What is known of each process."""
    truncated: bool = False
    """Whether a process was killed before it could write everything."""


def assemble(directory: Path, begin: int, end: int) -> Assembly:
    """Read all `*.events` files of a directory. `begin` and `end` (ns, CLOCK_MONOTONIC) bound the run."""
    rows = SpanRows(begin)
    rows.add_run(begin, end)
    rows.add({}, **stage_columns(read_stages(directory, begin, end), rows.code))
    counted: dict[str, float] = {}
    result = Assembly(spans=Spans({"start": np.zeros(0)}, {}))
    sampled = read_stacks(directory, begin)
    result.stacks = sampled.stacks
    result.division = sampled.division._asdict() if sampled.division is not None else {}
    for path in sorted(directory.glob("*.events")):
        events = read_events(path)
        result.truncated |= events.truncated or not events.fact("finished", False)
        result.crew.add(events)
        _take_facts(result, events)
        places = LayerPlaces(events.definitions, events.facts)
        paths = places.paths()
        rank = int(events.fact("rank", 0))
        result.kernels += [(fact["kernels"], rank) for fact in events.facts if "kernels" in fact]
        result.launching |= {fact["kernels"]: fact["launching"] for fact in events.facts if "launching" in fact}
        rows.begin_process(sampled.collections[sampled.collections[:, 4] == events.fact("process", 0)])
        result.sampling_share = max(result.sampling_share, sampled.spent.get(events.fact("process", 0), 0.0))
        sections: list[StepSection] = []
        for thread in _order_threads(events):
            # Events are dropped thread by thread: they are as large as the rows that are made of them.
            spans = read_thread(events, events.threads.pop(thread), events.readings.pop(thread, ()), places)
            result.crew.add_sections(spans.sections, rank)
            sections += spans.sections
            rows.add_thread(spans, paths, events, thread, rank)
        result.processes += 1
        if result.crew.all[-1] is result.crew.busiest:
            result.evidence = read_inspections(events, paths, sections, begin)
            result.denormals, result.compilations = read_denormals(events, paths), read_compilations(events)
            result.repeated_forwards = read_repeated_forwards(events, paths)
            result.fault_ns, result.step_faults = events.fact("fault_ns", 0.0), events.fact("step_faults", 0.0)
        for name, value in events.fact("counted", {}).items():
            counted[f"{name}:counted"] = counted.get(f"{name}:counted", 0.0) + value
    rows.add_totals(counted)
    result.spans = rows.table()
    return result


def _order_threads(events: ProcessEvents) -> list[int]:
    """Threads, those without phases last: autograd's threads run a backward that is a phase of another thread."""
    phases = [number for number, definition in enumerate(events.definitions) if definition.get("kind") == "phase"]

    def has_no_phase(thread: int) -> bool:
        return not np.isin((events.threads[thread][:, 0] & CODE) >> 1, phases).any()

    return sorted(events.threads, key=has_no_phase)


def _take_facts(result: Assembly, events: ProcessEvents) -> None:
    result.framework = events.fact("framework", result.framework)
    result.versions.update(events.fact("versions", {}))
    result.threads = events.fact("threads", result.threads)
    result.span_ns = events.fact("span_ns", result.span_ns)
    result.phase_ns = events.fact("phase_ns", result.phase_ns)
    for name in ("mark_ns", "forward_ns", "group_ns", "os_ns", "wait_ns"):
        result.reading[name] = events.fact(name, result.reading.get(name, 0.0))
    result.counting = {**events.fact("counting", {}), **result.counting}
    result.devices.update(events.fact("devices", {}))
    result.traced += events.fact("traced", [])
    result.graphs += events.fact("graphs", [])
    result.pipelines += events.fact("pipelines", [])
    result.jitted += [fact for fact in events.facts if "jitted" in fact]
    result.tf32 = events.fact("tf32", result.tf32)
    result.no_kernels = events.fact("no_kernels", result.no_kernels)
    for note in (*events.fact("notes", []), *_note_lost_marks(events)):
        if note not in result.notes:
            result.notes.append(note)
    for definition in events.definitions:
        if definition.get("kind") != "op":
            continue
        if not definition.get("known", True):
            name = definition["name"]
            result.unknown[name] = result.unknown.get(name, 0) + 1
        kind = definition.get("dtype", "")
        result.flops[kind] = result.flops.get(kind, 0.0) + float(definition.get("flops") or 0)


def _note_lost_marks(events: ProcessEvents) -> list[str]:
    """Notes about phases that have the host's times although a GPU was used."""
    marked = any(definition.get("quantity") == "device_begin" for definition in events.definitions)
    if marked and events.fact("devices") and not events.marks:
        return [
            "the program ended before its GPU could be asked for times: those of steps and phases are the host's, "
            "which launches work and does not wait for it"
        ]
    if events.other_marks:
        return [
            f"{events.other_marks:,} of {events.other_marks + len(events.marks):,} marks lie on other GPUs than the "
            "one used most: phases there have the host's times"
        ]
    return []
