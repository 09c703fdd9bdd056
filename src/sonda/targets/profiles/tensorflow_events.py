"""Events of a profile that TensorFlow left in a folder, named as its graphs name operations: `scopes/operation:Kind`.

XLA runs compiled code instruction by instruction, under names of its own (`fusion.3`). The profile also holds the
program, whose instructions name the operation that they came from. Such an event gets the name of that operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sonda.frameworks.tensorflow.profile.operations import ProfileEvent
from sonda.imports.xplane.file import open_space
from sonda.imports.xplane.hlo import programs
from sonda.imports.xplane.instruction_ends import InstructionEnds


def read_profile_events(folder: Path) -> Iterator[ProfileEvent]:
    """All events, file by file, plane by plane, line by line."""
    for path in sorted(folder.glob("**/*.xplane.pb")):
        with open_space(path) as space:
            compiled = programs(space)
            ends = InstructionEnds(space)
            for plane in space.planes:
                for line in plane.lines:
                    for event in line.events():
                        name = event.name
                        if compiled and "hlo_op" in event.stats:
                            program = compiled.get(int(event.stats.get("program_id", -1)), {})
                            instruction = program.get(str(event.stats["hlo_op"]))
                            name = (
                                f"{instruction.scopes}:{instruction.opcode}"
                                if instruction is not None and instruction.scopes
                                else name
                            )
                        yield ProfileEvent(name, int(event.start_ns), ends.of(event))
