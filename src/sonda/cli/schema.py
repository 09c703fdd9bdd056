"""`sonda schema`: what the documents of `--json` look like, for programs that read them."""

from __future__ import annotations

from typing import Annotated

import typer

from sonda.cli import completion
from sonda.cli.application import Json, app, put, write_json


@app.command("schema", short_help="Write the JSON Schema of what --json writes.")
def schema(
    kind: Annotated[
        str, typer.Argument(help="A kind of document; all are listed without one.", autocompletion=completion.documents)
    ] = "",
    json: Json = False,
) -> None:
    """Write the JSON Schema of a kind of document (draft 2020-12), complete in itself.

    \b
    sonda schema
    sonda schema summary
    sonda schema kernel-comparison
    """
    from json import dumps

    from sonda.report.schemas import document_kinds, kinds_blocks, schema_of
    from sonda.report.screen import render

    if kind and json:
        write_json(schema_of(kind))
    elif kind:
        put(dumps(schema_of(kind), indent=2, ensure_ascii=False))
    elif json:
        write_json({"kinds": [{"kind": name, "holds": holds} for name, holds in document_kinds().items()]}, "schemas")
    else:
        put(render(kinds_blocks()))
