"""Commands about runs that are kept: list, show, tag, remove, compare, import, report, export."""

from __future__ import annotations

import shlex
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sonda.cli import completion
from sonda.cli.application import (
    Json,
    Reference,
    Rows,
    Tags,
    Verbose,
    app,
    complain,
    hush,
    open_store,
    put,
    say,
    say_or_log,
    write_json,
    write_pieces,
)
from sonda.cli.showing import detail_of, show_run

if TYPE_CHECKING:
    from sonda.record.run import Run
    from sonda.record.store import Store
    from sonda.report.annotations import Annotation


@app.command("ls")
def list_runs(
    all: Annotated[bool, typer.Option("--all", help="All runs, not only the newest 20.")] = False,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Rebuild the store's index first.")] = False,
    json: Json = False,
) -> None:
    """List runs, newest first.

    \b
    sonda ls
    sonda ls --all --json

    The store's index caches the list; you may remove it at any time.
    """
    from sonda.analysis import run_rows

    store = open_store()
    if rebuild:
        run_rows.rebuild(store, lambda done, total: say(f"indexed {done:,} of {total:,} runs"))
    names = store.names()
    rows = run_rows.rows_of(store, None if all else 20, lambda name: say(f"reading {name}"), names)
    if json:
        from sonda.report.views.listing import runs_in_pieces

        write_pieces(runs_in_pieces(rows, lambda: [str(error) for error in store.damaged]))
        hush()
        return
    from sonda.report.screen import render
    from sonda.report.views.listing import runs_blocks

    listed = list(rows)
    hush()
    damaged = [str(error) for error in store.damaged]
    more = max(0, len(names) - len(listed) - len(damaged))
    put(render(runs_blocks(listed, damaged=damaged, more=more)))


@app.command("show")
def show(
    reference: Reference = "last",
    verbose: Verbose = 0,
    rows: Rows = None,
    json: Json = False,
) -> None:
    """Show a run again.

    \b
    sonda show
    sonda show 7f3a -v
    sonda show 7f3a --rows 30
    """
    store = open_store()
    show_run(store.one(reference), store, json, rows, verbose)


@app.command("explain")
def explain(reference: Reference = "last", json: Json = False) -> None:
    """Say what limits a run, by which numbers, where, and what to try.

    \b
    sonda explain
    sonda explain 7f3a --json

    Its JSON is below 4 kB, for a program or an assistant to read whole; the full document is: sonda show RUN --json
    """
    from sonda.report.screen import render
    from sonda.report.views.explain import explain_blocks, explain_document, summarise_kind

    store = open_store()
    run = store.one(reference)
    summary = summarise_kind(run)
    if json:
        write_json(explain_document(summary))
    else:
        put(render(explain_blocks(summary, store.short(run.id))))


@app.command("tag")
def tag(
    reference: Reference,
    name: Annotated[str, typer.Argument(help="The tag; several runs may share one.", autocompletion=completion.tags)],
    remove: Annotated[bool, typer.Option("--remove", help="Take the tag off.")] = False,
    json: Json = False,
) -> None:
    """Give a run a name of your own.

    \b
    sonda tag last main
    sonda tag 7f3a main --remove
    """
    from sonda.record.errors import SondaError, nearest

    store = open_store()
    try:
        tagged = store.find(reference)
    except SondaError as error:
        try:
            store.locate(name)
        except SondaError:
            raise error from None
        line = shlex.join(["sonda", "tag", name, reference, *(["--remove"] if remove else [])])
        raise SondaError(error.cause, f"the order is sonda tag RUN NAME; write: {line}") from None
    if remove:
        tags = store.tags([run.id for run in tagged])
        tagged = [run for run in tagged if name in tags.get(run.id, ())]
        if not tagged:
            raise SondaError(f"{reference} has no tag {name!r}", nearest(name, chain.from_iterable(tags.values())))
    for run in tagged:
        if remove:
            store.untag(run.id, name)
        else:
            store.tag(run.id, name)
    if json:
        write_json({"tag": name, "runs": [run.id for run in tagged], "removed": remove}, "tag")
    else:
        counted = f"{len(tagged)} run{'' if len(tagged) == 1 else 's'}"
        put(f"{counted} no longer tagged {name}" if remove else f"{counted} tagged {name}")


