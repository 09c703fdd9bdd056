"""Changes of an accelerator's description, as a command line gives them: `dense.multipliers=512 clock_GHz=1`.

A key is ENGINE.field, memory.field, route.KIND, clock_GHz or energy_table, named as in the description's file. A field
without its engine changes every engine that has it; a field of the memory may stand without `memory.`. The value `none`
takes away what may be missing (`tile=none`, `memory=none`), `route.KIND=host` leaves a kind of operation to the host.
Fields joined by commas change together: `rows,columns=16` gives both the same, `rows,columns=16:32` each its own.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sonda.accelerators.description.accelerator import Accelerator, read_accelerator
from sonda.accelerators.description.engine import OPERATIONS, SIDES, EngineDescription, read_engine
from sonda.accelerators.description.fields import DescriptionMistakes, Fields
from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.description.memory import FIELDS as MEMORY
from sonda.accelerators.description.memory import memory_table, read_memory
from sonda.accelerators.memory.hierarchy import Memory
from sonda.record.errors import SondaError, nearest

ALIASES = {"dn_bw": "read_ports", "rn_bw": "write_ports", "ms_size": "multipliers", "ms_rows": "rows",
           "ms_cols": "columns", "engine": "kind"}  # fmt: skip
"""Other names of fields: STONNE's, and `engine` for an engine's kind."""
WHOLE = ("clock_GHz", "energy_table")
HARDWARE = tuple(field.name for field in dataclasses.fields(Hardware))
ENGINE_FIELDS = ("kind", *HARDWARE, "tile", "convolution_tile", "dataflow")
FILE = "set"
"""Stands before a mistake in place of a file's name."""
NONE, HOST = "none", "host"
AND, APART = ",", ":"
"""Join the fields of a key, and their values."""
MOST_DIGITS = 20
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")

Path = tuple[str, ...]
"""Where a field stands in a description's tables: ('engines', 'dense', 'multipliers')."""


def with_settings(accelerator: Accelerator, text: str) -> Accelerator:
    """The accelerator with these fields changed, checked as its description is; the same where nothing is given.

    Raises SondaError naming the key that is wrong and the nearest one, or DescriptionMistakes with a line for each.
    """
    settings = parse_settings(text)
    return apply_settings(accelerator, settings) if settings else accelerator


def parse_settings(text: str) -> dict[str, str]:
    """Keys and values of `key=value key=value`; a value with spaces stands in quotes."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise SondaError(f"settings {text!r:.80} cannot be read ({str(error).lower()})", "close the quotes") from None
    settings: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not (key and equals and value):
            raise SondaError(f"setting {word!r:.80} has no key and value", "write it as key=value")
        if key in settings:
            raise SondaError(f"setting {key!r} is given twice", "give it once")
        settings[key] = value
    return settings


def apply_settings(accelerator: Accelerator, settings: Mapping[str, str]) -> Accelerator:
    """The accelerator with these fields changed. Raises as `with_settings` does."""
    tables = description_tables(accelerator)
    by_path: dict[Path, str] = {}
    for key, value in settings.items():
        (changes,) = field_changes(accelerator, key, (value,))
        for path, own in changes.items():
            if path in by_path:
                raise SondaError(f"settings {by_path[path]!r} and {key!r} change the same field", "give one of them")
            by_path[path] = key
            _set_field(tables, path, own)
    try:
        rebuilt = read_accelerator(tables, FILE)
    except DescriptionMistakes as mistakes:
        raise DescriptionMistakes(FILE, (mistake.removeprefix("engines.") for mistake in mistakes.mistakes)) from None
    note = "changed: " + ", ".join(f"{key} = {value}" for key, value in settings.items())
    # The clock is kept in Hz: what was not changed is not rounded twice.
    clock = rebuilt.clock_hz if ("clock_GHz",) in by_path else accelerator.clock_hz
    return dataclasses.replace(rebuilt, clock_hz=clock, notes=(*accelerator.notes, note))


def change_engine(engine: EngineDescription, changes: Mapping[Path, str]) -> EngineDescription:
    """The engine after those of the changes that are of its fields. Raises DescriptionMistakes."""
    table = _engine_table(engine)
    for path, value in changes.items():
        if path[:2] == ("engines", engine.name):
            _set_field(table, path[2:], value)
    mistakes: list[str] = []
    rebuilt = read_engine(engine.name, Fields(table, f"{engine.name}.", mistakes))
    if rebuilt is None or mistakes:
        raise DescriptionMistakes(FILE, mistakes)
    return rebuilt


def describe_memory(accelerator: Accelerator) -> dict[str, Any] | None:
    """The accelerator's memory as the table of its description; nothing where its buffer is unlimited."""
    return None if accelerator.memory is None else memory_table(accelerator.memory, accelerator.clock_hz)


def change_memory(
    described: dict[str, Any] | None, clock_hz: float | None, changes: Mapping[Path, str]
) -> Memory | None:
    """The memory after those of the changes that are of its fields; None where there is none.

    Raises DescriptionMistakes.
    """
    inside = {path[1:]: value for path, value in changes.items() if path[0] == "memory"}
    if described is None and not inside:
        return None
    table = dict(described or {})
    for path, value in inside.items():
        _set_field(table, path, value)
    mistakes: list[str] = []
    rebuilt = read_memory(Fields(table, "memory.", mistakes), clock_hz)
    if rebuilt is None or mistakes:
        raise DescriptionMistakes(FILE, mistakes)
    return rebuilt


