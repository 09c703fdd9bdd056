"""What a stall costs on this machine: measured by loops of known instructions, with published figures beside them.

A chain of multiplications turns time into cycles. Each waits for the one before and takes three cycles on every x86-64
processor since 2011 (Agner Fog, Instruction tables; uops.info: IMUL r64, r64).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import numpy as np

from sonda.probes.machine_code import MachineCode
from sonda.record.readings import StallCosts

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
"""The widest x86-64 processor so far: the least time that follows from it holds for all."""


def find_core(vendor: str, family: int | None, model: int | None) -> Core | None:
    """The entry of a processor; None for one that is not in the table."""
    relatives = [core for core in CORES if core.vendor == vendor and core.family == family]
    return next((core for core in relatives if model in core.models), None) or next(
        (core for core in relatives if not core.models), None
    )


def measure_penalties(machine: Mapping[str, Any]) -> StallCosts | None:
    """Measure what stalls cost on this machine, in about two seconds; None where it allows no machine code of ours.

    `machine` is the machine record: vendor, family, model, caches.
    """
    try:
        hertz = measure_frequency()
        first, last = _load_sizes(machine)
        core = find_core(str(machine.get("vendor", "")), machine.get("family"), machine.get("model"))
        return StallCosts(
            core=core.name if core else "unknown processor",
            width=core.width if core else UNKNOWN_WIDTH,
            hertz=hertz,
            mispredicted=measure_misprediction_ns() * hertz * 1e-9,
            last_level=measure_load_ns(first) * hertz * 1e-9,
            memory=measure_load_ns(last) * hertz * 1e-9,
            source=core.source if core else "the widest x86-64 processor so far",
            published=core.mispredicted if core else None,
        )
    except OSError:
        return None


def _load_sizes(machine: Mapping[str, Any]) -> tuple[int, int]:
    """Bytes that fit in the last-level cache and not in the level before it; and bytes that do not fit in it."""
    sizes = {int(cache["level"]): int(cache["bytes"]) for cache in machine.get("caches") or []}
    levels = sorted(sizes)
    last = sizes[levels[-1]] if levels else 8 << 20
    inner = sizes[levels[-2]] if len(levels) > 1 else 256 << 10
    return min(max(4 * inner, last // 8), last // 2), min(max(4 * last, 64 << 20), 256 << 20)


def measure_frequency() -> float:
    """The processor's cycles per second while it is measured."""
    turns = 20_000
    loop = MachineCode(CHAIN, 1)
    return turns * 16 * IMUL_CYCLES / _shortest_sample(lambda: _time_call(loop, turns)) * 1e9


def measure_load_ns(size: int) -> float:
    """ns of a load from a random line among `size` bytes. Each load waits for the one before."""
    lines = max(2, size // LINE)
    order = np.random.default_rng(0).permutation(lines)
    memory = np.zeros(lines * LINE // 8, dtype=np.uint64)
    places = np.uint64(memory.ctypes.data) + order.astype(np.uint64) * np.uint64(LINE)
    memory[order * (LINE // 8)] = np.roll(places, -1)
    loop = MachineCode(CHASE, 2)
    # Load every line once: a cache that can hold them all does so afterwards.
    loop(int(places[0]), lines)
    starts = iter(places[np.linspace(0, lines - 1, SAMPLES).astype(np.int64)].tolist())
    return _shortest_sample(lambda: _time_call(loop, next(starts), LOADS)) / LOADS


def measure_misprediction_ns() -> float:
    """ns that a mispredicted branch costs. Of random branches half are mispredicted."""
    bits = np.random.default_rng(0).integers(0, 2, SAMPLES * BRANCHES, dtype=np.uint8)
    loop = MachineCode(BRANCH, 2)

    def time(values: np.ndarray) -> float:
        # Other branches every time: a predictor learns a sequence that it sees twice.
        starts = iter(range(values.ctypes.data, values.ctypes.data + len(values), BRANCHES))
        return _shortest_sample(lambda: _time_call(loop, next(starts), BRANCHES))

    predicted = (time(np.zeros_like(bits)) + time(np.ones_like(bits))) / 2
    return max(0.0, time(bits) - predicted) / (BRANCHES / 2)


def _shortest_sample(sample: Callable[[], int]) -> float:
    """The shortest of many short samples, ns: whatever disturbs a measurement makes it longer."""
    return float(min(sample() for _ in range(SAMPLES)))


def _time_call(loop: MachineCode, *arguments: int) -> int:
    """ns of one call."""
    begin = perf_counter_ns()
    loop(*arguments)
    return perf_counter_ns() - begin