@app.command("rm")
def rm(
    references: Annotated[
        list[str] | None, typer.Argument(help="Runs to remove.", autocompletion=completion.runs)
    ] = None,
    older_than: Annotated[str, typer.Option(help="Remove runs older than this: 30d, 12h, 2w.")] = "",
    json: Json = False,
) -> None:
    """Remove runs.

    \b
    sonda rm 7f3a old
    sonda rm --older-than 30d
    """
    from sonda.record.errors import SondaError
    from sonda.record.store import parse_age

    store = open_store()
    if not references and not older_than:
        raise SondaError("nothing to remove", "name runs, or give --older-than 30d")
    # All names are looked up first: one that is wrong leaves everything as it is.
    located = [directory for reference in references or [] for directory in store.locate(reference)]
    named = dict.fromkeys(directory.absolute() for directory in located)
    gone = [directory.absolute() for directory in store.remove_older_than(parse_age(older_than))] if older_than else []
    for directory in named:
        if directory not in gone:
            store.remove(directory)
            gone.append(directory)
    removed = [directory.name for directory in gone]
    if json:
        write_json({"removed": removed}, "removed")
    else:
        put(f"removed {len(removed)} run{'' if len(removed) == 1 else 's'}")


@app.command("compare", short_help="Say whether B is faster or slower than A, and where.")
def compare(
    a: Annotated[str, typer.Argument(help="The base: an id, a tag, a path.", autocompletion=completion.runs)],
    b: Annotated[str, typer.Argument(help="What is held against it.", autocompletion=completion.runs)],
    fail_above: Annotated[
        str, typer.Option(help="Exit with 1 when B is slower by more than this, e.g. 5%; with 3 when noise hides it.")
    ] = "",
    annotations: Annotated[
        str, typer.Option(help="Print annotations for GitHub Actions too, at lines of code where they are known.")
    ] = "",
    verbose: Verbose = 0,
    rows: Rows = None,
    json: Json = False,
) -> None:
    """Say how much faster or slower B is than A, per phase and layer, or that it is not significant.

    \b
    sonda compare main head
    sonda compare main head --fail-above 5%

    With --fail-above the exit code is 1 when B is slower by more than that with 95 % confidence, 0 when it is not, and
    3 when the runs vary too much to tell; then the last line says how many repetitions would.
    """
    from shlex import quote

    from sonda.analysis.comparison.runs import compare as compare_runs
    from sonda.analysis.comparison.runs import parse_percent, refuse_same_run
    from sonda.analysis.run_summary import summarise
    from sonda.report.annotations import annotate, check_format
    from sonda.report.blocks import FEW_ROWS, ROWS, at_detail
    from sonda.report.screen import render
    from sonda.report.views.compare.document import comparison_document
    from sonda.report.views.compare.screen import comparison_blocks, comparison_glance

    limit = parse_percent(fail_above) if fail_above else None
    check_format(annotations)
    store = open_store()
    say(f"reading {a} and {b}")
    left, right = _find_runs(store, a), _find_runs(store, b)
    refuse_same_run(left, right)
    say(f"comparing {len(left) + len(right):,} runs")
    if any(run.info.kind == "imported" for run in [*left, *right]):
        _compare_imported(left, right, limit, rows, json, verbose, annotations)
        return
    result = compare_runs(left, right)
    if json:
        write_json(comparison_document(result, limit))
    elif verbose:
        tables = comparison_blocks(result, ROWS if rows is None else rows, limit, (quote(a), quote(b)))
        put(render(at_detail(tables, detail_of(verbose))))
    else:
        put(render(comparison_glance(result, FEW_ROWS if rows is None else rows, limit, (quote(a), quote(b)))))
    if annotations:
        code = None if result.exact else summarise(right[0]).code
        _put_annotations(annotate(result, limit, code, Path.cwd()), json)
    if limit is not None and (failed := result.check(limit).exit_code):
        raise SystemExit(failed)


def _put_annotations(annotations: list[Annotation], json: bool) -> None:
    """Print them behind the answer; on stderr where stdout is a document."""
    from sonda.report.annotations import github_lines

    put(github_lines(annotations).rstrip("\n"), sys.stderr if json else None)


