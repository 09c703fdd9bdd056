"""A run: one directory that appears whole and is never changed afterwards."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from sonda.record.errors import SondaError, first_line
from sonda.record.files.partial import discard, partial_path
from sonda.record.machine import Machine
from sonda.record.readings import ProbeState as ProbeState
from sonda.record.samples import Sample, samples_from_arrow, samples_to_arrow
from sonda.record.stored import Scalar, Stored, without_unknown
from sonda.record.target import AnyTarget, Kind, WorkloadTarget
from sonda.record.workload import Workload

if TYPE_CHECKING:
    from sonda.record.spans import Spans
    from sonda.record.stacks import Stacks

SCHEMA = 2
"""Version of the files of a run. Readers accept this and every older version."""

IDENTITY = re.compile(r"[0-9a-f]{4,32}")
SPANS = "spans.parquet"
SAMPLES = "samples.parquet"
POINTS = "points.parquet"
STACKS, FRAMES = "stacks.parquet", "frames.parquet"


class CoolDown(Stored, frozen=True, kw_only=True):
    """How long a study waited for the machine to cool; temperatures in °C by sensor."""

    waited_s: float
    start: dict[str, float] = {}
    """When the study began; every run waits until the machine is as cool again."""
    before: dict[str, float] = {}
    after: dict[str, float] = {}
    reason: str = ""
    """Why the machine was not cool in the end, or why that is not known."""


class RunInfo(msgspec.Struct, kw_only=True):
    """What `run.json` holds. Everything about a run that is not a span or a sample."""

    schema: int = SCHEMA
    id: str
    created: str
    """UTC, ISO 8601."""
    status: Literal["complete", "incomplete", "failed"]
    workload: Workload = msgspec.field(default_factory=Workload)
    target: AnyTarget = msgspec.field(default_factory=lambda: WorkloadTarget(spec="", device=""))
    machine: Machine = msgspec.field(default_factory=Machine)
    versions: dict[str, str] = {}
    seed: int | None = None
    probes: list[ProbeState] = []
    notes: list[str] = []
    """What a reader of the numbers must know, in sentences: sampled steps, a count step that was the only step."""
    disturbed: list[str] = []
    """What other programs did to this run meanwhile, in sentences; empty where nothing was noticed."""
    group: str = ""
    """Runs of the same configuration that were repeated together share a group."""
    study: str = ""
    point: dict[str, Scalar] = {}
    """The study's configuration and repetition that this run measured."""
    cool_down: CoolDown | None = None
    """What was waited before it, where a study lets machines cool."""
    exit_code: int | None = None
    overhead: dict[str, float] = {}
    """What observing cost: `span_ns`, `mark_ns` of a layer's backward, `phase_ns`, `forward_ns` of a phase that is a
    forward, at a phase's both ends `group_ns` for counters that were asked for, `os_ns` with what the operating system
    counts, `wait_ns` for every thread's wait; `spans_per_step`, `phases_per_step`, `readings_per_step` (of the
    operating system), `sampling_share` of the time for sampling stacks, and the `step_share` that all of them are at
    least, of the time of all timed steps."""

    @property
    def kind(self) -> Kind:
        """What kind of run it is: the type of its target says it."""
        return self.target.kind


