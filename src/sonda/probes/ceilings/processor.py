"""Ceilings: the measured peaks of this machine, kept as a dated record beside the runs and in the user's cache.

    {"measured": "2026-11-15T03:30:12+00:00",      the oldest of the entries
     "library": "torch 2.13.0",
     "cache_bytes": 50331648,                      one last-level cache; absent where unknown
     "fingerprint": "5486743723061d8d",
     "threads": {"1": {"measured": ..., "flops": {"float32": 1.5e11, ...},      FLOP/s by precision
                       "dram_bandwidth": 2.0e10, "cache_bandwidth": 5.7e10,     B/s, read plus written
                       "dram_stream": 1.2e10, "cache_stream": 3.2e10,           B/s of operations with a new result
                       "bandwidth_curve": [[bytes touched, B/s], ...],
                       "cache_bytes": 50331648,                                 last-level caches these threads reach
                       "operation_ns": 1000.0, "training_operation_ns": 6700.0,
                       "spread": {...}, "kernels": {...}, "missing": {...}, "disturbed": [...]}}}

How the figures are taken, and how they compare with theory, is in `processor_kernels`. A peak is a lower bound of what
the machine can do, so two measurements of the same machine are merged: the better of each figure is kept. An entry
that was measured while other programs ran, or whose cache was slower than DRAM, says so in `disturbed`; nothing is held
against it, it never takes the place of a good one, and it is measured again some minutes later.
What few threads reach, more threads can reach too: a figure that falls with the number of threads is raised to that of
the smaller number.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from sonda.probes.ceilings.processor_kernels import CeilingJob, ThreadPoint, slow_cache
from sonda.probes.machine.environment import package_version
from sonda.probes.machine.record import machine_record
from sonda.record.errors import SondaError
from sonda.record.files.partial import write_whole
from sonda.record.files.user_cache import user_cache

SCHEMA = 2
TIMEOUT_S = 180
TAKES_S = 6.0
"""About so long measuring takes with torch, where nothing else runs."""
RETRY_MINUTES = 10
"""A disturbed entry is measured again after so many minutes. Before every run would cost more than it brings."""
HIGHER = ("dram_bandwidth", "dram_stream", "cache_bandwidth", "cache_stream")
LOWER = ("operation_ns", "training_operation_ns")
THREAD_VARIABLES = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "VECLIB_")
"""Beginnings of variables that must not reach the measuring process: a ceiling is no property of one shell."""

Entries = dict[str, dict[str, Any]]
Measure = Callable[[dict[str, Any], str, list[int]], Entries]
"""(machine record, library, numbers of threads) to entries by number of threads."""


def measuring_library() -> str:
    """The library that would measure the ceilings now, as `torch 2.13.0`; nothing is imported for it.

    Raises SondaError where none is installed.
    """
    for name in ("torch", "numpy"):
        version = package_version(name)
        if version:
            return f"{name} {version.partition('+')[0]}"
    raise SondaError("neither torch nor numpy is installed", "install one with: pip install numpy")


def thread_points(machine: dict[str, Any], threads: list[int]) -> list[ThreadPoint]:
    """For each number of threads, the last-level cache and the level before it that so many threads reach together."""
    levels = [cache for cache in machine.get("caches", []) if cache["type"] != "Instruction"]
    last = levels[-1] if levels else None
    inner = levels[-2] if len(levels) > 1 else None

    def reached(cache: dict[str, Any] | None, count: int) -> int:
        return cache["bytes"] * min(cache["instances"], count) if cache else 0

    return [ThreadPoint(count, reached(last, count), reached(inner, count)) for count in threads]


def measure_processor(machine: dict[str, Any], library: str, threads: list[int]) -> Entries:
    """Measure in child processes: about 6 s for two numbers of threads with torch. Raises SondaError on failure."""
    memory = min(machine.get("memory_bytes", 0), machine.get("memory_limit_bytes", math.inf))
    name = library.split()[0]
    wanted = thread_points(machine, sorted(set(threads)))
    # torch resizes its pools itself; NumPy's BLAS reads its number of threads once, so each number needs a process.
    groups = [wanted] if name == "torch" else [[point] for point in wanted]
    entries: Entries = {}
    for group in groups:
        entries.update(_ask_child(CeilingJob(name, group, int(memory)), max(point.threads for point in group)))
    return entries


def _ask_child(job: CeilingJob, threads: int) -> Entries:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(THREAD_VARIABLES)}
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        environment[name] = str(threads)
    # -P: a file in the user's directory that is named like a module must not be imported.
    command = [sys.executable, "-P", "-m", "sonda.probes.ceilings.processor_kernels", msgspec.json.encode(job).decode()]
    remedy = "measure again when the machine is quiet"
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SondaError(f"the machine's ceilings could not be measured: {error}", remedy) from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise SondaError(f"the machine's ceilings could not be measured: {last}", remedy)
    try:
        entries = json.loads(done.stdout)
    except ValueError:
        raise SondaError("the machine's ceilings could not be measured: no result", remedy) from None
    return {count: entry for count, entry in entries.items() if is_usable(entry)}


def is_usable(entry: Any) -> bool:
    """Whether an entry has the figures that every machine has, as finite positive numbers."""
    if not isinstance(entry, dict) or not isinstance(entry.get("flops"), dict) or not entry["flops"]:
        return False
    figures = [*entry["flops"].values(), *(entry[name] for name in (*HIGHER, *LOWER) if name in entry)]
    return "dram_bandwidth" in entry and all(
        isinstance(figure, int | float) and not isinstance(figure, bool) and math.isfinite(figure) and figure > 0
        for figure in figures
    )


def keep_better(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The newer of two entries of one machine, a good one before a disturbed one, with the better of each figure."""
    kept = old if new.get("disturbed") and not old.get("disturbed") else new
    merged = {**kept, "flops": {**old["flops"], **new["flops"]}}
    for precision, rate in old["flops"].items():
        merged["flops"][precision] = max(rate, merged["flops"][precision])
    for name in HIGHER:
        if name in old and name in new:
            merged[name] = max(old[name], new[name])
    for name in LOWER:
        if name in old and name in new:
            merged[name] = min(old[name], new[name])
    return merged