def _find_runs(store: Store, reference: str) -> list[Run]:
    """The runs that a reference names. Prints a line for each that cannot be read."""
    store.damaged.clear()
    runs = store.find(reference)
    for error in store.damaged:
        complain(f"skipped: {error}")
    return runs


def _compare_imported(
    a: list[Run], b: list[Run], limit: float | None, rows: int | None, json: bool, verbose: int, annotations: str
) -> None:
    from sonda.analysis.comparison.kernels import compare_kernels
    from sonda.report.annotations import annotate
    from sonda.report.blocks import FEW_ROWS, ROWS, at_detail
    from sonda.report.screen import render
    from sonda.report.views.compare.kernels import (
        kernel_comparison_blocks,
        kernel_comparison_document,
        kernel_comparison_glance,
    )

    result = compare_kernels(a, b)
    if json:
        write_json(kernel_comparison_document(result, limit))
    elif verbose:
        tables = kernel_comparison_blocks(result, rows=ROWS if rows is None else rows, fail_above=limit)
        put(render(at_detail(tables, detail_of(verbose))))
    else:
        put(render(kernel_comparison_glance(result, rows=FEW_ROWS if rows is None else rows, fail_above=limit)))
    if annotations:
        _put_annotations(annotate(result, limit), json)
    if limit is not None and (code := result.check(limit).exit_code):
        raise SystemExit(code)


@app.command("import", short_help="Read a file of another tool as a run.")
def import_(
    files: Annotated[list[Path], typer.Argument(help="Files of one kind; several traces, or a directory, are ranks.")],
    tag: Tags = None,
    verbose: Verbose = 0,
    rows: Annotated[int | None, typer.Option("--rows", help="Kernels and operations to list.", min=0)] = None,
    run: Annotated[str, typer.Option("--run", help="Of a TensorBoard log directory: this run, not the newest.")] = "",
    workers: Annotated[int, typer.Option(help="Processes of this machine that share the ranks.")] = 0,
    on_cluster: Annotated[
        str, typer.Option(help="Address of a Dask scheduler, tcp://host:8786; local starts one with --workers workers.")
    ] = "",
    json: Json = False,
) -> None:
    """Read another tool's file as a run and say where the time of its devices goes.

    \b
    sonda import trace.json.gz
    sonda import traces/ --workers 2

    Chrome and Kineto traces (torch.profiler; plain or .gz), profiles of TensorFlow and JAX (.xplane.pb, or a
    TensorBoard log directory), Nsight Compute's CSV and .ncu-rep, Nsight Systems' SQLite, perf stat -j. Traces may be
    larger than memory. Of several ranks it says which one is slow and why.
    """
    from sonda.studies.executors.choice import spread_for
    from sonda.targets.imported.launcher import import_files

    store = open_store()
    for name in tag or []:
        store.check_tag(name)
    with spread_for(workers, on_cluster, say) as spread:
        imported = import_files(files, store.root, say, run, spread)
    hush()
    for name in tag or []:
        store.tag(imported.id, name)
    show_run(imported, store, json, rows, verbose)


