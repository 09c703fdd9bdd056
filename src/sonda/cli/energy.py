"""`sonda energy`: what any command costs, per device and region."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sonda.cli.application import Json, Tags, Verbose, app, hush, open_store, say
from sonda.cli.showing import show_run


@app.command("energy", short_help="Run any command and say how much energy it took.")
def energy(
    context: typer.Context,
    interval: Annotated[str, typer.Option(help="Time between readings: 500ms, down to 10ms.")] = "500ms",
    idle: Annotated[str, typer.Option(help="Measure idle power this long before the command; 0: do not.")] = "2s",
    model: Annotated[
        str, typer.Option(help="Estimate from watts at rest and under full load: cpu=20..95+ram=4..12+gpu=60..700.")
    ] = "",
    tag: Tags = None,
    verbose: Verbose = 0,
    redact: Annotated[bool, typer.Option("--redact", help="Keep no arguments and no host name.")] = False,
    json: Json = False,
) -> None:
    """Run any command and say how much energy the machine spent, and on what.

    \b
    sonda energy python train.py
    sonda energy --interval 10ms -- ./a.out

    A Python program marks regions by `with sonda.region("training"):`, any other by a line in a file:
    echo begin training >> "$SONDA_REGIONS"
    """
    from sonda.record.errors import SondaError
    from sonda.targets.instruments.energy import parse_energy_options
    from sonda.targets.program.energy import measure_energy

    store = open_store()
    for name in tag or []:
        store.check_tag(name)
    wanted = parse_energy_options(interval, idle, model)
    try:
        run, code = measure_energy(context.obj or [], store, wanted, redact=redact, output_to_stderr=json, say=say)
        hush()
        for name in tag or []:
            store.tag(run.id, name)
        show_run(run, store, json, verbose=verbose, to=sys.stderr)
    except SondaError as error:
        error.exit_code = 125 if context.obj else 2  # the program may be right: it is Sonda that failed
        raise
    raise SystemExit(code)
