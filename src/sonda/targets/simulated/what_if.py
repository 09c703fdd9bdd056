"""What-ifs: the same program on the same accelerator with its bottleneck widened, simulated again."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sonda.accelerators.description.accelerator import Accelerator
from sonda.accelerators.description.engine import EngineDescription
from sonda.accelerators.description.settings import with_settings
from sonda.accelerators.mapping.placement import OnHost, Placed, Placement
from sonda.accelerators.memory.traffic import with_memory
from sonda.accelerators.operations.program import Program
from sonda.record.errors import SondaError

MEMORY, BEST = "memory", "best"
PATIENCE = 2.0
"""Processor seconds that one what-if may take, however busy the machine is; a longer one is given up and says so."""
MOST = 2
"""What-ifs of a run."""
WIDER = {
    "distribution": ("read_ports", "multipliers"),
    "compute": ("multipliers", "read_ports"),
    "reduction": ("write_ports", "multipliers"),
    "writeback": ("write_ports", "multipliers"),
}
"""By what cycles are spent on: the field that is doubled, and the one that is doubled too where it alone cannot be."""


@dataclass(frozen=True)
class Bottleneck:
    """The modules that take most cycles, the engine they run on, and what most of their cycles are spent on."""

    layers: str
    """Class of these modules."""
    engine: EngineDescription
    part: str
    """Of the cycle stack."""


def what_ifs(program: Program, placement: Placement, placed: Sequence[Placed | OnHost]) -> list[dict[str, Any]]:
    """At most two changes that widen the bottleneck: `set` or `mapping` as the command line has them, `words`, and the
    `cycles` of the whole program then, or the `reason` why they are not known."""
    bottleneck = find_bottleneck(program, placed)
    if bottleneck is None:
        return []
    found = []
    for change, words, accelerator in widened(placement.accelerator, bottleneck):
        found.append({"set": change, "words": words, **_simulated(program, Placement(accelerator, placement.mapping))})
    if placement.mapping != BEST and len(found) < MOST:
        best = _simulated(program, Placement(placement.accelerator, BEST))
        found.append({"mapping": BEST, "words": "the best mapping that a search finds", **best})
    return [one for one in found if one.get("cycles") is not None or one["reason"]][:MOST]


def find_bottleneck(program: Program, placed: Sequence[Placed | OnHost]) -> Bottleneck | None:
    """None where nothing runs on an engine."""
    stacks: dict[str, dict[str, int]] = {}
    engines: dict[tuple[str, str], int] = {}
    by_name: dict[str, EngineDescription] = {}
    for one in placed:
        if isinstance(one, OnHost):
            continue
        caller = one.operation.caller
        layers = program.calls[caller].name if caller >= 0 else ""
        parts = {**one.result.stack, MEMORY: one.traffic.stall_cycles if one.traffic else 0}
        stack = stacks.setdefault(layers, {})
        for part, cycles in parts.items():
            stack[part] = stack.get(part, 0) + cycles
        key = (layers, one.engine.name)
        engines[key] = engines.get(key, 0) + one.cycles
        by_name[one.engine.name] = one.engine
    if not stacks:
        return None
    layers, stack = max(stacks.items(), key=lambda item: sum(item[1].values()))
    engine = max((key for key in engines if key[0] == layers), key=lambda key: engines[key])[1]
    return Bottleneck(layers, by_name[engine], max(stack, key=lambda part: stack[part]))


def widened(accelerator: Accelerator, bottleneck: Bottleneck) -> Iterator[tuple[str, str, Accelerator]]:
    """Changes, what they are, and the accelerator with them; those that its description refuses are left out."""
    memory, engine = accelerator.memory, bottleneck.engine
    attempts: list[list[tuple[str, str]]] = []
    """Of each, the first that can be built is taken."""
    if bottleneck.part == MEMORY and memory is not None:
        kibibytes = 2 * memory.buffer_bytes / 1024
        attempts += [
            [(f"memory.bytes_per_cycle={_digits(2 * memory.bytes_per_cycle)}", "twice the memory's bandwidth")],
            [(f"memory.buffer_KiB={_digits(kibibytes)}", "twice the global buffer")],
        ]
    elif bottleneck.part in WIDER:
        first, second = WIDER[bottleneck.part]
        one, both = _doubled(engine, first), _doubled(engine, first, second)
        mesh = engine.simulator.has_mesh
        wider = [] if mesh and first != "write_ports" else [one, both]
        attempts.append([*wider, _larger_mesh(engine)] if mesh else wider)
    for choices in attempts:
        for change, words in choices:
            try:
                yield change, words, with_settings(accelerator, change)
            except SondaError:
                continue
            break


def _doubled(engine: EngineDescription, *fields: str) -> tuple[str, str]:
    changes = [f"{engine.name}.{field}={2 * getattr(engine.hardware, field)}" for field in fields]
    return " ".join(changes), f"twice the {' and '.join(field.replace('_', ' ') for field in fields)}"


def _larger_mesh(engine: EngineDescription) -> tuple[str, str]:
    """Twice as long sides with bandwidths that grow with them, and the tile where one is given."""
    hardware, name = engine.hardware, engine.name
    sizes = {
        "rows": 2 * hardware.rows,
        "columns": 2 * hardware.columns,
        "read_ports": 2 * hardware.read_ports,
        "write_ports": 4 * hardware.write_ports,
        **{f"tile.{letter}": 2 * size for letter, size in engine.tile.items()},
    }
    changes = " ".join(f"{name}.{field}={value}" for field, value in sizes.items())
    return changes, f"a mesh of {sizes['rows']}x{sizes['columns']} with bandwidths to match"


def _simulated(program: Program, placement: Placement) -> dict[str, Any]:
    """The cycles of the whole program; without them, why, or an empty reason where the program cannot run so."""
    until = time.process_time() + PATIENCE
    placed: list[Placed | OnHost] = []
    try:
        for operation in program.operations:
            placed.append(placement.place_one(operation, program.path(operation)))
            if time.process_time() > until:
                return {"cycles": None, "reason": f"simulating it takes more than {PATIENCE:g} processor seconds"}
        placed = with_memory(placed, placement.accelerator)
    except SondaError:
        return {"cycles": None, "reason": ""}
    return {"cycles": sum(one.cycles for one in placed if isinstance(one, Placed))}


def _digits(value: float) -> str:
    return f"{value:.0f}" if value == round(value) else repr(value)
