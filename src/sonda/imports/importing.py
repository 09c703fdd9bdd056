"""Importing: files of other tools, told apart by what is in them, become one run."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sonda.imports import ncu, nsys, perf_stat
from sonda.imports.event_text import is_packed, open_text
from sonda.imports.job import job_facts, profile_facts
from sonda.imports.launch_file import write_launches
from sonda.imports.ncu_table import HEADING, Damage
from sonda.imports.profile_directory import ENDINGS as PROFILES
from sonda.imports.profile_directory import find_profiles
from sonda.imports.rank_events import RankEvents, write_ranks
from sonda.imports.readers import TRACES, read_trace
from sonda.imports.spread_ranks import ReadRank, Spread, spread_ranks
from sonda.imports.xplane import is_profile
from sonda.record.errors import SondaError
from sonda.record.run import Run, RunInfo, keep_run, new_id, now
from sonda.record.saying import Say
from sonda.version import VERSION

HEAD = 1 << 16
VERSIONS = ("cuda_runtime_version", "cuda_driver_version", "cupti_version", "jax_version", "jaxlib_version")
HEAD_MEMBERS = ("deviceProperties", "distributedInfo", "host_name", "profile", *VERSIONS)
"""What a trace says about itself and a run keeps."""
TRACE = re.compile(r'\ufeff?\s*(?:\[\s*(?:[{\]]|$)|\{\s*(?:["}]|$))')
"""How JSON begins that may be a trace: a list of objects, or an object."""
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""Byte order marks."""
NAMES = {
    "kineto": "trace of torch.profiler or Chrome's", "nsys": "timeline of Nsight Systems",
    "xplane": "profile of TensorFlow or JAX", "ncu": "table of Nsight Compute",
    "ncu-rep": "report of Nsight Compute", "perf": "counts of perf stat",
}  # fmt: skip
ENDINGS = (".json", ".json.gz", ".csv", ".csv.gz", ".ncu-rep", ".sqlite", ".txt", ".trace")
"""Of files in a directory that are looked at."""
PACKED = ("kineto", "ncu", "perf", "xplane")
"""Kinds that are read packed by gzip, too."""


def import_files(
    paths: Sequence[Path], root: Path, say: Say = lambda _: None, run: str = "",
    spread: Spread | None = None,
) -> Run:  # fmt: skip
    """Read files of one kind into a run under `root`: several traces, or a directory of them, are ranks.

    Of a TensorBoard log directory the profiles of the newest `run` are read, or of the one named. With `spread` ranks
    are read by its workers, and the run is the same. A trace that ends in the middle becomes an incomplete run. Raises
    SondaError, naming the file, when nothing can be read, and where files of different kinds are given.
    """
    kinds, passed_over, remarks = _recognised(paths, run)
    files = list(kinds)
    if len(set(kinds.values())) > 1:
        first, other = files[0], next(path for path in files if kinds[path] != kinds[files[0]])
        raise SondaError(
            f"{first.name} is a {NAMES[kinds[first]]}, {other.name} a {NAMES[kinds[other]]}", "import them one by one"
        )
    kind = kinds[files[0]]
    if kind not in PACKED and (packed := [path for path in files if is_packed(path)]):
        raise SondaError(f"{packed[0].name}: a {NAMES[kind]} is not read packed", f"unpack it: gunzip {packed[0].name}")
    if kind not in TRACES and len(files) > 1:
        raise SondaError(f"several files of the kind '{NAMES[kind]}' are several runs", "import them one by one")
    workload = {"name": paths[0].name if len(paths) == 1 else f"{len(files)} files", "imported": kind,
                "files": [path.name for path in files]}  # fmt: skip

    def fill(directory: Path) -> RunInfo:
        made: dict[str, Any] = (
            _traces(kind, files, directory, say, spread) if kind in TRACES else _one(kind, files[0], directory)
        )
        about = {**workload, **made.pop("workload", {})}
        if passed_over:
            made["notes"].append(f"not read: {', '.join(passed_over)}")
        made["notes"] += remarks
        return RunInfo(id=new_id(), created=now(), workload=about, **made)

    return keep_run(root, fill)


def recognise(path: Path) -> str:
    """kineto, nsys, xplane, ncu, ncu-rep or perf.

    Raises SondaError for what is none of them, and for what cannot be read.
    """
    try:
        if path.suffix == ".ncu-rep":
            with open(path, "rb"):
                return "ncu-rep"
        with open_text(path) as stream:
            head = stream.read(HEAD)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise SondaError(f"{path.name} is damaged: nothing of it can be unpacked", "copy or record it again") from None
    except OSError as error:
        raise SondaError(f"cannot read {path}: {error.strerror or error}", "name a file that can be read") from None
    if path.name.endswith(PROFILES):
        return "xplane"
    if head.startswith(nsys.MAGIC):
        return "nsys"
    if head.startswith(b"NVR\x00"):
        return "ncu-rep"
    if perf_stat.is_perf(head):
        return "perf"
    if head.startswith(UTF_16):
        raise SondaError(f"{path.name} is text in UTF-16", "write it as UTF-8: iconv -f UTF-16 -t UTF-8")
    text = head.decode("utf-8", "replace")
    if any(line.startswith((HEADING, "==PROF==", "==ERROR==", "==WARNING==")) for line in text.splitlines()):
        return "ncu"
    if TRACE.match(text):
        return "kineto"
    if is_profile(head):
        return "xplane"
    why = "it is empty" if not head else "it is no file that sonda import knows"
    remedy = (
        "give a Chrome or Kineto trace, a profile (.xplane.pb), ncu's CSV or .ncu-rep, nsys' SQLite, or perf stat -j"
    )
    if path.suffix in (".nsys-rep", ".qdrep"):
        remedy = f"make a file that it knows: nsys export --type sqlite {path.name}"
    raise SondaError(f"{path.name}: {why}", remedy)


