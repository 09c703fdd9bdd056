"""Trials of callgrind: loops run under valgrind, whose counters must be what the loops execute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from sonda.probes.callgrind.valgrind import (
    CacheGeometry,
    CallgrindCaches,
    callgrind_command,
    read_dumps,
    valgrind_version,
)
from sonda.probes.validation.child import ask_child
from sonda.probes.validation.microbenchmarks import LINE, WORD, modelled_parts
from sonda.probes.validation.trust import MISSING, TOLERANCE, ProbeTrial, judge_slope
from sonda.record.errors import SondaError
from sonda.record.progress import Say

CACHES = CallgrindCaches(
    CacheGeometry(32 << 10, 8, 64), CacheGeometry(32 << 10, 8, 64), CacheGeometry(256 << 10, 16, 64)
)
"""A small last level, so that a copy of some MiB finds nothing in it."""
SIZES = {"count": [100_000, 200_000], "memory": [100_000, 200_000], "copy": [2 << 20, 4 << 20]}
"""Turns, turns, bytes."""
PER_WORD, PER_LINE = 6 / WORD, 1 / LINE

EXPECTED = (
    ("count", "Ir", "instructions of a loop", 2.0, "turn"),
    ("memory", "Ir", "instructions of a loop with a load and a store", 4.0, "turn"),
    ("memory", "Dr", "loads of a loop", 1.0, "turn"),
    ("memory", "Dw", "stores of a loop", 1.0, "turn"),
    ("count", "Bc", "conditional branches of a loop", 1.0, "turn"),
    ("copy", "Ir", "instructions of a copy", PER_WORD, "byte"),
    ("copy", "DLmr", "load misses of a copy larger than the last level", PER_LINE, "byte"),
    ("copy", "DLmw", "store misses of a copy larger than the last level", PER_LINE, "byte"),
)
"""Loop, callgrind's event, what it is, how many of it for each unit of size."""


def callgrind_trials(say: Say) -> Iterator[ProbeTrial]:
    """Trials of every event that the loops determine; takes some seconds."""
    try:
        valgrind_version()
        say("counting loops with callgrind")
        counted = _count_loops()
    except SondaError as error:
        yield ProbeTrial("callgrind", "loops", MISSING, reason=error.cause, remedy=error.remedy)
        return
    yield from judge_modelled(counted)


def judge_modelled(counted: Sequence[tuple[str, int, Mapping[str, int]]]) -> Iterator[ProbeTrial]:
    """Trials of counted parts (loop, size, counters) against what the loops execute."""
    for loop, event, check, expected, unit in EXPECTED:
        sizes = [(float(size), float(counts[event])) for name, size, counts in counted if name == loop]
        yield judge_slope("callgrind", check, sizes, expected, TOLERANCE, unit)


def _count_loops() -> list[tuple[str, int, dict[str, int]]]:
    with TemporaryDirectory() as scratch:
        directory = Path(scratch)
        answer = ask_child("modelled", {"sizes": SIZES}, callgrind_command(CACHES, directory))
        if not answer.get("running"):
            raise SondaError("the trial did not run under valgrind", "run the interpreter's program directly")
        dumps = read_dumps(directory, answer["process"])
    parts = enumerate(modelled_parts(SIZES))
    return [(name, size, dumps[number]) for number, (name, size) in parts if name and number in dumps]
