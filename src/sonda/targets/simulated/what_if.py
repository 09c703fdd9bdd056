"""What-ifs: the same program on the same accelerator with its bottleneck widened, simulated again."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sonda.accelerators.description.accelerator import Accelerator
from sonda.accelerators.description.engine import EngineDescription
from sonda.accelerators.description.settings import with_settings
from sonda.accelerators.mapping.placement import OnHost, Placed, Placement
from sonda.accelerators.memory.traffic import with_memory
from sonda.accelerators.operations.program import ModelProgram
from sonda.record.errors import SondaError
from sonda.record.simulated import WhatIf

MEMORY, BEST_MAPPING = "memory", "best"
PATIENCE = 2.0
"""Processor seconds that one what-if may take; a longer one is given up, and its reason says so."""
MOST_WHAT_IFS = 2
"""What-ifs of a run."""
WIDER = {
    "distribution": ("read_ports", "multipliers"),
    "compute": ("multipliers", "read_ports"),
    "reduction": ("write_ports", "multipliers"),
    "writeback": ("write_ports", "multipliers"),
}
"""By part of the cycle stack: the field to double, and the one to double too where the first alone cannot be."""


@dataclass(frozen=True)
class Bottleneck:
    """The modules that take most cycles, the engine they run on, and what most of their cycles are spent on."""

    layers: str
    """Class of these modules."""
    engine: EngineDescription
    part: str
    """Of the cycle stack."""


def what_ifs(program: ModelProgram, placement: Placement, placed: Sequence[Placed | OnHost]) -> list[WhatIf]:
    """At most two changes that widen the bottleneck, each with the cycles that the whole program then takes.

    `set` or `mapping` of a change are written as on the command line.
    """
    bottleneck = find_bottleneck(program, placed)
    if bottleneck is None:
        return []
    changes = []
    for change, words, accelerator in widen_bottleneck(placement.accelerator, bottleneck):
        cycles, reason = _simulate_cycles(program, Placement(accelerator, placement.mapping))
        changes.append(WhatIf(set=change, words=words, cycles=cycles, reason=reason))
    if placement.mapping != BEST_MAPPING and len(changes) < MOST_WHAT_IFS:
        cycles, reason = _simulate_cycles(program, Placement(placement.accelerator, BEST_MAPPING))
        words = "the best mapping that a search finds"
        changes.append(WhatIf(mapping=BEST_MAPPING, words=words, cycles=cycles, reason=reason))
    return [change for change in changes if change.cycles is not None or change.reason][:MOST_WHAT_IFS]


def find_bottleneck(program: ModelProgram, placed: Sequence[Placed | OnHost]) -> Bottleneck | None:
    """None where nothing runs on an engine."""
    stacks: dict[str, dict[str, int]] = {}
    engines: dict[tuple[str, str], int] = {}
    by_name: dict[str, EngineDescription] = {}
    for placed_operation in placed:
        if isinstance(placed_operation, OnHost):
            continue
        caller = placed_operation.operation.caller
        layers = program.calls[caller].name if caller >= 0 else ""
        parts = {
            **placed_operation.result.stack,
            MEMORY: placed_operation.traffic.stall_cycles if placed_operation.traffic else 0,
        }
        stack = stacks.setdefault(layers, {})
        for part, cycles in parts.items():
            stack[part] = stack.get(part, 0) + cycles
        key = (layers, placed_operation.engine.name)
        engines[key] = engines.get(key, 0) + placed_operation.cycles
        by_name[placed_operation.engine.name] = placed_operation.engine
    if not stacks:
        return None
    layers, stack = max(stacks.items(), key=lambda item: sum(item[1].values()))
    engine = max((key for key in engines if key[0] == layers), key=lambda key: engines[key])[1]
    return Bottleneck(layers, by_name[engine], max(stack, key=lambda part: stack[part]))


def widen_bottleneck(accelerator: Accelerator, bottleneck: Bottleneck) -> Iterator[tuple[str, str, Accelerator]]:
    """Changes as `--set` writes them, their words, and the changed accelerator; those it cannot have are left out."""
    memory, engine = accelerator.memory, bottleneck.engine
    attempts: list[list[tuple[str, str]]] = []
    """Each is a list of choices; the first one that can be built is taken."""
    if bottleneck.part == MEMORY and memory is not None:
        kibibytes = 2 * memory.buffer_bytes / 1024
        attempts += [
            [(f"memory.bytes_per_cycle={_digits(2 * memory.bytes_per_cycle)}", "twice the memory's bandwidth")],
            [(f"memory.buffer_KiB={_digits(kibibytes)}", "twice the global buffer")],
        ]
    elif bottleneck.part in WIDER:
        first, second = WIDER[bottleneck.part]
        doubled, doubled_with_second = _doubled(engine, first), _doubled(engine, first, second)
        mesh = engine.simulator.has_mesh
        wider = [] if mesh and first != "write_ports" else [doubled, doubled_with_second]
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


def _simulate_cycles(program: ModelProgram, placement: Placement) -> tuple[int | None, str | None]:
    """The cycles of the whole program and None; or None and the reason, which is '' where the program cannot run so."""
    until = time.process_time() + PATIENCE
    placed: list[Placed | OnHost] = []
    try:
        for operation in program.operations:
            placed.append(placement.place_operation(operation, program.path(operation)))
            if time.process_time() > until:
                return None, f"simulating it takes more than {PATIENCE:g} processor seconds"
        placed = with_memory(placed, placement.accelerator)
    except SondaError:
        return None, ""
    return sum(operation.cycles for operation in placed if isinstance(operation, Placed)), None


def _digits(value: float) -> str:
    return f"{value:.0f}" if value == round(value) else repr(value)
