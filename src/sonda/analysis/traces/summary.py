"""The summary of an imported run: devices, kernels, steps, and what they say, in one pass through its spans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from sonda.analysis import reasons
from sonda.analysis.device.critical_path import CriticalPath, critical_paths
from sonda.analysis.device.kernels import LATENCY, KernelTable, KernelTotals, on_device
from sonda.analysis.device.timeline import CLASSES, BusyTime, DeviceTime
from sonda.analysis.findings import Finding, Remark
from sonda.analysis.ranks.stragglers import ImportedJob, is_job, job_of
from sonda.analysis.ranks.verdict import rank_verdict
from sonda.analysis.summary import Remedy, Summary, Value, Verdict
from sonda.analysis.titles import describe_trace
from sonda.analysis.traces.findings import (
    ComputingDevice,
    ExposedDevice,
    HostOnly,
    IdleDevice,
    LaunchesCounted,
    NoCommonStep,
    ProgramCounted,
    TimelessDevice,
    TracedDevice,
    TraceRemedy,
    TruncatedTrace,
    UnseenWaits,
)
from sonda.analysis.traces.profile import ProfileSummary, is_profile, summarise_profile
from sonda.analysis.traces.verdict import profile_verdicts
from sonda.record.conventions.profile_names import communicates
from sonda.record.files.tables import read_blocks
from sonda.record.quantities import Metric
from sonda.record.run import Run
from sonda.record.spans import Spans

COLUMNS = ("stream", "rank", "device", LATENCY, "bytes:counted")
MOSTLY = 0.5
"""Share of the window from which something is what limits."""


@dataclass(frozen=True)
class DeviceWork:
    """What devices did in a run."""

    devices: tuple[DeviceTime, ...]
    """By rank and device; empty where times are not those of a timeline."""
    kernels: tuple[KernelTotals, ...]
    """Longest in all first, all devices together."""
    steps: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """ns of every step by rank, in order."""
    counters: tuple[tuple[str, Value], ...] = ()
    """Counts of a whole program, by name."""

    @property
    def total(self) -> int:
        """ns of all activities, overlapping ones each for itself."""
        return sum(kernel.total for kernel in self.kernels)

    @property
    def step_count(self) -> int:
        return sum(len(durations) for durations in self.steps.values())


@dataclass(frozen=True)
class TraceSummary:
    """An imported run, as plain data."""

    summary: Summary
    work: DeviceWork
    paths: tuple[CriticalPath, ...]
    """Of every rank whose path was walked."""
    profile: ProfileSummary | None = None
    """Steps and operations, where the file was a profile of TensorFlow or JAX, or a trace without a device."""
    job: ImportedJob | None = None
    """Ranks and their steps, where there are several."""


def device_work(run: Run) -> DeviceWork:
    """Timelines, kernels and steps of any run; of an imported one with memory that does not grow with it."""
    return _work(run, on_device, run.info.target.device != "launches")


def host_work(run: Run) -> DeviceWork:
    """The same of a run without a device: operations of the host in place of kernels, and no timelines."""
    return _work(run, lambda spans: np.flatnonzero(spans.where(kind="op")), False)


def _work(run: Run, activities: Callable[[Spans], np.ndarray], timeline: bool) -> DeviceWork:
    """`activities` are the rows that count; with `timeline` they cover their devices."""
    coverages: dict[tuple[int, str], BusyTime] = {}
    table = KernelTable()
    steps: dict[int, list[int]] = {}
    counters: list[tuple[str, Value]] = []
    columns = (*COLUMNS, *_counted(run))
    # Only imported spans are in the order of time.
    blocks = read_blocks(run, columns) if run.info.kind == "imported" else iter([run.spans])
    for spans in blocks:
        rows = activities(spans)
        rows = rows[np.argsort(spans.number("start")[rows], kind="stable")]
        if len(rows):
            table.feed(spans, rows)
            if timeline:
                _cover(coverages, spans, rows)
        for row in np.flatnonzero(spans.where(kind="step")).tolist():
            steps.setdefault(int(spans.number("rank")[row]), []).append(int(spans.number("duration")[row]))
        counters += _counters(spans)
    devices = tuple(coverage.result() for _, coverage in sorted(coverages.items()))
    return DeviceWork(devices, table.rows(), {rank: tuple(all_) for rank, all_ in steps.items()}, tuple(counters))


def _counted(run: Run) -> tuple[str, ...]:
    """Columns that only tables of counts have; they are small."""
    return tuple(run.spans.metrics) if run.info.target.device in ("launches", "counts") else ()


def _counters(spans: Spans) -> list[tuple[str, Value]]:
    counters = []
    for row in np.flatnonzero(spans.where(kind="run")).tolist():
        for column, values in spans.metrics.items():
            metric = Metric.parse(column)
            if not np.isnan(values[row]):
                counters.append((metric.quantity, Value(float(values[row]), metric.unit, metric.source)))
    return counters


def _cover(coverages: dict[tuple[int, str], BusyTime], spans: Spans, rows: np.ndarray) -> None:
    kind, device = spans.words("kind"), spans.words("device")
    classes = np.array([CLASSES.get(word, 0) for word in kind.words])[kind.codes[rows]]
    start = spans.number("start")[rows]
    end = start + spans.number("duration")[rows]
    stream, rank = spans.number("stream")[rows], spans.number("rank")[rows]
    latency = spans.metric("launch_latency", "measured")[rows]
    places = rank.astype(np.int64) * len(device.words) + device.codes[rows]
    for place in np.unique(places).tolist():
        mine = places == place
        key = (place // len(device.words), device.words[place % len(device.words)])
        coverages.setdefault(key, BusyTime(*key)).feed(
            start[mine], end[mine], classes[mine], stream[mine], latency[mine]
        )


def summarise_trace(run: Run, paths: bool = True) -> TraceSummary:
    """What an imported run means; without `paths` the critical path and what ranks say of each other are left out."""
    info = run.info
    work = device_work(run)
    warnings = [TruncatedTrace()] if info.status != "complete" else []
    walked = critical_paths(run, sorted({device.rank for device in work.devices})) if paths and work.devices else []
    notes: list[Finding] = [Remark(note) for note in info.notes]
    unseen = sum(path.unseen for path in walked)
    if unseen:
        notes.append(UnseenWaits(unseen))
    host_only = not (work.devices or work.kernels or work.counters)
    profile = summarise_profile(run) if is_profile(run) or host_only else None
    job = job_of(run) if paths and is_job(run) else None
    if job is None and paths and is_job(run):
        notes.append(NoCommonStep())
    summary = Summary(
        run=info.id, title=str(info.workload.name or "imported run"),
        subtitle=describe_trace(info, work.step_count), status=info.status, parts=(),
        verdicts=tuple(_all_verdicts(work, profile, job)), warnings=tuple(warnings),
        ceilings={"reason": reasons.IMPORT_HAS_NO_ROOF}, notes=tuple(notes),
        workload=info.workload, target=info.target, machine=info.machine,
    )  # fmt: skip
    return TraceSummary(summary, work, tuple(walked), profile, job)


def _all_verdicts(work: DeviceWork, profile: ProfileSummary | None, job: ImportedJob | None) -> list[Verdict]:
    """What ranks say of each other, what the devices' timeline says, and what the steps of a profile say."""
    verdicts = profile_verdicts(profile, bool(work.devices)) if profile is not None else []
    verdicts = [rank_verdict(job), *verdicts] if job is not None else verdicts
    return [*_verdicts(work, profile), *verdicts] if work.devices or not verdicts else verdicts