class Run:
    """A run on disk. `info` is read at once, `spans` and `samples` when asked for."""

    def __init__(self, directory: Path, info: RunInfo) -> None:
        self.directory = directory
        self.info = info

    @property
    def id(self) -> str:
        return self.info.id

    @cached_property
    def spans(self) -> Spans:
        """Raises SondaError when they cannot be read."""
        from sonda.record.spans import Spans

        path = self.directory / SPANS
        try:
            return Spans.from_arrow(_read_table(path))
        except (SondaError, ValueError) as error:
            raise damaged_run_error(path, error) from None

    @cached_property
    def samples(self) -> list[Sample]:
        """Raises SondaError when there are some that cannot be read."""
        path = self.directory / SAMPLES
        if not os.path.lexists(path):
            return []
        try:
            return samples_from_arrow(_read_table(path))
        except (SondaError, ValueError) as error:
            raise damaged_run_error(path, error) from None

    @cached_property
    def stacks(self) -> Stacks | None:
        """Sampled stacks; None where none were sampled. Raises SondaError when they cannot be read."""
        from sonda.record.stacks import stacks_from_arrow

        path = self.directory / STACKS
        if not os.path.lexists(path):
            return None
        try:
            return stacks_from_arrow(_read_table(self.directory / FRAMES), _read_table(path))
        except (SondaError, ValueError) as error:
            raise damaged_run_error(path, error) from None

    @cached_property
    def points(self) -> Any:
        """The points of an exploration as an Arrow table, a row each. Raises SondaError when they cannot be read."""
        path = self.directory / POINTS
        try:
            return _read_table(path)
        except SondaError as error:
            raise damaged_run_error(path, error) from None

    @classmethod
    def load(cls, directory: Path) -> Run:
        """Read a run's directory; raises SondaError when it is damaged, foreign or too new."""
        name, path = directory.name, directory / "run.json"
        try:
            if not path.is_file():
                raise SondaError(f"{name} is not a run: it has no file run.json", f"remove it with: sonda rm {name}")
            data = path.read_bytes()
        except OSError as error:
            raise SondaError(f"{name} cannot be read: {error.strerror or error}", "make it readable") from None
        try:
            info = decode_info(data, name)
        except (ValueError, RecursionError) as error:
            raise damaged_run_error(path, error) from None
        return cls(directory, info)


class _Head(msgspec.Struct):
    schema: object = None


def decode_info(data: bytes, name: str) -> RunInfo:
    """What a `run.json` says. Raises SondaError where it is foreign or too new, ValueError where it is damaged.

    Everything of it is checked here and nowhere else: behind this, every value is of its type.
    """
    try:
        schema = msgspec.json.decode(data, type=_Head).schema
    except msgspec.ValidationError:
        schema = None
    if type(schema) is not int or schema < 1:
        raise SondaError(f"{name} is not a run of Sonda's: run.json has no schema", "remove it")
    if schema > SCHEMA:
        raise SondaError(
            f"{name} was written by a newer Sonda (schema {schema}, this one reads {SCHEMA})", "upgrade Sonda"
        )
    info = msgspec.json.decode(data, type=RunInfo) if schema == SCHEMA else convert_info(msgspec.json.decode(data))
    if not IDENTITY.fullmatch(info.id):
        raise ValueError(f"{info.id[:40]!r} is no id")
    return info


def convert_info(document: Mapping[str, Any]) -> RunInfo:
    """What a document of schema 1 says; raises ValueError where it cannot be."""
    from sonda.record.upgrade import upgrade

    return msgspec.convert(upgrade(document), RunInfo)


def new_id() -> str:
    """A run's identity: twelve hexadecimal digits, enough that no two of ten thousand runs ever share one."""
    return secrets.token_hex(6)


