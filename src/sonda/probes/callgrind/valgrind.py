"""Callgrind: whether it is installed, the caches that it simulates, its command line, and the counters it writes."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from sonda.probes.kernel_files import parse_size, read_int, read_text
from sonda.record.errors import SondaError

OLDEST = (3, 19)
"""The oldest valgrind that runs PyTorch's wheels and takes the client requests that the collector makes."""
REMEDY = "install the package valgrind, 3.19 or later (Debian, Ubuntu: apt install valgrind)"

QUANTITIES = {
    "Ir": "instructions",
    "Dr": "loads",
    "Dw": "stores",
    "I1mr": "l1i_misses",
    "D1mr": "l1d_load_misses",
    "D1mw": "l1d_store_misses",
    "ILmr": "ll_instruction_misses",
    "DLmr": "ll_load_misses",
    "DLmw": "ll_store_misses",
    "Bc": "branches",
    "Bcm": "branch_misses",
    "Bi": "indirect_branches",
    "Bim": "indirect_misses",
}
"""Callgrind's events and the quantities that they are kept as. `branches` are the conditional ones."""
EVENT_NAMES = tuple(QUANTITIES)


@dataclass(frozen=True)
class CacheGeometry:
    """A cache: bytes, ways, bytes of a line."""

    bytes: int
    ways: int
    line: int

    def __str__(self) -> str:
        """As valgrind wants it."""
        return f"{self.bytes},{self.ways},{self.line}"

    def record(self) -> dict[str, int]:
        return asdict(self)

    @property
    def sets(self) -> float:
        return self.bytes / (self.ways * self.line)

    def simulable(self) -> CacheGeometry:
        """The nearest cache that callgrind can simulate: its number of sets must be a power of two.

        It has more or fewer ways instead, so that its size stays as near as whole ways allow.
        """
        lines = max(1, self.bytes // self.line)
        sets = 1 << (max(1, round(lines / self.ways)).bit_length() - 1)
        ways = max(1, round(lines / sets))
        return CacheGeometry(sets * ways * self.line, ways, self.line)


@dataclass(frozen=True)
class CallgrindCaches:
    """The caches that callgrind simulates: two of the first level and the last. It has no level in between."""

    I1: CacheGeometry
    D1: CacheGeometry
    LL: CacheGeometry
    assumed: tuple[str, ...] = ()
    """Those that the kernel does not show."""

    def record(self) -> dict[str, dict[str, int]]:
        return {"I1": self.I1.record(), "D1": self.D1.record(), "LL": self.LL.record()}

    def simulable(self) -> CallgrindCaches:
        return CallgrindCaches(self.I1.simulable(), self.D1.simulable(), self.LL.simulable(), self.assumed)


ASSUMED = CallgrindCaches(
    CacheGeometry(32 << 10, 8, 64), CacheGeometry(32 << 10, 8, 64), CacheGeometry(8 << 20, 16, 64)
)
"""Taken for caches that the kernel does not show. Valgrind's own guess is wrong in virtual machines."""


def valgrind_version() -> str:
    """`3.19.0`; raises SondaError where valgrind is missing, too old, or of no use on this machine."""
    if platform.machine() not in ("x86_64", "AMD64"):
        raise SondaError(
            f"the probe callgrind does not work on {platform.machine()}", "use an x86-64 machine, or leave it out"
        )
    if shutil.which("valgrind") is None:
        raise SondaError("the probe callgrind needs valgrind, which is not installed", REMEDY)
    try:
        done = subprocess.run(["valgrind", "--version"], capture_output=True, text=True, timeout=60, check=False)
        answer = done.stdout.strip() or done.stderr.strip()
    except (OSError, subprocess.SubprocessError) as error:
        raise SondaError(f"valgrind cannot be run: {error}", REMEDY) from None
    return parse_valgrind_version(answer)


def parse_valgrind_version(text: str) -> str:
    """The version in the answer of `valgrind --version`; raises SondaError where it is too old or there is none."""
    match = re.match(r"valgrind-(\d+)\.(\d+)(\S*)", text)
    if match is None:
        raise SondaError(f"valgrind --version says {text[:60]!r}", REMEDY)
    if (int(match[1]), int(match[2])) < OLDEST:
        raise SondaError(f"valgrind {text.removeprefix('valgrind-')} is too old for the probe callgrind", REMEDY)
    return text.removeprefix("valgrind-")


def read_cache_geometry(root: Path = Path("/")) -> CallgrindCaches:
    """The first and the last level of this machine's caches, from `/sys/devices/system/cpu/cpu0/cache`."""
    geometries: dict[str, tuple[int, CacheGeometry]] = {}
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index[0-9]*")):
        level, kind = read_int(index / "level"), read_text(index / "type")
        ways, line = read_int(index / "ways_of_associativity"), read_int(index / "coherency_line_size")
        try:
            size = parse_size(read_text(index / "size") or "")
        except ValueError:
            continue
        if not level or not kind or not size or not line:
            continue
        # A kernel that does not know the ways writes 0: the cache is then taken for fully associative.
        geometry = CacheGeometry(size, ways or size // line, line)
        names = {"Instruction": ["I1"], "Data": ["D1"], "Unified": ["I1", "D1"]}.get(kind, []) if level == 1 else []
        if level > 1 and kind == "Unified":
            names = ["LL"]
        for name in names:
            if name not in geometries or level > geometries[name][0]:
                geometries[name] = (level, geometry)
    known = {name: geometry for name, (_, geometry) in geometries.items()}
    missing = tuple(name for name in ("I1", "D1", "LL") if name not in known)
    return CallgrindCaches(
        known.get("I1", ASSUMED.I1), known.get("D1", ASSUMED.D1), known.get("LL", ASSUMED.LL), assumed=missing
    )


def callgrind_command(caches: CallgrindCaches, directory: Path) -> list[str]:
    """The words to put before a program's own. Counters and messages go into files of `directory`, one per process."""
    place = str(directory).replace("%", "%%")
    return [
        "valgrind", "--tool=callgrind", "--instr-atstart=no", "--cache-sim=yes", "--branch-sim=yes",
        f"--I1={caches.I1}", f"--D1={caches.D1}", f"--LL={caches.LL}", "--dump-line=no", "--trace-children=yes",
        "--vgdb=no", f"--callgrind-out-file={place}/callgrind.%p", f"--log-file={place}/valgrind.%p",
    ]  # fmt: skip


@dataclass(frozen=True)
class Dump:
    """One part of callgrind's output: the number that the program gave it, and its counters by event.

    The number is -1 where callgrind wrote the part for another reason.
    """

    number: int
    counters: dict[str, int]


NAME = re.compile(r"^desc: Trigger: Client Request: sonda (\d+)$", re.MULTILINE)
EVENTS = re.compile(r"^events: (.+)$", re.MULTILINE)
TOTALS = re.compile(r"^totals: ([\d ]+)\n", re.MULTILINE)
"""With the end of its line: a number that was cut short is still a number."""


def parse_dump(text: str) -> Dump:
    """The counters of one part, from `totals:`; raises SondaError for a file that is not whole.

    `summary:` is not read: it differs from the sum of the lines behind it, and wraps around in the last part.
    """
    events, totals, name = EVENTS.search(text), TOTALS.search(text), NAME.search(text)
    if events is None or totals is None:
        raise SondaError(f"a dump of callgrind lacks its {'events' if events is None else 'totals'}", "run it again")
    names, numbers = events[1].split(), [int(word) for word in totals[1].split()]
    if len(numbers) > len(names):
        raise SondaError(f"a dump of callgrind has {len(names)} events and {len(numbers)} totals", "run it again")
    # Callgrind leaves zeros at the end of a line out.
    numbers += [0] * (len(names) - len(numbers))
    return Dump(int(name[1]) if name else -1, dict(zip(names, numbers, strict=True)))


def read_dumps(directory: Path, process: int) -> dict[int, dict[str, int]]:
    """The counters that one process wrote, by the number of their part.

    A part that is not whole is left out, and all parts behind it.
    """
    counters: dict[int, dict[str, int]] = {}
    files = [path for path in directory.glob(f"callgrind.{process}.*") if path.suffix[1:].isdigit()]
    for path in sorted(files, key=lambda path: int(path.suffix[1:])):
        try:
            dump = parse_dump(path.read_text(errors="replace"))
        except SondaError:
            break
        if dump.number >= 0:
            counters[dump.number] = dump.counters
    return counters
