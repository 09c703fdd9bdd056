"""The rows of a listing: what is said of each run in a line, read once and remembered in the store's index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from sonda.analysis import reasons
from sonda.analysis.summary import Summary, Value
from sonda.record.errors import SondaError
from sonda.record.index import FULL, POINT_NODE, Index, IndexEntry, sizes_of
from sonda.record.run import LISTED, Run, RunInfo, describe_runs
from sonda.record.store import Store, identity_of
from sonda.record.target import ExplorationTarget
from sonda.version import VERSION


@dataclass(frozen=True)
class RunRow:
    """One run in a listing."""

    id: str
    """The shortest beginning of the id that names this run."""
    created: str
    """UTC, ISO 8601."""
    workload: str
    target: str
    step: Value
    status: str
    tags: tuple[str, ...] = ()
    verdict: str = ""
    """Kind of the first verdict; '' where none was asked for."""


def run_row(info: RunInfo, short: str = "", tags: Sequence[str] = (), summary: Summary | None = None) -> RunRow:
    """The row of a run; without its summary, step and verdict stay open."""
    part = summary.parts[0] if summary and summary.parts else None
    step = part.step if part else Value(None, "ns", "measured", reason=reasons.NO_STEP_HELD if summary else "")
    if part and part.simulated is not None:
        step = part.simulated.cycles
    if isinstance(info.target, ExplorationTarget):
        step = Value(float(info.target.exploration.points), "point", "counted")
    verdict = summary.verdicts[0].kind if summary and summary.verdicts else ""
    return RunRow(
        short or info.id, info.created, _workload_words(info), info.target.spec, step, info.status,
        tuple(tags), verdict,
    )  # fmt: skip


class ListingEntry(msgspec.Struct, frozen=True):
    """What a run's own file says for its row. It holds for this version of Sonda and for spans of this size."""

    version: str
    spans: int
    step: Value
    verdict: str


MOST_BYTES = 1 << 22
"""Spans of a run that is described when it is made; a larger one waits until it is listed."""


def describe_new_runs() -> None:
    """Have every run that this process makes say for itself what a listing needs."""
    describe_runs(describe_run)


def describe_run(run: Run) -> bytes | None:
    """The text of a run's `listed.json`; None for a large one. Raises SondaError where its files cannot be read."""
    from sonda.analysis.run_summary import summarise

    size = sizes_of(run.directory)[1]
    if size > MOST_BYTES:
        return None
    row = run_row(run.info, summary=summarise(run))
    return msgspec.json.encode(ListingEntry(VERSION, size, row.step, row.verdict))


def _listed(directory: Path, spans: int) -> ListingEntry | None:
    try:
        listed = msgspec.json.decode((directory / LISTED).read_bytes(), type=ListingEntry)
    except (OSError, msgspec.MsgspecError):
        return None
    return listed if (listed.version, listed.spans) == (VERSION, spans) else None


def rows_of(
    store: Store,
    limit: int | None,
    read: Callable[[str], None] = lambda name: None,
    names: Sequence[str] | None = None,
) -> Iterator[RunRow]:
    """Rows of the newest runs, newest first; what cannot be read goes to `store.damaged`.

    `names` are those of all runs, where the caller has them already. `read` is told of every run that has to be read
    because the index does not know it.
    """
    store.damaged.clear()
    names = store.names() if names is None else names
    tags = store.tags() if limit is None else {}
    index = Index(store.root, VERSION)
    size = FULL if limit is None else max(limit, 1)
    count = 0
    everything = store.shorts([identity_of(name) for name in names], names) if limit is None else None
    for at in range(0, len(names), size):
        if limit is not None and count >= limit:
            return
        batch = names[at : at + size]
        known = index.known(batch)
        if limit is not None:
            tags = store.tags([identity_of(name) for name in batch])
        shorts = (
            everything[at : at + size] if everything else store.shorts([identity_of(name) for name in batch], names)
        )
        new: list[IndexEntry] = []
        try:
            for name, short in zip(batch, shorts, strict=True):
                if limit is not None and count >= limit:
                    return
                entry = known.get(name)
                if entry is None or not entry.whole:
                    read(name)
                    entry = _entry(store, name)
                    if entry is None:
                        continue
                    new.append(entry)
                count += 1
                row = msgspec.convert(entry.row, RunRow)
                yield replace(row, id=short, tags=tuple(tags.get(identity_of(name), ())))
        finally:
            if new:
                index.add(new)


def nodes_of_study(store: Store, study: str, names: Sequence[str]) -> set[str]:
    """The kinds of node that points of a study are for, of these runs. What the index does not know is read, once; what
    cannot be read counts for nothing."""
    index = Index(store.root, VERSION)
    nodes = set()
    for at in range(0, len(names), FULL):
        batch = names[at : at + FULL]
        known = index.known(batch)
        new = []
        for name in batch:
            entry = known.get(name)
            if entry is None or entry.study is None:
                sizes = sizes_of(store.root / name)
                try:
                    info = Run.load(store.root / name).info
                except SondaError:
                    continue
                fresh = _row_entry(name, sizes, info, run_row(info), whole=False)
                entry = fresh if entry is None else msgspec.structs.replace(fresh, row=entry.row, whole=entry.whole)
                new.append(entry)
            if entry.study == study and entry.node:
                nodes.add(entry.node)
        if new:
            index.add(new)
    return nodes


def rebuild(store: Store, read: Callable[[int, int], None] = lambda done, total: None) -> int:
    """Make the index anew from every `run.json`; returns the number of runs. Steps are filled in when first listed.

    What cannot be read goes to `store.damaged`.
    """
    store.damaged.clear()
    index = Index(store.root, VERSION)
    index.clear()
    names = store.names()
    for at in range(0, len(names), FULL):
        entries = []
        for name in names[at : at + FULL]:
            sizes = sizes_of(store.root / name)
            try:
                info = Run.load(store.root / name).info
            except SondaError as error:
                store.damaged.append(error)
                continue
            entries.append(_row_entry(name, sizes, info, run_row(info), whole=False))
        index.add(entries)
        read(at + len(entries), len(names))
    return len(names) - len(store.damaged)


def _entry(store: Store, name: str) -> IndexEntry | None:
    directory: Path = store.root / name
    sizes = sizes_of(directory)
    try:
        run = Run.load(directory)
        listed = _listed(directory, sizes[1])
        if listed is None:
            from sonda.analysis.run_summary import summarise

            row = run_row(run.info, summary=summarise(run))
        else:
            row = replace(run_row(run.info), step=listed.step, verdict=listed.verdict)
    except SondaError as error:
        store.damaged.append(error)
        return None
    return _row_entry(name, sizes, run.info, row)


def _row_entry(name: str, sizes: tuple[int, int], info: RunInfo, row: RunRow, whole: bool = True) -> IndexEntry:
    return IndexEntry(name, sizes, msgspec.to_builtins(row), whole, info.study, str(info.point.get(POINT_NODE, "")))


def _workload_words(info: RunInfo) -> str:
    workload = info.workload
    if workload.command:
        return " ".join(workload.command)
    described = [workload.name]
    if workload.train:
        described.append("train")
    if workload.batch:
        described.append(f"batch {workload.batch}")
    return ", ".join(word for word in described if word)
