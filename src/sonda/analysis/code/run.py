"""From the sampled stacks of a run to what they say of its steps and of the whole program."""

from __future__ import annotations

import numpy as np

from sonda.analysis.code.placement import WAITING, Moments, OpenSpans, find_open, find_python, weigh_samples
from sonda.analysis.code.regions import CodeBook, CodeSample, Whole
from sonda.analysis.code.summary import (
    BESIDE,
    OTHER,
    OUTSIDE,
    WORKERS,
    CodeLead,
    CodeRegion,
    CodeSummary,
    PartCode,
    StepCollections,
)
from sonda.analysis.steps.parts import Part
from sonda.analysis.summary import Value
from sonda.record.run import Run
from sonda.record.spans import Spans

NO_PHASE, IN_STEP = -2, -1
"""Groups of moments that are in no phase: in no step, and in one."""


def summarise_code(run: Run, parts: list[Part]) -> CodeSummary | None:
    """Where in the program its time goes; None where no stacks were sampled. Raises SondaError for a damaged file."""
    stacks = run.stacks
    if stacks is None or not len(stacks.samples):
        return None
    moments, spans = weigh_samples(stacks.samples), run.spans
    threads = {thread for part in parts for thread in _threads(part)} or {int(moments.process.min())}
    opened = {thread: find_open(spans, thread, moments.time[moments.thread == thread]) for thread in threads}
    group = np.full(len(moments.time), NO_PHASE)
    names = spans.words("name").codes
    for thread, at in opened.items():
        # In no phase of a step, and in no step, are groups too.
        in_step = np.where(at.phase >= 0, names[np.maximum(at.phase, 0)], IN_STEP)
        group[moments.thread == thread] = np.where(at.step >= 0, in_step, NO_PHASE)
    book = CodeBook(stacks.frames, find_python(moments, group))
    summaries = [_summarise_part(book, part, opened) for part in parts]
    return CodeSummary(
        tuple(summary for summary in summaries if summary is not None),
        _summarise_outside(book, spans, opened),
        _find_between(book, spans, opened),
    )


def _threads(part: Part) -> list[int]:
    """Native ids of the threads that make the steps of a part."""
    threads: list[int] = np.unique(part.index.spans.number("thread")[part.rows]).tolist()
    return threads


def _summarise_part(book: CodeBook, part: Part, opened: dict[int, OpenSpans]) -> PartCode | None:
    spans, moments = part.index.spans, book.moments
    measured = part.measured & ~_beside_profiler(part)
    steps = part.rows[measured]
    names, paths = spans.words("name"), spans.words("path")
    samples: list[CodeSample] = []
    rows_of_all: list[np.ndarray] = []
    for thread in _threads(part):
        rows, at = np.flatnonzero(moments.thread == thread), opened[thread]
        inside = np.isin(at.step, steps)
        rows, step, phase, layer = rows[inside], at.step[inside], at.phase[inside], at.layer[inside]
        samples += book.samples(
            rows, step,
            [names.words[names.codes[row]] if row >= 0 else OTHER for row in phase.tolist()],
            [(paths.words[paths.codes[row]] or names.words[names.codes[row]]) if row >= 0 else ""
             for row in layer.tolist()],
            _measure_inside(moments, rows, spans, steps),
        )  # fmt: skip
        rows_of_all.append(rows)
    rows = np.concatenate(rows_of_all) if rows_of_all else np.zeros(0, dtype=np.int64)
    if not samples or not len(steps):
        return None
    weight = np.array([sample.weight for sample in samples])
    whole = Whole(float(part.host[measured].sum()), float(len(steps)), _independent(weight))
    phases: dict[str, list[CodeSample]] = {}
    for sample in samples:
        phases.setdefault(sample.phase, []).append(sample)
    causes = book.causes(samples, whole)
    left: dict[str, list[CodeSample]] = {name: [] for name in phases}
    for sample in causes.rest:
        left[sample.phase].append(sample)
    regions = [book.region(name, inside, whole, left[name]) for name, inside in phases.items()]
    regions.sort(key=lambda region: -region.time.total)
    regions += _regions_beside(book, part, steps, rows, whole)
    return PartCode(
        part.name,
        sum(sample.due for sample in samples),
        tuple(regions),
        book.functions(samples, whole),
        causes.leads,
        _collections(part, steps),
        causes.purposes,
    )


def _beside_profiler(part: Part) -> np.ndarray:
    """Which steps lie next to those whose kernels were recorded: starting and ending a profiler is part of them."""
    spans = part.index.spans
    start = spans.number("start")
    recorded = start[spans.where(kind="step") & spans.words("pass").equal("kernels")]
    beside = np.zeros(len(part.rows), dtype=bool)
    if not len(recorded):
        return beside
    before = np.flatnonzero(start[part.rows] < recorded.min())
    after = np.flatnonzero(start[part.rows] > recorded.max())
    for rows, last in ((before, True), (after, False)):
        if len(rows):
            chosen = start[part.rows[rows]]
            beside[rows[chosen.argmax() if last else chosen.argmin()]] = True
    return beside


