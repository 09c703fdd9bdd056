"""A part of an exploration: what one process makes of a batch, and what all parts add up to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from sonda.record.errors import SondaError
from sonda.record.files.partial import discard, write_whole
from sonda.record.spans import Words
from sonda.record.store import Store
from sonda.studies.engine.lock import hold_lock
from sonda.studies.explore.pareto import pareto_front
from sonda.studies.explore.points import point_table
from sonda.targets.job import Job
from sonda.targets.simulated.design_space import GridPoints
from sonda.targets.simulated.exploration import Explorer

OBJECTIVES = ("cycles", "energy", "area")


class PartOrder(msgspec.Struct, frozen=True):
    """A batch to be explored. `whole` are all values of the axes, of which `axes` are some."""

    job: Job
    zeros: tuple[str, ...]
    on: str
    axes: dict[str, tuple[str, ...]]
    whole: dict[str, tuple[str, ...]]
    targets: tuple[str, ...]


class Candidate(msgspec.Struct, frozen=True):
    """A point that no other point of its part beats, in cycles or in time."""

    row: int
    """In its part."""
    values: tuple[float, ...]
    """Cycles, energy, area; NaN where one is not known."""
    time: float
    """Cycles over clock; NaN without one."""
    on_host: str


class ExplorationPart(msgspec.Struct, kw_only=True):
    """What a batch came to."""

    points: int
    possible: int
    impossible: dict[str, int]
    """Points by reason."""
    unpriced: dict[str, int]
    lacking: dict[str, int]
    """Possible and priced points that have no value of an objective, by objective."""
    known: tuple[str, ...]
    """Objectives that some point has."""
    on_host: dict[str, int]
    """Possible points by what they leave to the host, in words."""
    clocks: tuple[float, ...]
    """Clocks of possible points; NaN for none."""
    candidates: list[Candidate]
    units: tuple[str, str]
    missing: tuple[str, ...]
    recalled: tuple[str, ...]
    notes: tuple[str, ...]
    seconds: float
    simulations: int
    table: bytes = b""
    """The points as a Parquet file, without which of them are on the front."""


_held: dict[bytes, Explorer] = {}
"""The explorer of this process: the next batch of the same exploration finds it ready."""


def explore_part(order: PartOrder) -> ExplorationPart:
    """Explore a batch in this process. Raises SondaError when the model fails."""
    key = msgspec.json.encode((order.job, order.zeros))
    if key not in _held:
        _held.clear()
        _held[key] = Explorer(order.job, order.zeros)
    explorer = _held[key]
    points, seconds, simulations = explorer.explore(order.on, order.axes)
    possible = points.impossible == 0
    clocks = explorer.clocks(order.on, points)
    columns = _columns(points, possible)
    return ExplorationPart(
        points=len(possible),
        possible=int(possible.sum()),
        impossible=_count_reasons(points, "impossible"),
        unpriced=_count_reasons(points, "unpriced"),
        lacking={
            name: int((possible & (points.unpriced == 0) & np.isnan(column)).sum()) for name, column in columns.items()
        },
        known=tuple(name for name, column in columns.items() if not np.isnan(column).all()),
        on_host={
            points.reasons[code]: int(count)
            for code, count in enumerate(np.bincount(points.on_host[possible]))
            if count
        },
        clocks=tuple(np.unique(clocks[possible]).tolist()),
        candidates=_candidates(points, possible, columns, clocks),
        units=points.units,
        missing=points.missing,
        recalled=points.recalled,
        notes=explorer.notes,
        seconds=seconds,
        simulations=simulations,
        table=_parquet(point_table(points, order.on, order.targets, order.whole, clocks)),
    )


def _columns(points: GridPoints, possible: Any) -> dict[str, Any]:
    return {
        "cycles": np.where(possible, points.cycles.astype(np.float64), np.nan),
        "energy": points.energy[:, 0],
        "area": points.area[:, 0],
    }


def _count_reasons(points: GridPoints, name: str) -> dict[str, int]:
    counts = np.bincount(getattr(points, name))
    return {points.reasons[code]: int(count) for code, count in enumerate(counts) if code and count}


def _candidates(points: GridPoints, possible: Any, columns: Mapping[str, Any], clocks: Any) -> list[Candidate]:
    """Points that may be on the front of all parts: those on this part's own, among those that leave as much to the
    host, whether clocks will turn out to matter or not."""
    time = columns["cycles"] / clocks
    chosen = np.zeros(len(possible), dtype=bool)
    for first in (columns["cycles"], time):
        known = [column for column in (first, columns["energy"], columns["area"]) if not np.isnan(column).all()]
        if not known:
            continue
        objectives = np.stack(known, axis=1)
        for group in np.unique(points.on_host[possible]):
            inside = np.flatnonzero(possible & (points.on_host == group))
            chosen[inside[pareto_front(objectives[inside])]] = True
        if len(np.unique(clocks)) == 1:
            break  # time and cycles say the same
    values = np.stack(list(columns.values()), axis=1)
    return [
        Candidate(row, tuple(values[row].tolist()), float(time[row]), points.reasons[points.on_host[row]])
        for row in np.flatnonzero(chosen).tolist()
    ]


def _parquet(table: Any) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue().to_pybytes()


class ExplorationTotal:
    """What the parts that have come so far add up to."""

    def __init__(self) -> None:
        self.parts: dict[int, ExplorationPart] = {}
        """By number, without their tables."""
        self._fewest = np.inf

    def add(self, number: int, part: ExplorationPart) -> None:
        self.parts[number] = msgspec.structs.replace(part, table=b"")
        self._fewest = min([self._fewest, *(candidate.values[0] for candidate in part.candidates)])

    @property
    def so_far(self) -> str:
        """The best that has come, in words."""
        return f"fewest cycles so far {self._fewest:,.0f}" if np.isfinite(self._fewest) else "none is possible so far"

    def __len__(self) -> int:
        return sum(part.points for part in self.parts.values())

    @property
    def possible(self) -> int:
        return sum(part.possible for part in self.parts.values())

    def counts(self, name: str) -> dict[str, int]:
        """Points by reason, over all parts."""
        total: dict[str, int] = {}
        for _, part in sorted(self.parts.items()):
            for reason, count in getattr(part, name).items():
                total[reason] = total.get(reason, 0) + count
        return total

    def words(self, name: str) -> list[str]:
        """`missing`, `recalled`, `notes`: what parts say, each once."""
        return list(dict.fromkeys(word for _, part in sorted(self.parts.items()) for word in getattr(part, name)))

    @property
    def units(self) -> tuple[str, str]:
        """Raises SondaError where parts do not count in the same."""
        units = {part.units for part in self.parts.values() if part.possible}
        if len(units) > 1:
            raise SondaError(
                "the energy tables of these accelerators do not count in the same units", "give --set energy_table=45nm"
            )
        return units.pop() if units else ("J", "mm2")

    @property
    def clocks(self) -> list[float]:
        return np.unique([clock for part in self.parts.values() for clock in part.clocks]).tolist()

    @property
    def objectives(self) -> tuple[str, ...]:
        """What is known of some point."""
        known = {name for part in self.parts.values() for name in part.known}
        return tuple(name for name in OBJECTIVES if name in known)

    def candidates(self) -> tuple[Any, Any, Words]:
        """Rows of the whole exploration, their objectives (by time where all clocks are known and differ), and what
        each leaves to the host."""
        by_time = len(self.clocks) > 1 and not np.isnan(self.clocks).any()
        rows: list[int] = []
        values: list[tuple[float, ...]] = []
        words: list[str] = []
        first = 0
        for _, part in sorted(self.parts.items()):
            for candidate in part.candidates:
                rows.append(first + candidate.row)
                values.append((candidate.time, *candidate.values[1:]) if by_time else candidate.values)
                words.append(candidate.on_host)
            first += part.points
        names = self.objectives
        table = np.array(values, dtype=np.float64).reshape(-1, len(OBJECTIVES))
        return np.array(rows, dtype=np.int64), table[:, [OBJECTIVES.index(name) for name in names]], Words.of(words)


# ---- The folder of an exploration in progress: one file per part, so that a stopped one goes on ---------------------

FOLDER = "explorations"


class PartsFolder:
    """Parts by number. They appear whole; what cannot be read is not there."""

    def __init__(self, store: Store, *about: Any) -> None:
        """`about` is all that makes one exploration another."""
        identity = hashlib.sha256(msgspec.json.encode(about)).hexdigest()[:16]
        self.path = store.root / FOLDER / identity
        self._lock = store.root / FOLDER / f"{identity}.lock"

    def hold(self) -> Any:
        """Hold the exploration for this process. Raises SondaError where another process works on it."""
        return hold_lock(self._lock, "this exploration")

    def known(self) -> Iterator[tuple[int, ExplorationPart]]:
        """Parts that an earlier start left, by number."""
        for path in sorted(self.path.glob("*.part")):
            try:
                yield int(path.stem), msgspec.msgpack.decode(path.read_bytes(), type=ExplorationPart)
            except (OSError, ValueError, msgspec.DecodeError):
                continue

    def add(self, number: int, part: ExplorationPart) -> None:
        """Raises SondaError when it cannot be written."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_whole(self.path / f"{number}.part", msgspec.msgpack.encode(part))
        except OSError as error:
            raise SondaError(
                f"cannot keep points in {self.path}: {error.strerror or error}",
                "free some space, or set $SONDA_HOME; what is there stays",
            ) from None

    def table(self, number: int) -> Any:
        """The points of a part as an Arrow table."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        part = msgspec.msgpack.decode((self.path / f"{number}.part").read_bytes(), type=ExplorationPart)
        return pq.read_table(pa.BufferReader(part.table))

    def remove(self) -> None:
        discard(self.path)