def raise_to_reached(record: dict[str, Any], threads: int, precision: str, rate: float, by: str) -> dict[str, Any]:
    """The same ceilings, the peak of a precision no lower than the FLOP/s that an operation `by` has reached."""
    count = str(threads)
    entry = record["threads"][count]
    if rate <= entry["flops"].get(precision, math.inf):
        return record
    raised = {
        **entry,
        "flops": {**entry["flops"], precision: rate},
        "kernels": {**entry.get("kernels", {}), precision: by},
    }
    return {**record, "threads": {**record["threads"], count: raised}}


def merge_entries(entries: Entries, others: Entries) -> Entries:
    """All entries of both; for a number of threads that both have, the newer one with the better figures of both."""
    merged = {**entries, **others}
    for count in entries.keys() & others.keys():
        older, newer = sorted((entries[count], others[count]), key=lambda entry: str(entry["measured"]))
        merged[count] = keep_better(older, newer)
    return merged


def raise_with_threads(entries: Entries) -> Entries:
    """Entries in order of threads, no rate below that of fewer threads: more threads may always be left idle."""
    ordered = {count: {**entry, "flops": dict(entry["flops"])} for count, entry in
               sorted(entries.items(), key=lambda item: int(item[0]))}  # fmt: skip
    for fewer, more in pairwise(ordered.values()):
        for precision, rate in fewer["flops"].items():
            more["flops"][precision] = max(rate, more["flops"].get(precision, 0))
        for name in HIGHER:
            if name in fewer and name in more:
                more[name] = max(fewer[name], more[name])
    return ordered


