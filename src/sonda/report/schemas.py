"""The JSON Schema of every kind of document, draft 2020-12: `assets/schemas/KIND.json`.

What several kinds have in common stands in `definitions.json` beside them. `schema_of` gives a schema that needs no
other file. Objects may have further keys in a later version of Sonda; what is described stays.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from sonda.record.errors import SondaError, nearest
from sonda.report.blocks import Block, Gap, Paragraph, TableBlock
from sonda.report.table import Column, build, words

Schema = dict[str, Any]

COMMON = "definitions"
LINK, INSIDE = f"{COMMON}.json#/$defs/", "#/$defs/"


def document_kinds() -> dict[str, str]:
    """Every kind of document, and what it holds."""
    return {schema["title"]: schema["description"] for schema in map(_read, sorted(_files())) if "properties" in schema}


def schema_of(kind: str) -> Schema:
    """The schema of a kind of document, complete in itself; `kernel-comparison` is `kernel comparison`. Raises
    SondaError."""
    known = document_kinds()
    name = kind.replace("-", " ")
    if name not in known:
        raise SondaError(f"there is no kind of document {kind!r}", nearest(name, known))
    schema = _read(_file_name(name))
    common = _read(COMMON)["$defs"]
    definitions: dict[str, Any] = {}
    wanted = _linked(schema)
    while wanted:
        definition = wanted.pop()
        if definition not in definitions:
            definitions[definition] = common[definition]
            wanted |= _linked(common[definition])
    own = schema.get("$defs", {})
    complete: Schema = _relinked({**schema, **({"$defs": {**own, **definitions}} if own or definitions else {})})
    return complete


def kinds_blocks() -> list[Block]:
    """The kinds of documents, as a terminal shows them."""
    known = document_kinds()
    table = build(
        [
            (Column("kind", right=False), words(list(known))),
            (Column("holds", right=False, wrap=True), words(list(known.values()))),
        ]
    )
    return [
        TableBlock(table, indent=0, reasons=False),
        Gap(),
        Paragraph("The schema of one: sonda schema KIND", "quiet", 0, 0),
    ]


@cache
def _files() -> dict[str, Traversable]:
    """The files by name, without their ending."""
    folder = resources.files("sonda.report").joinpath("assets", "schemas")
    return {file.name.removesuffix(".json"): file for file in folder.iterdir() if file.name.endswith(".json")}


@cache
def _read(name: str) -> Schema:
    schema: Schema = json.loads(_files()[name].read_text(encoding="utf-8"))
    return schema


def _file_name(kind: str) -> str:
    return kind.replace(" ", "-")


def _linked(schema: Any) -> set[str]:
    """Names of the common definitions that a schema refers to; within these, references have no file."""
    if isinstance(schema, list):
        return set().union(*map(_linked, schema))
    if not isinstance(schema, dict):
        return set()
    link = schema.get("$ref", "")
    common = _read(COMMON)["$defs"]
    name = link.removeprefix(LINK).removeprefix(INSIDE)
    return set().union({name} if link and name in common else set(), *map(_linked, schema.values()))


def _relinked(schema: Any) -> Any:
    """The same with references to the schema itself only."""
    if isinstance(schema, list):
        return [_relinked(value) for value in schema]
    if isinstance(schema, dict):
        return {
            key: value.replace(LINK, INSIDE) if key == "$ref" else _relinked(value) for key, value in schema.items()
        }
    return schema