def now() -> str:
    """The moment, UTC, as `run.json` writes it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def directory_name(created: str, identity: str) -> str:
    """`20261115T033012417-7f3a9c21d04e`, UTC with milliseconds: sorts by age without opening anything."""
    moment = datetime.fromisoformat(created)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return f"{moment:%Y%m%dT%H%M%S}{moment.microsecond // 1000:03d}-{identity}"


LISTED = "listed.json"
"""What a listing says of a run that `run.json` does not: a small file, so that no spans are read for it."""
_describers: list[Callable[[Run], bytes | None]] = []


def describe_runs(describe: Callable[[Run], bytes | None]) -> None:
    """Have every run that is made from now on described by this, in `listed.json`; None leaves it out.

    This room cannot tell what runs mean. Whoever makes runs and can installs it, once.
    """
    _describers[:] = [describe]


def _description(partial: Path, info: RunInfo) -> bytes | None:
    """None where nobody describes runs, or this one cannot be: it is kept all the same."""
    try:
        return _describers[0](Run(partial, info)) if _describers else None
    except Exception:
        return None


def write_run(
    root: Path,
    info: RunInfo,
    spans: Spans,
    samples: list[Sample] | None = None,
    files: Mapping[str, Path] | None = None,
    stacks: Stacks | None = None,
) -> Run:
    """Write a run under `root`, whole or not at all, and return it. `files` are further ones of it, by name.

    Raises SondaError when the disk is full or `root` cannot be written; nothing is left behind then.
    """

    def fill(partial: Path) -> RunInfo:
        _write_table(spans.to_arrow(), partial / SPANS)
        if samples:
            write_samples(samples, partial)
        if stacks is not None:
            from sonda.record.stacks import frames_to_arrow, stack_samples_to_arrow

            _write_table(frames_to_arrow(stacks.frames), partial / FRAMES)
            _write_table(stack_samples_to_arrow(stacks.samples), partial / STACKS)
        for name, path in (files or {}).items():
            shutil.copyfile(path, partial / name)
        return info

    return keep_run(root, fill)


def keep_run(root: Path, fill: Callable[[Path], RunInfo]) -> Run:
    """A run under `root` whose files `fill` writes into the directory it is given; it then says what the run is.

    The run appears whole or not at all. Raises SondaError when the disk is full or `root` cannot be written; nothing
    is left behind then, as when `fill` raises.
    """
    import pyarrow as pa

    partial = partial_path(root)
    try:
        root.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
        document, info = _document(fill(partial))
        final = root / directory_name(info.created, info.id)
        (partial / "run.json").write_bytes(document)
        if (listed := _description(partial, info)) is not None:
            (partial / LISTED).write_bytes(listed)
        for path in partial.iterdir():
            _sync(path)
        _sync_directory(partial)
        partial.rename(final)
    except BaseException as error:
        try:
            discard(partial)
        except OSError:
            pass  # the first error is the one to tell; `Store.sweep` takes what stays
        if not isinstance(error, (OSError, pa.ArrowException)):
            raise
        raise SondaError(
            f"cannot keep the run in {root}: {getattr(error, 'strerror', None) or error}",
            "free some space, or point $SONDA_HOME at a directory that can be written",
        ) from None
    _sync_directory(root)
    return Run(final, info)


def write_samples(samples: list[Sample], directory: Path) -> None:
    """The samples of a run that is being written."""
    _write_table(samples_to_arrow(samples), directory / SAMPLES)


def _document(info: RunInfo) -> tuple[bytes, RunInfo]:
    """`run.json`, and the same as it will be read back. Raises SondaError for what nobody could read."""
    # JSON has no NaN; what is not known is left out.
    plain = without_unknown(msgspec.to_builtins(info))
    try:
        data = msgspec.json.encode(plain)
    except UnicodeEncodeError:
        data = msgspec.json.encode(_encodable(plain))
    try:
        return msgspec.json.format(data, indent=1), msgspec.json.decode(data, type=RunInfo)
    except msgspec.ValidationError as error:
        raise SondaError(f"run.json cannot hold this run: {error}", "report it, with what was run") from None


def _encodable(value: Any) -> Any:
    """Command lines and paths need not be UTF-8: what cannot be encoded is written as an escape."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    return value


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_directory(path: Path) -> None:
    # Some network file systems refuse this; the files themselves are safe by then.
    try:
        _sync(path)
    except OSError:
        pass


def _write_table(table: Any, path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table, path, compression="zstd", compression_level=1, write_page_checksum=True)


def _read_table(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if not path.is_file():
            raise SondaError("no such file")
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            return file.read()
    except (OSError, pa.ArrowException) as error:
        raise SondaError(getattr(error, "strerror", None) or str(error)) from None


def damaged_run_error(path: Path, error: Exception) -> SondaError:
    """What is said of a run one of whose files cannot be read."""
    name = path.parent.name
    reason = getattr(error, "strerror", None) or first_line(error)
    return SondaError(f"{name} is damaged: {path.name}: {reason}", f"remove it with: sonda rm {name}")