@app.command("report")
def report(
    references: Annotated[
        list[str] | None, typer.Argument(help="Runs; by default the newest.", autocompletion=completion.runs)
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.")] = Path("sonda-report.html"),
    json: Json = False,
) -> None:
    """Write one HTML page about runs; it works offline.

    \b
    sonda report
    sonda report main head -o compared.html
    """
    from sonda.analysis.comparison.runs import compare as compare_runs
    from sonda.analysis.run_summary import summarise
    from sonda.record.errors import SondaError
    from sonda.report.output import refuse_folders
    from sonda.report.page import write_page

    refuse_folders(output)
    store = open_store()
    groups = {reference: _find_runs(store, reference) for reference in references or ["last"]}
    runs = [run for members in groups.values() for run in members]
    asked = [reference for reference, members in groups.items() for _ in members]
    # Runs of one name are processes of the same configuration.
    sides = list(groups.values()) if len(groups) > 1 else [[run] for run in runs]
    comparison = None
    if len(sides) == 2:
        try:
            comparison = compare_runs(*sides)
        except SondaError:
            comparison = None  # two runs with nothing in common still stand side by side
    summaries = []
    for number, run in enumerate(runs, 1):
        say(f"reading run {number} of {len(runs)}")
        summaries.append(summarise(run))
    say(f"writing {output}")
    path = write_page(output, summaries, runs, comparison, asked)
    hush()
    if json:
        write_json({"page": str(path)}, "page")
    else:
        put(path)


@app.command("export", short_help="Write a run as a file of another tool, or log it.")
def export(
    reference: Reference = "last",
    trace: Annotated[Path | None, typer.Option(help="Write a trace for Perfetto or Chrome; .gz compresses.")] = None,
    xplane: Annotated[
        Path | None, typer.Option(help="Write a profile for xprof and TensorBoard, e.g. run.xplane.pb.")
    ] = None,
    stonne: Annotated[
        Path | None, typer.Option(help="Write STONNE's .counters and .txt of each simulated operation to this folder.")
    ] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(help="Log it for TensorBoard, into a folder of its own in this one.")
    ] = None,
    mlflow: Annotated[str, typer.Option(help="Log it to MLflow: a folder, or the address of a tracking server.")] = "",
    wandb: Annotated[
        Path | None, typer.Option(help="Log it for Weights & Biases, offline; wandb sync uploads it.")
    ] = None,
    layers: Annotated[
        list[str] | None, typer.Option(help="With --stonne: only this module and all below it; repeatable.")
    ] = None,
    json: Json = False,
) -> None:
    """Write a run as a file of another tool, or log it to a tracker of experiments.

    \b
    sonda export last --trace trace.json.gz
    sonda export last --xplane run.xplane.pb
    sonda export last --tensorboard logs
    """
    from sonda.accelerators.formats.stonne.export import export_run
    from sonda.record.errors import SondaError
    from sonda.report.output import refuse_folders
    from sonda.report.trace.chrome import write_trace
    from sonda.report.trace.tracks import IN_CYCLES, in_cycles
    from sonda.report.trace.xplane import write_xplane

    tracked = tensorboard is not None or bool(mlflow) or wandb is not None
    if trace is None and xplane is None and stonne is None and not tracked:
        others = "--xplane, --stonne, --tensorboard, --mlflow, --wandb"
        raise SondaError("no format was named", f"write: sonda export last --trace trace.json, or {others}")
    if layers and stonne is None:
        raise SondaError("--layers means nothing without --stonne", "leave it out, or add --stonne folder")
    refuse_folders(trace, xplane)
    run = open_store().one(reference)
    # First of all: a tracker whose package is missing leaves nothing half-written.
    document: dict[str, Any] = _log_run(run, tensorboard, mlflow, wandb) if tracked else {}
    if stonne is not None:
        document["stonne"] = [str(path) for path in export_run(run, stonne, layers or [], say_or_log)]
        hush()
    if trace is not None:
        document["trace"] = str(write_trace(trace, run, say))
        hush()
    if xplane is not None:
        document["xplane"] = str(write_xplane(xplane, run))
    drawn = [path for path in (trace, xplane) if path is not None]
    if drawn and in_cycles(run):
        document["times"] = IN_CYCLES
    if json:
        write_json(document, "export")
        return
    if stonne is not None:
        put(f"{stonne}: {len(document['stonne'])} files")
    for path in drawn:
        put(f"{path} (times are {IN_CYCLES})" if in_cycles(run) else path)
    for name in ("tensorboard", "mlflow", "wandb"):
        if name in document:
            put(f"{name}: {document[name]}")


def _log_run(run: Run, tensorboard: Path | None, mlflow: str, wandb: Path | None) -> dict[str, str]:
    """Log a run to these trackers; where each has it now."""
    from sonda.report.trackers.metrics import require_package, track_run
    from sonda.report.trackers.mlflow import log_to_mlflow
    from sonda.report.trackers.tensorboard import write_events
    from sonda.report.trackers.wandb import log_to_wandb

    for package, place in (("mlflow", mlflow), ("wandb", wandb)):
        if place:
            require_package(package)
    tracked = track_run(run)
    logged = {}
    if tensorboard is not None:
        logged["tensorboard"] = str(write_events(tensorboard, tracked))
    if mlflow:
        logged["mlflow"] = log_to_mlflow(mlflow, tracked)
    if wandb is not None:
        logged["wandb"] = str(log_to_wandb(wandb, tracked))
    return logged