def _measure_inside(moments: Moments, rows: np.ndarray, spans: Spans, steps: np.ndarray) -> np.ndarray:
    """ns of what moments stand for that lie in these steps: a moment that was long in coming stands for others too."""
    start = np.sort(spans.number("start")[steps])
    duration = spans.number("duration")[steps][np.argsort(spans.number("start")[steps])]
    edges = np.column_stack((start, start + duration)).ravel()
    passed = np.column_stack((np.cumsum(duration) - duration, np.cumsum(duration))).ravel()
    time, weight = moments.time[rows].astype(np.float64), moments.weight[rows]
    # The moment when a sample was due stands for what was before it, the other for what came then.
    first, last = np.where(moments.due[rows], time - weight, time), np.where(moments.due[rows], time, time + weight)
    inside: np.ndarray = np.interp(last, edges, passed) - np.interp(first, edges, passed)
    return inside


def _independent(weight: np.ndarray) -> float:
    """How many samples of equal weight tell as much as these moments, of which each sample gives two."""
    squares = float((weight**2).sum())
    return float(weight.sum()) ** 2 / squares / 2 if squares else 0.0


def _regions_beside(book: CodeBook, part: Part, steps: np.ndarray, rows: np.ndarray, whole: Whole) -> list[CodeRegion]:
    """What other threads and workers did while these steps lasted; `rows` are the moments of the thread that steps."""
    spans, moments = part.index.spans, book.moments
    start = spans.number("start")[steps]
    end = start + spans.number("duration")[steps]
    at = np.searchsorted(start, moments.time, "right") - 1
    meanwhile = (at >= 0) & (moments.time < end[np.maximum(at, 0)])
    stepping = np.unique(spans.number("thread")[spans.where(kind="step")])
    same = np.isin(moments.process, np.unique(moments.process[rows])) & ~np.isin(moments.thread, stepping)
    # Threads that only wait are the rule, and slow nobody.
    beside = np.flatnonzero(same & meanwhile & (moments.doing != WAITING))
    regions = []
    if len(beside):
        regions.append(book.region(BESIDE, book.samples(beside, steps[at[beside]]), whole))
    # Other threads of a worker pass on what its first one makes.
    working = np.flatnonzero((moments.worker >= 0) & (moments.thread == moments.process) & meanwhile)
    if len(working):
        weight = moments.weight[working]
        of_workers = Whole(float(weight.sum()), whole.steps, _independent(weight))
        regions.append(book.region(WORKERS, book.samples(working, steps[at[working]]), of_workers))
    return regions


def _collections(part: Part, steps: np.ndarray) -> StepCollections | None:
    spans = part.index.spans
    count = spans.metric("collections", "counted")[steps]
    time = spans.metric("collection_time", "measured")[steps]
    if np.isnan(count).any() or np.isnan(time).any():
        return None
    return StepCollections(
        Value(float(count.mean()), "1", "counted"),
        Value(float(time.mean()), "ns", "measured"),
        Value(float(time.sum() / max(part.host[part.measured].sum(), 1)), "1", "derived"),
    )


def _summarise_outside(book: CodeBook, spans: Spans, opened: dict[int, OpenSpans]) -> CodeRegion | None:
    """What the first thread with samples did outside of steps, as a share of the whole program."""
    runs = np.flatnonzero(spans.where(kind="run"))
    rows = _rows_outside(book, opened)
    if not len(rows) or not len(runs):
        return None
    whole = Whole(float(spans.number("duration")[runs[0]]), 1.0, _independent(book.moments.weight[rows]))
    return book.region(OUTSIDE, book.samples(rows), whole)


def _rows_outside(book: CodeBook, opened: dict[int, OpenSpans]) -> np.ndarray:
    """Moments of the thread with most samples that are in no step."""
    thread_of = book.moments.thread
    if not opened:
        return np.zeros(0, dtype=np.int64)
    thread = max(opened, key=lambda thread: int((thread_of == thread).sum()))
    return np.flatnonzero(thread_of == thread)[opened[thread].step < 0]


def _find_between(book: CodeBook, spans: Spans, opened: dict[int, OpenSpans]) -> tuple[CodeLead, ...]:
    """What the functions are for that take the time between steps, or where there are none that of the program."""
    moments, rows = book.moments, _rows_outside(book, opened)
    steps = spans.where(kind="step") & (spans.number("duration") > 0)
    start = spans.number("start")[steps]
    whole = 0.0
    if len(start):
        first, last = start.min(), (start + spans.number("duration")[steps]).max()
        rows, whole = rows[(moments.time[rows] > first) & (moments.time[rows] < last)], float(last - first)
    samples = [sample for sample in book.samples(rows) if not book.imports(sample)]
    weight = np.array([sample.weight for sample in samples])
    whole = whole or float(weight.sum())
    if not samples or not whole:
        return ()
    # Samples in steps tell as much about the shares as these do.
    share = min(float(weight.sum()) / whole, 1.0)
    of_all = Whole(whole, 1.0, _independent(weight) / share if share else 0.0)
    causes = book.causes(samples, of_all)
    return tuple(sorted((*causes.leads, *book.leads(causes.rest, of_all)), key=lambda lead: -lead.time.total))
