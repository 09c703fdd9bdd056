"""Import files of other tools: recognise what each file is and make the tables of one run of them."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from sonda.imports import nsys, perf_stat
from sonda.imports.kineto.text import is_packed, open_text
from sonda.imports.ncu import files as ncu
from sonda.imports.ncu.spans import write_launches
from sonda.imports.ncu.tables import HEADING, Damage
from sonda.imports.rank_workers import ReadRank, Spread, spread_ranks
from sonda.imports.readers import TRACES, read_trace
from sonda.imports.trace.ranks import RankEvents, write_ranks
from sonda.imports.xplane.file import is_profile
from sonda.imports.xplane.log_directory import ENDINGS as PROFILES
from sonda.imports.xplane.log_directory import find_profiles
from sonda.record.conventions import rank_group
from sonda.record.errors import SondaError
from sonda.record.progress import Say
from sonda.record.target import ImportedTarget
from sonda.version import VERSION

# ---- What traces say about the job of their ranks -------------------------------------------------------------------


class RankHead(Protocol):
    """A rank and what its file says about itself."""

    rank: int | None
    head: dict[str, Any]


def profile_facts(ranks: Sequence[RankHead]) -> dict[str, Any]:
    """`profile` of XSpace files: what they say about steps and traced functions, all ranks together.

    Calls and traces of a function are added up; where it was not traced on all of several ranks, `ranks` names those.
    """
    profiles = [(rank.rank or 0, rank.head["profile"]) for rank in ranks]
    traced: dict[str, dict[str, Any]] = {}
    for rank, profile in profiles:
        for name, counts in profile["traced"].items():
            totals = traced.setdefault(name, {"calls": 0, "traced": 0, "ranks": []})
            totals["calls"] += counts["calls"]
            totals["traced"] += counts["traced"]
            totals["ranks"].append(rank)
    for totals in traced.values():
        if len(totals["ranks"]) == len(ranks):
            del totals["ranks"]
    return {
        "profile": {
            "steps": next((profile["steps"] for _, profile in profiles if profile["steps"]), ""),
            "traced": traced,
        }
    }


def job_facts(ranks: Sequence[RankHead]) -> dict[str, Any]:
    """Of several ranks: `hosts`, the name of each one's machine in order; `world`, how many ranks the job had;
    `smallest_group`, how many take part in the smallest group that communicates; `groups`, all of these with their
    ranks. What no file says is left out.
    """
    if len(ranks) < 2:
        return {}
    hosts = [rank.head.get("host_name") for rank in ranks]
    facts: dict[str, Any] = {}
    if all(isinstance(host, str) and host for host in hosts):
        facts["hosts"] = hosts
    about = [rank.head.get("distributedInfo") for rank in ranks]
    infos = [info for info in about if isinstance(info, dict)]
    worlds = [size for info in infos if isinstance(size := info.get("world_size"), int) and 0 < size < 1 << 31]
    if worlds:
        facts["world"] = max(worlds)
    groups = [
        (group, size) for info in infos if isinstance(config := info.get("pg_config"), list) for group in config
        if isinstance(group, dict) and isinstance(size := group.get("pg_size"), int) and 1 < size < 1 << 31
    ]  # fmt: skip
    if groups:
        facts["smallest_group"] = min(size for _, size in groups)
    named = [
        rank_group.parse_group(group.get("pg_name"), group.get("pg_desc"), group.get("ranks"), "")
        for group, _ in groups
    ]
    whole = [group for group in dict.fromkeys(named) if group is not None and group.ranks]
    if whole:
        facts["groups"] = [
            {"name": group.group, "description": group.description, "ranks": list(group.ranks)} for group in whole
        ]
    return facts


# ---- Recognising and importing files --------------------------------------------------------------------------------

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


@dataclass
class Imported:
    """What files say of the run that they are of; its tables are in the directory."""

    target: ImportedTarget
    versions: dict[str, str]
    notes: list[str]
    complete: bool = True
    workload: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)


def read_files(
    paths: Sequence[Path], directory: Path, say: Say = lambda _: None, run: str = "", spread: Spread | None = None
) -> Imported:
    """Read files of one kind into the tables of a run, in `directory`: several traces, or a folder of them, are ranks.

    Of a TensorBoard log directory the profiles of the newest `run` are read, or of the one named. With `spread` ranks
    are read by its workers, and the tables are the same. A trace that ends in the middle is not complete. Raises
    SondaError, naming the file, when nothing can be read, and where files of different kinds are given.
    """
    kinds, passed_over, remarks = _recognise_all(paths, run)
    files = list(kinds)
    if len(set(kinds.values())) > 1:
        first, odd_one = files[0], next(path for path in files if kinds[path] != kinds[files[0]])
        raise SondaError(
            f"{first.name} is a {NAMES[kinds[first]]}, {odd_one.name} a {NAMES[kinds[odd_one]]}",
            "import them one by one",
        )
    kind = kinds[files[0]]
    if kind not in PACKED and (packed := [path for path in files if is_packed(path)]):
        raise SondaError(f"{packed[0].name}: a {NAMES[kind]} is not read packed", f"unpack it: gunzip {packed[0].name}")
    if kind not in TRACES and len(files) > 1:
        raise SondaError(f"several files of the kind '{NAMES[kind]}' are several runs", "import them one by one")
    imported = (
        _import_traces(kind, files, directory, say, spread)
        if kind in TRACES
        else _import_single(kind, files[0], directory)
    )
    name = paths[0].name if len(paths) == 1 else f"{len(files)} files"
    about = {"name": name, "imported": kind, "files": [path.name for path in files]}
    imported.workload = {**about, **imported.workload}
    imported.notes += [*([f"not read: {', '.join(passed_over)}"] if passed_over else []), *remarks]
    return imported


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


def numeric_order(path: Path) -> list[str | int]:
    """What sorts files by the numbers in their names: rank2 before rank10."""
    words = re.split(r"([0-9]+)", path.name)
    return [int(word) if at % 2 else word for at, word in enumerate(words)]


def _recognise_all(paths: Sequence[Path], run: str) -> tuple[dict[Path, str], list[str], list[str]]:
    """Files and their kinds, the names of those in directories that are none of ours, and what is to be said."""
    kinds: dict[Path, str] = {}
    passed_over: list[str] = []
    remarks: list[str] = []
    for path in paths:
        if not path.is_dir():
            kinds[path] = recognise(path)
            continue
        profiles = find_profiles(path, run)
        if profiles is not None:
            kinds.update(dict.fromkeys(profiles.files, "xplane"))
            passed_over += profiles.passed_over
            remarks += profiles.notes
            continue
        before = len(kinds)
        for file in sorted(path.iterdir(), key=numeric_order):
            if file.name.endswith(ENDINGS) and file.is_file():
                try:
                    kinds[file] = recognise(file)
                except SondaError:
                    passed_over.append(file.name)
        if len(kinds) == before:
            raise SondaError(
                f"{path} holds no file that sonda import knows",
                f"their names end in {', '.join((*PROFILES, *ENDINGS))}",
            )
    if not kinds:
        raise SondaError("nothing to import", "name a file: sonda import trace.json.gz")
    if run and not remarks and not any(path.is_dir() for path in paths):
        raise SondaError("--run means nothing for a file", "leave it out, or name a TensorBoard log directory")
    return kinds, passed_over, remarks


def _import_traces(kind: str, files: list[Path], directory: Path, say: Say, spread: Spread | None) -> Imported:
    ranks: Sequence[RankEvents | ReadRank]
    if spread is not None and len(files) > 1:
        ranks, written = spread_ranks(kind, files, directory, HEAD_MEMBERS, say, spread)
    else:
        ranks = read = [read_trace(kind, path, directory, number, say) for number, path in enumerate(files)]
        read.sort(key=lambda rank: -1 if rank.rank is None else rank.rank)
        written = write_ranks(read, directory, say)
    truncated = any(rank.truncated for rank in ranks)
    if not written.rows:
        cut = ", and the file ends in the middle" if truncated else ""
        left = [f"{count:,} {reason}" for rank in ranks for reason, count in rank.left_out.items()]
        why = f" ({'; '.join(left)})" if left else ""
        raise SondaError(f"{files[0].name} holds no event with a duration{cut}{why}", "record while something runs")
    if kind == "xplane" and len(ranks) > 1:
        hosts = ", ".join(f"{rank.rank} is {rank.file.partition('.xplane.pb')[0]}" for rank in ranks)
        written.notes.append(f"hosts by rank: {hosts}")
    properties = [rank.head.get("deviceProperties") for rank in ranks]
    devices = {str(device["name"]): None for several in properties if isinstance(several, list) for device in several
               if isinstance(device, dict) and "name" in device}  # fmt: skip
    versions = {name: str(ranks[0].head[name]) for name in VERSIONS if name in ranks[0].head}
    # Other traces may have a member of this name that is something else.
    profile = profile_facts(ranks) if kind == "xplane" else {}
    return Imported(
        ImportedTarget(spec="imported", device="trace"),
        {"sonda": VERSION, **versions},
        written.notes,
        complete=not truncated,
        workload={"ranks": len(ranks), **job_facts(ranks), **profile},
        machine={"processor": ", ".join(devices)} if devices else {},
    )


def _import_single(kind: str, path: Path, directory: Path) -> Imported:
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
    target = ImportedTarget(spec="imported", device="counts" if kind == "perf" else "launches")
    return Imported(target, {"sonda": VERSION}, notes, complete=not damage.cut)
