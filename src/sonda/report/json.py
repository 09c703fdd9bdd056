"""JSON: the documents that `--json` writes and `to_document()` gives.

A document is no rendering of blocks, for two reasons. Blocks hold what people read: chosen rows, rounded numbers, units
that suit a column, sentences. A document has every number with all digits, with its unit, its source and its ends, also
those that no block shows. And its keys are a promise to other programs: a view may show another column, or say a
sentence elsewhere, and no key changes. So each view gives the `fields` of its document beside its blocks.

`document` is the one way to make a document, whatever it is about. `document_of` makes that of a view. `values.py`
turns numbers into JSON values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from sonda.report.values import Document, plain_data

if TYPE_CHECKING:
    from sonda.report.blocks import View

SCHEMA = 1
"""Version of the documents."""


def document(kind: str, fields: Mapping[str, Any]) -> Document:
    """A document of this kind: version and kind stand in front of its fields."""
    return {"schema": SCHEMA, "kind": kind, **fields}


def document_of(view: View) -> Document:
    """The document of a view. That of a run has its id and its title in front."""
    run = {"run": view.run, "title": view.title} if view.run else {}
    return document(view.kind, {**run, **view.fields()})


def encode(document: Any) -> bytes:
    """A document as JSON. Of a file name that is no UTF-8 the bytes stand as Python keeps them, `\\udcff`."""
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        return json.dumps(plain_data(document)).encode("ascii")