def by_numbers(path: Path) -> list[str | int]:
    """What sorts files by the numbers in their names: rank2 before rank10."""
    words = re.split(r"([0-9]+)", path.name)
    return [int(word) if at % 2 else word for at, word in enumerate(words)]


def _recognised(paths: Sequence[Path], run: str) -> tuple[dict[Path, str], list[str], list[str]]:
    """Files and their kinds, the names of those in directories that are none of ours, and what is to be said."""
    found: dict[Path, str] = {}
    passed_over: list[str] = []
    remarks: list[str] = []
    for path in paths:
        if not path.is_dir():
            found[path] = recognise(path)
            continue
        profiles = find_profiles(path, run)
        if profiles is not None:
            found.update(dict.fromkeys(profiles.files, "xplane"))
            passed_over += profiles.passed_over
            remarks += profiles.notes
            continue
        before = len(found)
        for one in sorted(path.iterdir(), key=by_numbers):
            if one.name.endswith(ENDINGS) and one.is_file():
                try:
                    found[one] = recognise(one)
                except SondaError:
                    passed_over.append(one.name)
        if len(found) == before:
            raise SondaError(
                f"{path} holds no file that sonda import knows",
                f"their names end in {', '.join((*PROFILES, *ENDINGS))}",
            )
    if not found:
        raise SondaError("nothing to import", "name a file: sonda import trace.json.gz")
    if run and not remarks and not any(path.is_dir() for path in paths):
        raise SondaError("--run means nothing for a file", "leave it out, or name a TensorBoard log directory")
    return found, passed_over, remarks


def _traces(kind: str, files: list[Path], directory: Path, say: Say, spread: Spread | None) -> dict[str, Any]:
    ranks: Sequence[RankEvents | ReadRank]
    if spread is not None and len(files) > 1:
        ranks, written = spread_ranks(kind, files, directory, HEAD_MEMBERS, say, spread)
    else:
        ranks = read = [read_trace(kind, path, directory, number, say) for number, path in enumerate(files)]
        read.sort(key=lambda one: -1 if one.rank is None else one.rank)
        written = write_ranks(read, directory, say)
    truncated = any(one.truncated for one in ranks)
    if not written.rows:
        cut = ", and the file ends in the middle" if truncated else ""
        left = [f"{count:,} {reason}" for one in ranks for reason, count in one.left_out.items()]
        why = f" ({'; '.join(left)})" if left else ""
        raise SondaError(f"{files[0].name} holds no event with a duration{cut}{why}", "record while something runs")
    if kind == "xplane" and len(ranks) > 1:
        hosts = ", ".join(f"{one.rank} is {one.file.partition('.xplane.pb')[0]}" for one in ranks)
        written.notes.append(f"hosts by rank: {hosts}")
    properties = [rank.head.get("deviceProperties") for rank in ranks]
    devices = {str(one["name"]): None for several in properties if isinstance(several, list) for one in several
               if isinstance(one, dict) and "name" in one}  # fmt: skip
    versions = {name: str(ranks[0].head[name]) for name in VERSIONS if name in ranks[0].head}
    # Other traces may have a member of this name that is something else.
    profile = profile_facts(ranks) if kind == "xplane" else {}
    return {
        "status": "incomplete" if truncated else "complete",
        "workload": {"ranks": len(ranks), **job_facts(ranks), **profile},
        "target": {"spec": "imported", "device": "trace"},
        "machine": {"processor": ", ".join(devices)} if devices else {},
        "versions": {"sonda": VERSION, **versions},
        "notes": written.notes,
    }


def _one(kind: str, path: Path, directory: Path) -> dict[str, Any]:
    """A table of launches, or counts."""
    damage = Damage()
    try:
        if kind == "perf":
            notes, damage.cut = perf_stat.write_counts(path, directory)
        else:
            read = ncu.read_report if kind == "ncu-rep" else ncu.read_csv
            notes = write_launches(read(path, damage), directory, damage)
    except SondaError as error:
        raise SondaError(f"{path.name}: {error.cause}", error.remedy) from None
    return {
        "status": "incomplete" if damage.cut else "complete",
        "target": {"spec": "imported", "device": "counts" if kind == "perf" else "launches"},
        "versions": {"sonda": VERSION},
        "notes": notes,
    }
