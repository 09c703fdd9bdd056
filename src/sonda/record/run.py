"""A run: one directory that appears whole and is never changed afterwards."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec

from sonda.record.errors import SondaError
from sonda.record.sample import Sample, samples_from_arrow, samples_to_arrow
from sonda.record.span import Spans

SCHEMA = 1
"""Version of the files of a run. Readers accept this and every older version."""

PARTIAL = ".partial-"


class ProbeState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether a probe worked during the run, and if not, why and what would change that."""

    name: str
    state: Literal["ok", "missing", "dead", "off"]
    reason: str = ""
    remedy: str = ""


class RunInfo(msgspec.Struct, kw_only=True):
    """What `run.json` holds. Everything about a run that is not a span or a sample."""

    schema: int = SCHEMA
    id: str
    created: str
    """UTC, ISO 8601."""
    status: Literal["complete", "incomplete", "failed"]
    workload: dict[str, Any] = {}
    """`name`, `framework`, `train`, `batch` and the workload's own parameters; `command` for a program."""
    target: dict[str, Any] = {}
    """`spec` as the user wrote it, `device`, `threads`."""
    machine: dict[str, Any] = {}
    """The machine record: processor, caches, memory, and its measured `ceilings` with their date."""
    versions: dict[str, str] = {}
    seed: int | None = None
    probes: list[ProbeState] = []
    notes: list[str] = []
    """What a reader of the numbers must know, in sentences: sampled steps, a count step that was the only step."""
    group: str = ""
    """Runs of the same configuration that were repeated together share a group."""
    study: str = ""
    point: dict[str, Any] = {}
    """The study's configuration and repetition that this run measured."""
    exit_code: int | None = None
    overhead: dict[str, float] = {}
    """What observing cost: `span_ns` per layer span, `spans_per_step`, `step_share`."""


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
        return Spans.from_arrow(_read_table(self.directory / "spans.parquet"))

    @cached_property
    def samples(self) -> list[Sample]:
        path = self.directory / "samples.parquet"
        return samples_from_arrow(_read_table(path)) if path.exists() else []

    @classmethod
    def load(cls, directory: Path) -> Run:
        """Read a run's directory; raises SondaError when it is damaged, foreign or too new."""
        path = directory / "run.json"
        try:
            data = path.read_bytes()
        except OSError as error:
            raise SondaError(f"{directory.name} is not a run: {error.strerror or error}", "remove it") from None
        try:
            head = msgspec.json.decode(data)
            schema = head.get("schema") if isinstance(head, dict) else None
            if not isinstance(schema, int):
                raise SondaError(f"{directory.name} is not a run of Sonda's: run.json has no schema", "remove it")
            if schema > SCHEMA:
                raise SondaError(
                    f"{directory.name} was written by a newer Sonda (schema {schema}, this one reads {SCHEMA})",
                    "upgrade Sonda",
                )
            info = msgspec.convert(head, RunInfo)
        except msgspec.MsgspecError as error:
            raise SondaError(f"{directory.name} is damaged: run.json: {error}", "remove it") from None
        return cls(directory, info)


def new_id() -> str:
    """A run's identity: eight hexadecimal digits."""
    return secrets.token_hex(4)


def now() -> str:
    """The moment, UTC, as `run.json` writes it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def directory_name(created: str, identity: str) -> str:
    """`20261115T033012-7f3a9c21`: sorts by age without opening anything."""
    stamp = datetime.fromisoformat(created).strftime("%Y%m%dT%H%M%S")
    return f"{stamp}-{identity}"


def write_run(root: Path, info: RunInfo, spans: Spans, samples: list[Sample] | None = None) -> Run:
    """Write a run under `root`, whole or not at all, and return it.

    Raises SondaError when the disk is full or `root` cannot be written; nothing is left behind then.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    final = root / directory_name(info.created, info.id)
    partial = root / f"{PARTIAL}{os.getpid()}-{info.id}"

    def write_files() -> None:
        root.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
        pq.write_table(spans.to_arrow(), partial / "spans.parquet", compression="zstd", compression_level=1)
        if samples:
            pq.write_table(samples_to_arrow(samples), partial / "samples.parquet", compression="zstd")
        (partial / "run.json").write_bytes(msgspec.json.format(msgspec.json.encode(info), indent=1))
        for path in partial.iterdir():
            _sync(path)
        partial.rename(final)
        _sync(root)

    def give_up() -> None:
        shutil.rmtree(partial, ignore_errors=True)

    _guarded(write_files, give_up, root, pa.ArrowException)
    return Run(final, info)


def _guarded(action: Callable[[], None], give_up: Callable[[], None], root: Path, *also: type[Exception]) -> None:
    """Turn whatever the file system refuses into one line, and leave nothing half-written."""
    try:
        action()
    except (OSError, *also) as error:
        give_up()
        reason = getattr(error, "strerror", None) or str(error)
        raise SondaError(
            f"cannot keep the run in {root}: {reason}",
            "free some space, or point $SONDA_HOME at a directory that can be written",
        ) from None
    except BaseException:
        give_up()
        raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_table(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise SondaError(f"{path.parent.name} is damaged: {path.name}: {reason}", "remove it with: sonda rm") from None