def split_values(key: str, value: str) -> tuple[str, ...]:
    """The value of each field of a key. Raises SondaError where there are not as many values as fields."""
    fields = key.count(AND) + 1
    values = tuple(value.split(APART)) if fields > 1 else (value,)
    if len(values) == 1:
        return values * fields
    if len(values) != fields or not all(values):
        raise SondaError(
            f"setting {key!r}: {value!r:.60} is not a value for each of {fields} fields",
            f"write one for all, or {APART.join(['…'] * fields)}",
        )
    return values


def field_changes(accelerator: Accelerator, key: str, values: Sequence[str]) -> list[dict[Path, str]]:
    """For every value of a key, its fields and the new value of each. Raises SondaError as `field_paths` does."""
    field_paths(accelerator, key)
    paths = [_paths_of_field(accelerator, field_key) for field_key in key.split(AND)]
    return [
        {path: own for some, own in zip(paths, split_values(key, value), strict=True) for path in some}
        for value in values
    ]


def field_paths(accelerator: Accelerator, key: str) -> list[Path]:
    """The fields that a key names, in its order and that of the engines. Raises SondaError where there is none."""
    key_of: dict[Path, str] = {}
    for field_key in key.split(AND):
        for path in _paths_of_field(accelerator, field_key):
            if path in key_of:
                raise SondaError(f"setting {key!r} names {'.'.join(path)} twice", "name every field once")
            key_of[path] = field_key
    return list(key_of)


def _paths_of_field(accelerator: Accelerator, key: str) -> list[Path]:
    """The fields that a key without commas names."""
    head, *rest = key.removeprefix("engines.").split(".")
    if not key.startswith("engines."):
        if key in (*WHOLE, "memory"):
            return [(key,)]
        if head == "route":
            _check_known(key, ".".join(rest), OPERATIONS)
            return [("route", *rest)]
        if head == "memory":
            _check_known(key, ".".join(rest), MEMORY)
            return [("memory", *rest)]
    if head in accelerator.engines:
        field = ALIASES.get(rest[0], rest[0]) if rest else ""
        _check_known(key, field, (*ENGINE_FIELDS, *ALIASES))
        return [("engines", head, field, *rest[1:])]
    field = ALIASES.get(head, head)
    if field in ENGINE_FIELDS:
        having = [engine.name for engine in accelerator.engines.values() if _has_field(engine, field, rest)]
        if not having:
            engines = ", ".join(f"{engine.name} ({engine.kind})" for engine in accelerator.engines.values())
            raise SondaError(
                f"setting {key!r}: no engine of {accelerator.name} has it", f"it has {engines or 'no engine'}"
            )
        return [("engines", name, field, *rest) for name in having]
    if key in MEMORY:
        return [("memory", key)]
    known = [*WHOLE, "memory", *ALIASES, *ENGINE_FIELDS, *(f"memory.{field}" for field in MEMORY)]
    known += [f"route.{operation}" for operation in OPERATIONS]
    known += [f"{engine}.{field}" for engine in accelerator.engines for field in ENGINE_FIELDS] if rest else []
    raise SondaError(f"setting {key!r} is unknown", nearest(key, known))


def description_tables(accelerator: Accelerator) -> dict[str, Any]:
    """The accelerator as the tables of its description."""
    tables: dict[str, Any] = {
        "name": accelerator.name,
        "energy_table": accelerator.energy_table,
        "engines": {name: _engine_table(engine) for name, engine in accelerator.engines.items()},
        "route": dict(accelerator.route),
    }
    if accelerator.clock_hz is not None:
        tables["clock_GHz"] = accelerator.clock_hz / 1e9
    memory = describe_memory(accelerator)
    if memory is not None:
        tables["memory"] = memory
    return tables


def _engine_table(engine: EngineDescription) -> dict[str, Any]:
    hardware = engine.hardware
    mesh = engine.simulator.has_mesh
    table: dict[str, Any] = {"kind": engine.kind}
    table |= {name: getattr(hardware, name) for name in HARDWARE if mesh or name not in SIDES}
    if mesh and hardware.multipliers == 1 << max(engine.elements - 1, 0).bit_length():
        del table["multipliers"]  # It follows from the sides, also from changed ones.
    # Its only value is that of the kind, also of a changed one.
    del table["controller"]
    given: dict[str, dict[str, Any]] = {
        "tile": engine.tile,
        "convolution_tile": engine.convolution_tile,
        "dataflow": engine.dataflow,
    }
    return table | {name: dict(value) for name, value in given.items() if value}


def _has_field(engine: EngineDescription, field: str, rest: list[str]) -> bool:
    """Whether a field without an engine's name means this engine too."""
    simulator = engine.simulator
    if field in SIDES:
        return simulator.has_mesh
    if field == "multipliers":
        return not simulator.has_mesh
    if field == "tile":
        return bool(simulator.product_tile) and (not rest or rest[0] in simulator.product_tile)
    if field == "convolution_tile":
        return bool(simulator.convolution_tile)
    return field != "dataflow" or bool(simulator.dataflows)


def _check_known(key: str, field: str, fields: Iterable[str]) -> None:
    if field not in fields:
        raise SondaError(f"setting {key!r} is unknown", nearest(field, fields))


def _set_field(tables: dict[str, Any], path: Path, value: str) -> None:
    *around, field = path
    table = tables
    for name in around:
        inside = table.get(name)
        table[name] = table = inside if isinstance(inside, dict) else {}
    if value == NONE or (path[0] == "route" and value == HOST and HOST not in tables["engines"]):
        table.pop(field, None)
    else:
        table[field] = _value(value)


def _value(text: str) -> Any:
    """A number or a switch where the text is one, as TOML has them; else the text."""
    if text in ("true", "false"):
        return text == "true"
    if len(text) <= MOST_DIGITS and NUMBER.fullmatch(text):
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    return text
