"""What a stall costs on this machine: measured by loops of known instructions, with published figures beside them.

Cycles are told from time by a chain of multiplications, each of which waits for the one before: three cycles each on
every x86-64 processor since 2011 (Agner Fog, Instruction tables; uops.info: IMUL r64, r64).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from time import perf_counter_ns
from typing import Any

import numpy as np

from sonda.probes.machine_code import MachineCode

LINE = 64
CHAIN = bytes.fromhex("480fafc0" * 16 + "48ffcf75bbc3")
"""imul rax, rax sixteen times; dec rdi; jnz; ret: 48 cycles a turn."""
CHASE = bytes.fromhex("488b3f48ffce75f84889f8c3")
"""mov rdi, [rdi]; dec rsi; jnz; mov rax, rdi; ret: every load waits for the one before."""
BRANCH = bytes.fromhex("31c0f607017402ffc048ffc748ffce75f1c3")
"""xor eax, eax; again: test byte [rdi], 1; jz skip; inc eax; skip: inc rdi; dec rsi; jnz again; ret."""
IMUL_CYCLES = 3
SAMPLES = 50
LOADS = 5_000
BRANCHES = 20_000
"""Short enough that some samples are not interrupted on a busy machine."""


@dataclass(frozen=True)
class Core:
    """How wide a processor issues, and what its makers or others print about mispredicted branches."""

    name: str
    vendor: str
    family: int
    models: tuple[int, ...]
    """Empty: all of the family that no other entry names."""
    width: int
    """Slots per cycle."""
    mispredicted: tuple[int, int] | None
    """Cycles, from and to."""
    source: str


PERFMON = "intel/perfmon, TMA metrics: slots per cycle"
CORES = (
    Core("Skylake-SP, Cascade Lake", "GenuineIntel", 6, (85,), 4, None, PERFMON),
    Core("Ice Lake-SP", "GenuineIntel", 6, (106, 108), 5, None, PERFMON),
    Core("Sapphire, Emerald and Granite Rapids", "GenuineIntel", 6, (143, 207, 173, 174), 6, None, PERFMON),
    Core("Zen 2", "AuthenticAMD", 23, (49, 96, 104, 113, 144, 152, 160), 6, None,
         "Linux perf, amdzen2: dispatch of 6 macro-operations a cycle"),
    Core("Zen 3", "AuthenticAMD", 25, (1, 8, 33, 64, 68, 80), 6, (11, 18),
         "AMD 56665, Software Optimization Guide for family 19h, 2.8 and 2.9.6"),
    Core("Zen 4", "AuthenticAMD", 25, (17, 24, 97, 116, 120, 160), 6, None, "Linux perf, amdzen4/pipeline.json"),
    Core("Zen 5", "AuthenticAMD", 26, (), 8, None, "Linux perf, amdzen5/pipeline.json"),
)  # fmt: skip
"""Widths by which slots are counted (facts for Top-Down use the same)."""
UNKNOWN_WIDTH = 8
"""The widest x86-64 processor so far: the floor that it gives holds for all."""


@dataclass(frozen=True)
class Penalties:
    """Costs of stalls, in cycles of the frequency that was measured with them."""

    core: str
    width: int
    hertz: float
    mispredicted: float
    """Cycles of a mispredicted branch."""
    last_level: float
    """Cycles of a load that finds its line in the last-level cache."""
    memory: float
    """Cycles of a load that goes to memory, the walk of the page table included."""
    source: str
    """Where the width comes from."""
    published: tuple[int, int] | None = None
    """Printed range of `mispredicted`, where there is one."""

    def record(self) -> dict[str, Any]:
        return asdict(self)


def core_of(vendor: str, family: int | None, model: int | None) -> Core | None:
    """The entry of a processor; None for one that is not in the table."""
    same = [core for core in CORES if core.vendor == vendor and core.family == family]
    return next((core for core in same if model in core.models), next((one for one in same if not one.models), None))


def measure_penalties(machine: dict[str, Any]) -> Penalties | None:
    """Measure on this machine, in about two seconds; None where it allows no machine code of ours.

    `machine` is the machine record: vendor, family, model, caches.
    """
    try:
        hertz = frequency()
        first, last = _sizes(machine)
        core = core_of(str(machine.get("vendor", "")), machine.get("family"), machine.get("model"))
        return Penalties(
            core=core.name if core else "unknown processor",
            width=core.width if core else UNKNOWN_WIDTH,
            hertz=hertz,
            mispredicted=mispredicted_ns() * hertz * 1e-9,
            last_level=load_ns(first) * hertz * 1e-9,
            memory=load_ns(last) * hertz * 1e-9,
            source=core.source if core else "the widest x86-64 processor so far",
            published=core.mispredicted if core else None,
        )
    except OSError:
        return None


def _sizes(machine: dict[str, Any]) -> tuple[int, int]:
    """Bytes that the last-level cache holds and the one before it does not; and bytes that it cannot hold."""
    sizes = {int(cache["level"]): int(cache["bytes"]) for cache in machine.get("caches") or []}
    levels = sorted(sizes)
    last = sizes[levels[-1]] if levels else 8 << 20
    inner = sizes[levels[-2]] if len(levels) > 1 else 256 << 10
    return min(max(4 * inner, last // 8), last // 2), min(max(4 * last, 64 << 20), 256 << 20)


def frequency() -> float:
    """Cycles per second while it was measured."""
    turns = 20_000
    loop = MachineCode(CHAIN, 1)
    return turns * 16 * IMUL_CYCLES / _least(lambda: _ns(loop, turns)) * 1e9


def load_ns(size: int) -> float:
    """ns of a load from a random line of so many bytes, each of which waits for the one before."""
    lines = max(2, size // LINE)
    order = np.random.default_rng(0).permutation(lines)
    memory = np.zeros(lines * LINE // 8, dtype=np.uint64)
    places = np.uint64(memory.ctypes.data) + order.astype(np.uint64) * np.uint64(LINE)
    memory[order * (LINE // 8)] = np.roll(places, -1)
    loop = MachineCode(CHASE, 2)
    # Every line once: a cache that can hold them all does so afterwards.
    loop(int(places[0]), lines)
    starts = iter(places[np.linspace(0, lines - 1, SAMPLES).astype(np.int64)].tolist())
    return _least(lambda: _ns(loop, next(starts), LOADS)) / LOADS


def mispredicted_ns() -> float:
    """ns that a branch costs when it goes the way that was not foreseen: nobody foresees half of random ones."""
    bits = np.random.default_rng(0).integers(0, 2, SAMPLES * BRANCHES, dtype=np.uint8)
    loop = MachineCode(BRANCH, 2)

    def time(values: np.ndarray) -> float:
        # Always others: a predictor learns a sequence that it is shown twice.
        starts = iter(range(values.ctypes.data, values.ctypes.data + len(values), BRANCHES))
        return _least(lambda: _ns(loop, next(starts), BRANCHES))

    foreseen = (time(np.zeros_like(bits)) + time(np.ones_like(bits))) / 2
    return max(0.0, time(bits) - foreseen) / (BRANCHES / 2)


def _least(sample: Callable[[], int]) -> float:
    """The least of many short samples: whatever disturbs a measurement makes it longer."""
    return float(min(sample() for _ in range(SAMPLES)))


def _ns(loop: MachineCode, *arguments: int) -> int:
    """ns of one call."""
    begin = perf_counter_ns()
    loop(*arguments)
    return perf_counter_ns() - begin