def _host_only(profile: ProfileSummary | None) -> Finding:
    every = profile.operations if profile is not None else ()
    computing = [operation for operation in every if not communicates(operation.name)]
    exchanged = sum(operation.own for operation in every if communicates(operation.name))
    whole = sum(operation.own for operation in computing)
    longest = tuple((operation.name, operation.own / whole) for operation in computing[:3]) if whole else ()
    return HostOnly(whole, longest, exchanged)


def _verdicts(work: DeviceWork, profile: ProfileSummary | None) -> list[Verdict]:
    if not work.devices:
        if work.kernels:
            launches = sum(kernel.launches for kernel in work.kernels)
            return [Verdict("untimed", LaunchesCounted(launches, len(work.kernels)), {})]
        if work.counters:
            return [Verdict("untimed", ProgramCounted(len(work.counters)), {})]
        return [Verdict("nothing", _host_only(profile), {})]
    device = max(work.devices, key=lambda device: device.window)
    traced = TracedDevice(device.device, None if len(work.devices) == 1 else device.rank)
    if not device.window:
        return [Verdict("untimed", TimelessDevice(traced), {})]
    idle, compute = device.idle / device.window, device.compute / device.window
    exposed = {
        "communication": (device.communication - device.hidden_communication) / device.window,
        "copies": (device.copying - device.hidden_copying) / device.window,
    }
    shares = {"idle": idle, "compute": compute} | {f"exposed {name}": share for name, share in exposed.items()}
    evidence = {key: Value(share, "1", "derived") for key, share in shares.items()}
    gaps = sum(device.waits.values())
    host = device.waits["host"] / gaps if gaps else 0.0
    evidence["host wait"] = Value(host, "1", "derived")
    if idle >= MOSTLY:
        remedies = (Remedy(TraceRemedy("fewer launches")),) if host >= MOSTLY else ()
        return [Verdict("overhead", IdleDevice(traced, idle, host, host >= MOSTLY), evidence, remedies, idle)]
    activity = max(exposed, key=lambda name: exposed[name])
    share = exposed[activity]
    if share > compute:
        kind = "transfer" if activity == "copies" else activity
        return [Verdict(kind, ExposedDevice(traced, activity, share), evidence, (), share)]
    return [Verdict("compute", ComputingDevice(traced, compute, idle), evidence, (), compute)]