def load_or_measure(
    root: Path,
    threads: list[int],
    measure: Measure = measure_processor,
    max_age_days: float = 30,
    machine: dict[str, Any] | None = None,
    again: bool = False,
) -> dict[str, Any]:
    """The ceilings for these numbers of threads, from `<root>/machines/<fingerprint>.json` or measured and kept there.

    What other stores of this user have kept, in the user's cache, counts as well.

    It measures again entries that are older than `max_age_days`, disturbed, or of another library or version, and all
    entries where the file cannot be read or `again` asks for it. Of old and new the better figure is kept. A store that
    cannot be written is no error: the ceilings are then not kept. Empty `threads` mean 1 and all effective cores.
    Raises SondaError where measuring fails.
    """
    machine = machine or machine_record()
    library = measuring_library()
    counts = sorted({count for count in threads if count > 0} or {1, machine.get("effective_cores", 1)})
    files = ceilings_files(root, machine["fingerprint"], library)
    entries: Entries = {}
    for path in files:
        entries = merge_entries(entries, _read_kept(path, machine["fingerprint"], library, max_age_days))
    patient = datetime.now(UTC) - timedelta(minutes=RETRY_MINUTES)
    wanted = [
        count
        for count in counts
        if again
        or str(count) not in entries
        or (entries[str(count)].get("disturbed") and not is_newer(entries[str(count)].get("measured"), patient))
    ]
    if wanted:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        for count, entry in measure(machine, library, wanted).items():
            entry = {**entry, "measured": now}
            entries[count] = keep_better(entries[count], entry) if count in entries else entry
        for path in files:  # another process may have written meanwhile
            kept = _read_kept(path, machine["fingerprint"], library, max_age_days)
            write_ceilings(path, _make_record(machine, library, merge_entries(kept, entries)))
    record = _make_record(machine, library, entries)
    absent = [count for count in counts if str(count) not in entries]
    if absent:
        raise SondaError(
            f"the machine's ceilings with {absent[0]} threads could not be measured",
            "measure again when the machine is quiet",
        )
    return record


def _make_record(machine: dict[str, Any], library: str, entries: Entries) -> dict[str, Any]:
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "measured": min((entry["measured"] for entry in entries.values()), default=""),
        "library": library,
        "fingerprint": machine["fingerprint"],
        "processor": machine.get("processor", ""),
        "threads": raise_with_threads(entries),
    }
    levels = [cache for cache in machine.get("caches", []) if cache["type"] != "Instruction"]
    if levels:
        record["cache_bytes"] = levels[-1]["bytes"]
    return record


def _read_kept(path: Path, fingerprint: str, library: str, max_age_days: float) -> Entries:
    """The entries of a machine's file that are still valid; none where it is damaged or of another machine, library or
    schema."""
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        return {}
    if record.get("fingerprint") != fingerprint or record.get("library") != library:
        return {}
    entries = record.get("threads")
    if not isinstance(entries, dict):
        return {}
    limit = datetime.now(UTC) - timedelta(days=max_age_days)
    return {count: {**entry, "disturbed": entry.get("disturbed") or slow_cache(entry)}
            for count, entry in entries.items()
            if count.isdigit() and is_usable(entry) and is_newer(entry.get("measured"), limit)}  # fmt: skip


def is_newer(moment: Any, limit: datetime) -> bool:
    """Whether `moment` (ISO 8601) is after `limit`. False where it cannot be read, or lies in the future."""
    try:
        when = datetime.fromisoformat(moment)
    except (TypeError, ValueError):
        return False
    return when.tzinfo is not None and limit <= when <= datetime.now(UTC) + timedelta(days=1)


def ceilings_files(root: Path, name: str, library: str) -> list[Path]:
    """Where the ceilings of a machine or GPU of this name are kept: in a store, and in the user's cache by library."""
    files = [root / "machines" / f"{name}.json"]
    with suppress(RuntimeError):  # a user without a home
        files.append(user_cache("machines") / f"{name}-{library.replace(' ', '-')}.json")
    return files


def write_ceilings(path: Path, record: Any) -> None:
    """Write a record, whole. Where the file system refuses, nothing is kept."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, msgspec.json.format(msgspec.json.encode(record), indent=1))
