"""The command line: one thin function per command. What they do is in the rooms; imports wait until they are needed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from sonda.record.run import Run
    from sonda.record.store import Store

app = typer.Typer(
    name="sonda",
    help="Where the time, the energy and the cycles of a neural network go, and why.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    add_completion=False,
)

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, metrics with unit and source.")]
Rows = Annotated[int, typer.Option("--rows", help="Layers to list.", min=0)]
Reference = Annotated[str, typer.Argument(help="A run's id (or its beginning), a tag, a path, or 'last'.")]


def main() -> None:
    """Run the command line: an error is one line and exit code 2, never a traceback."""
    from sonda.record.errors import SondaError

    if sys.stdout is None:  # closed by whoever started us
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (stays open until the end)
    words, command = sys.argv[1:], None
    if words[:1] == ["run"] and "--" in words:
        cut = words.index("--")
        words, command = words[:cut], words[cut + 1 :]
    try:
        code = typer.main.get_command(app).main(words, prog_name="sonda", standalone_mode=False, obj=command)
    except SondaError as error:
        complain(str(error))
        code = error.exit_code
    except typer.Abort:
        code = 130
    except KeyboardInterrupt:
        complain("interrupted")
        code = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except MemoryError as error:
        complain(f"there is not enough memory ({error}); give a smaller batch or smaller sizes")
        code = 2
    except Exception as error:
        code = _unforeseen(error)
    sys.exit(code)


def _unforeseen(error: Exception) -> int:
    """A mistake in how the command was written has its own words; anything else is a defect of Sonda's."""
    if hasattr(error, "format_message"):
        where = getattr(getattr(error, "ctx", None), "command_path", "sonda")
        complain(f"{error.format_message().rstrip('.')}; see: {where} --help")
        return 2
    if os.environ.get("SONDA_DEBUG"):
        raise error
    first = (str(error).splitlines() or [""])[0]
    complain(f"a defect in Sonda: {type(error).__name__}: {first}; set SONDA_DEBUG=1 to see where, and report it")
    return 125


def complain(text: str) -> None:
    print(f"sonda: {text}", file=sys.stderr)


def say(text: str) -> None:
    """Tell somebody who watches what is going on, on one line that goes away."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text} …", end="", file=sys.stderr, flush=True)


def say_each(text: str) -> None:
    """The same for what takes long: without a terminal, a line each, so that a log shows how far it is."""
    if sys.stderr.isatty():
        say(text)
    else:
        print(text, file=sys.stderr, flush=True)


def hush() -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def write_json(document: Any) -> None:
    import msgspec

    sys.stdout.buffer.write(msgspec.json.encode(document) + b"\n")
    sys.stdout.flush()


def open_store() -> Store:
    from sonda.record.store import Store

    return Store()


# ---- running --------------------------------------------------------------------------------------------------


@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def run(
    context: typer.Context,
    workload: Annotated[
        str, typer.Argument(help="A built-in name or file.py:factory; nothing before -- command.")
    ] = "",
    on: Annotated[
        list[str] | None, typer.Option(help="Where: cpu, cpu/8 (8 threads), sim:NAME. Several: a column each.")
    ] = None,
    train: Annotated[bool, typer.Option("--train", help="Train instead of inferring.")] = False,
    input: Annotated[
        list[str] | None,
        typer.Option(help="Shape for file.py:factory, e.g. 8x3x224x224 or 8x128:int64<1000; repeatable."),
    ] = None,
    framework: Annotated[str, typer.Option(help="The framework of a built-in workload.")] = "torch",
    steps: Annotated[str, typer.Option(help="Timed steps; for a command, the steps seen in detail, e.g. 10:30.")] = "",
    warmup: Annotated[int, typer.Option(help="Steps before timing begins.")] = 3,
    seconds: Annotated[float, typer.Option(help="Time for the timed steps where --steps is not given.")] = 10.0,
    repeat: Annotated[int, typer.Option(help="Processes, each a run of its own.")] = 1,
    threads: Annotated[int | None, typer.Option(help="Threads; all that may be used unless given.")] = None,
    precision: Annotated[str, typer.Option(help="float32, bfloat16, float16 or float64.")] = "float32",
    compile: Annotated[bool, typer.Option("--compile", help="Compile the model.")] = False,
    channels_last: Annotated[bool, typer.Option("--channels-last", help="Channels last in memory.")] = False,
    workers: Annotated[int, typer.Option(help="Processes that load data.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of weights and data.")] = 0,
    mapping: Annotated[
        str, typer.Option(help="On sim:NAME: stonne (STONNE's own rule) or best (a search with the simulator).")
    ] = "",
    set: Annotated[
        list[str] | None,
        typer.Option(help="On sim:NAME: change its description: multipliers=512 memory.buffer_KiB=64; repeatable."),
    ] = None,
    probe: Annotated[
        list[str] | None,
        typer.Option(
            help="Count more, beside os (always on): pmu (hardware counters; pmu:children+no-layers+EVENT), callgrind "
            "(a step modelled by valgrind; callgrind:512KiB+2MiB for caches of other sizes), and of a command as a "
            "whole perf-stat, papi; repeatable."
        ),
    ] = None,
    interval: Annotated[
        str, typer.Option(help="Count a command from outside this often, e.g. 100ms; with --probe pmu, hardware too.")
    ] = "",
    attempt: Annotated[
        bool, typer.Option("--try", help="Try the remedies that are a flag away and say what they brought.")
    ] = False,
    tag: Annotated[list[str] | None, typer.Option(help="Give the run a tag.")] = None,
    rows: Rows = 10,
    max_time: Annotated[float, typer.Option(help="Observe a command for so many seconds only.", min=0)] = 0.0,
    no_count: Annotated[bool, typer.Option("--no-count", help="Spend no step of a command on counting FLOPs.")] = False,
    redact: Annotated[bool, typer.Option("--redact", help="Keep no arguments and no host name.")] = False,
    json: Json = False,
) -> None:
    """Run a workload, or an unmodified program after --, and say where its time goes.

    Options that are not listed here belong to the workload: sonda run resnet34 --train --batch 16 --image 148x112

    A simulated accelerator: sonda run dlrm --on sim:dlrm-hybrid --mapping best --set "embeddings.multipliers=256"
    """
    from sonda.record.errors import SondaError

    if workload.startswith("-"):
        raise SondaError(f"{workload} is not an option of sonda run", "a workload's own options come after its name")
    if context.obj is not None:
        if workload or on:
            raise SondaError("a command after -- chooses its own devices", "leave out the workload and --on")
        from sonda.targets.command import Watching, parse_interval, parse_steps

        _refuse(context, COMMAND_OPTIONS, "is for a workload, not for a command after --")
        first, last = parse_steps(steps)
        watching = Watching(
            count=not no_count, first=first, last=last, max_time=max_time, redact=redact, output_to_stderr=json,
            probe=tuple(probe or ()), interval=parse_interval(interval),
        )  # fmt: skip
        _run_command(context.obj, watching, tag or [], rows, json)
    _refuse(context, WORKLOAD_OPTIONS, "is for a command after --, not for a workload")
    if not workload:
        raise SondaError(
            "nothing to run", "name a workload, e.g. sonda run mlp, or a program: sonda run -- python train.py"
        )
    if on and all(target.startswith("sim:") for target in on):
        _refuse(context, SIMULATED_OPTIONS, "means nothing on a simulated accelerator: it runs once and is exact")
    from sonda.targets.job import Job, options_of, whole_number

    job = Job(
        workload=workload,
        options=options_of(context.args, {"input": ",".join(input)} if input else {}),
        framework=framework,
        train=train,
        steps=whole_number("steps", steps) if steps else None,
        warmup=warmup,
        seconds=seconds,
        seed=seed,
        threads=threads,
        precision=precision,
        compile=compile,
        channels_last=channels_last,
        workers=workers,
        mapping=mapping,
        set=" ".join(set or []),
        probe=",".join(probe or ()),
        redact=redact,
    )
    _run_workload(job, on or ["cpu"], repeat, tag or [], attempt, rows, json)


COMMAND_OPTIONS = (
    "steps", "probe", "interval", "tag", "rows", "max_time", "no_count", "redact", "json", "workload", "on",
)  # fmt: skip
"""Options of `run` that a command after -- knows."""
WORKLOAD_OPTIONS = (
    "workload", "on", "train", "input", "framework", "steps", "warmup", "seconds", "repeat", "threads", "precision",
    "compile", "channels_last", "workers", "seed", "mapping", "set", "probe", "attempt", "tag", "rows", "redact",
    "json",
)  # fmt: skip
"""Options of `run` that a workload knows."""
SIMULATED_OPTIONS = tuple(
    name for name in WORKLOAD_OPTIONS
    if name not in ("steps", "warmup", "seconds", "repeat", "channels_last", "workers", "probe", "attempt")
)  # fmt: skip
"""Options of `run` that a workload knows where it is simulated only."""


def _refuse(context: typer.Context, known: tuple[str, ...], why: str) -> None:
    """Raise SondaError for an option that was given and means nothing here: nothing is ignored in silence."""
    from sonda.record.errors import SondaError

    for name in context.params:
        source = context.get_parameter_source(name)
        if name not in known and source is not None and source.name == "COMMANDLINE":
            raise SondaError(f"--{name.replace('_', '-').replace('attempt', 'try')} {why}", "leave it out")
    if context.obj is not None and context.args:
        raise SondaError(f"{context.args[0]} is not an option of sonda run", "put the program's own words after --")


def _run_workload(job: Any, on: list[str], repeat: int, tags: list[str], attempt: bool, rows: int, json: bool) -> None:
    from sonda.studies.repetition import measure_all, show_of
    from sonda.studies.trial import try_remedies

    store = open_store()
    for tag in tags:
        store.check_tag(tag)
    groups = measure_all(job, on, repeat, store, say)
    hush()
    for measured in (run for group in groups for run in group):
        for tag in tags:
            store.tag(measured.id, tag)
    shown = [show_of(group) for group in groups]
    if attempt:
        shown = [(run, try_remedies(job, group, summary, store, say))
                 for group, (run, summary) in zip(groups, shown, strict=True)]  # fmt: skip
        hush()
    _show(shown, store, rows, json)


def _run_command(command: list[str], watching: Any, tags: list[str], rows: int, json: bool) -> None:
    from sonda.analysis.summarise import summarise
    from sonda.record.errors import SondaError
    from sonda.targets.command import refuse_isolated, run_command

    store = open_store()
    for tag in tags:
        store.check_tag(tag)
    refuse_isolated(command)
    try:
        observed, code = run_command(command, store, watching, say)
        hush()
        for tag in tags:
            store.tag(observed.id, tag)
        _show([(observed, summarise(observed))], store, rows, json, to=sys.stderr)
    except SondaError as error:
        error.exit_code = 125  # the program may be right: it is Sonda that failed
        raise
    raise SystemExit(code)


def _show(shown: list[tuple[Run, Any]], store: Store, rows: int, json: bool, to: Any = None) -> None:
    """Summaries of runs: one in full, several side by side. A program's own output keeps stdout to itself."""
    if json:
        from sonda.report.document import summaries_document, to_document

        documents = [summary for _, summary in shown]
        write_json(to_document(documents[0]) if len(documents) == 1 else summaries_document(documents))
        return
    from sonda.report.terminal import render_side_by_side, render_summary

    to = to or sys.stdout
    if len(shown) == 1:
        run, summary = shown[0]
        text = render_summary(summary, layers=rows, short=store.short(run.id), color=to.isatty())
    else:
        text = render_side_by_side([summary for _, summary in shown], layers=rows, color=to.isatty())
        names = " ".join(store.short(run.id) for run, _ in shown)
        text += f"\n  Saved as runs {names}. Page: sonda report {names}\n"
    print(text, file=to)


# ---- runs -----------------------------------------------------------------------------------------------------


@app.command("ls")
def list_runs(
    all: Annotated[bool, typer.Option("--all", help="All runs, not the newest 20 only.")] = False,
    json: Json = False,
) -> None:
    """List runs, newest first."""
    from sonda.record.errors import SondaError
    from sonda.report.document import runs_document
    from sonda.report.listing import run_row
    from sonda.report.terminal import render_runs

    store = open_store()
    tags = store.tags()
    limit = None if all else 20
    rows = []
    listed = list(store.runs(limit))
    shorts = dict(zip((found.id for found in listed), store.shorts([found.id for found in listed]), strict=True))
    for found in listed:
        try:
            from sonda.analysis.summarise import summarise

            summary = summarise(found)
        except SondaError as error:
            store.damaged.append(error)
            continue
        rows.append(run_row(found.info, shorts[found.id], tags.get(found.id, []), summary))
    damaged = [str(error) for error in store.damaged]
    if json:
        write_json(runs_document(rows, damaged))
    else:
        more = len(store.directories()) - len(rows) - len(damaged)
        print(render_runs(rows, damaged=damaged, more=max(0, more)))


@app.command()
def show(
    reference: Reference = "last",
    rows: Rows = 10,
    json: Json = False,
) -> None:
    """Show a run again."""
    from sonda.analysis.exploration import is_exploration
    from sonda.analysis.interference import is_corun
    from sonda.analysis.summarise import summarise
    from sonda.analysis.trace_summary import is_imported

    store = open_store()
    found = store.one(reference)
    if is_exploration(found):
        _show_exploration(found, store, rows, json)
    elif is_corun(found):
        _show_corun(found, store, json)
    elif is_imported(found):
        _show_imported(found, store, rows, json)
    else:
        _show([(found, summarise(found))], store, rows, json)


@app.command()
def tag(
    reference: Reference,
    name: Annotated[str, typer.Argument(help="The tag; several runs may share one.")],
    remove: Annotated[bool, typer.Option("--remove", help="Take the tag off.")] = False,
    json: Json = False,
) -> None:
    """Give a run a name of your own."""
    store = open_store()
    found = store.find(reference)
    for one in found:
        if remove:
            store.untag(one.id, name)
        else:
            store.tag(one.id, name)
    if json:
        write_json({"tag": name, "runs": [one.id for one in found], "removed": remove})


@app.command()
def rm(
    references: Annotated[list[str] | None, typer.Argument(help="Runs to remove.")] = None,
    older_than: Annotated[str, typer.Option(help="Remove runs older than this: 30d, 12h, 2w.")] = "",
    json: Json = False,
) -> None:
    """Remove runs."""
    from sonda.record.errors import SondaError
    from sonda.record.store import parse_age

    store = open_store()
    if not references and not older_than:
        raise SondaError("nothing to remove", "name runs, or give --older-than 30d")
    removed = [path.name for path in store.remove_older_than(parse_age(older_than))] if older_than else []
    for reference in references or []:
        for directory in store.locate(reference):
            store.remove(directory)
            removed.append(directory.name)
    if json:
        write_json({"removed": removed})
    else:
        print(f"removed {len(removed)} run{'' if len(removed) == 1 else 's'}")


@app.command()
def compare(
    a: Annotated[str, typer.Argument(help="The base: an id, a tag, a path.")],
    b: Annotated[str, typer.Argument(help="What is held against it.")],
    fail_above: Annotated[str, typer.Option(help="Exit with 1 when B is slower by more than this, e.g. 5%.")] = "",
    rows: Rows = 10,
    json: Json = False,
) -> None:
    """Say how much faster or slower B is than A, per phase and layer, or that it is not significant."""
    from sonda.analysis.compare import compare as compare_runs
    from sonda.analysis.compare import parse_percent
    from sonda.analysis.trace_summary import is_imported
    from sonda.report.document import comparison_document
    from sonda.report.terminal import render_comparison

    limit = parse_percent(fail_above) if fail_above else None
    store = open_store()
    left, right = store.find(a), store.find(b)
    if any(is_imported(one) for one in [*left, *right]):
        _compare_imported(left, right, limit, rows, json)
        return
    result = compare_runs(left, right)
    for error in store.damaged:
        complain(f"skipped: {error}")
    if json:
        write_json(comparison_document(result))
    else:
        print(render_comparison(result, layers=rows, fail_above=limit))
    if limit is not None and result.fails(limit):
        raise SystemExit(1)


def _compare_imported(a: list[Run], b: list[Run], limit: float | None, rows: int, json: bool) -> None:
    from sonda.analysis.compare_kernels import compare_kernels
    from sonda.report.kernel_comparison import kernel_comparison_document, render_kernel_comparison

    result = compare_kernels(a, b)
    if json:
        write_json(kernel_comparison_document(result))
    else:
        print(render_kernel_comparison(result, rows=rows, fail_above=limit))
    if limit is not None and result.fails(limit):
        raise SystemExit(1)


@app.command("import")
def import_(
    files: Annotated[list[Path], typer.Argument(help="Files of one kind; several traces, or a directory, are ranks.")],
    tag: Annotated[list[str] | None, typer.Option(help="Give the run a tag.")] = None,
    rows: Annotated[int, typer.Option("--rows", help="Kernels to list.", min=0)] = 10,
    json: Json = False,
) -> None:
    """Read another tool's file as a run and say where the time of its devices goes.

    Chrome and Kineto traces (torch.profiler; plain or .gz), Nsight Compute's CSV and .ncu-rep, Nsight Systems' SQLite,
    perf stat -j. Traces may be larger than memory.
    """
    from sonda.imports.importing import import_files

    store = open_store()
    for one in tag or []:
        store.check_tag(one)
    found = import_files(files, store.root, say)
    hush()
    for one in tag or []:
        store.tag(found.id, one)
    _show_imported(found, store, rows, json)


def _show_imported(run: Run, store: Store, rows: int, json: bool) -> None:
    from sonda.analysis.trace_summary import summarise_trace
    from sonda.report.kernel_tables import render_trace, trace_document

    found = summarise_trace(run)
    write_json(trace_document(found)) if json else print(render_trace(found, rows=rows, short=store.short(run.id)))


@app.command()
def report(
    references: Annotated[list[str] | None, typer.Argument(help="Runs; the newest unless named.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.")] = Path("sonda-report.html"),
    json: Json = False,
) -> None:
    """Write one HTML page about runs; it works offline."""
    from sonda.analysis.compare import compare as compare_runs
    from sonda.analysis.summarise import summarise
    from sonda.record.errors import SondaError
    from sonda.report.page import write_page

    store = open_store()
    runs = [found for reference in references or ["last"] for found in store.find(reference)]
    comparison = None
    if len(runs) == 2:
        try:
            comparison = compare_runs([runs[0]], [runs[1]])
        except SondaError:
            comparison = None  # two runs with nothing in common still stand side by side
    path = write_page(output, [summarise(one) for one in runs], runs, comparison)
    if json:
        write_json({"page": str(path)})
    else:
        print(path)


@app.command()
def export(
    reference: Reference = "last",
    trace: Annotated[Path | None, typer.Option(help="Write a trace for Perfetto or Chrome; .gz compresses.")] = None,
    stonne: Annotated[
        Path | None, typer.Option(help="Write STONNE's .counters and .txt of each simulated operation to this folder.")
    ] = None,
    json: Json = False,
) -> None:
    """Write a run as a file of another tool."""
    from sonda.accelerators.stonne_export import export_run
    from sonda.record.errors import SondaError
    from sonda.report.trace import IN_CYCLES, in_cycles, write_trace

    if trace is None and stonne is None:
        raise SondaError("no format was named", "write: sonda export last --trace trace.json, or --stonne folder")
    found = open_store().one(reference)
    document: dict[str, Any] = {}
    if stonne is not None:
        document["stonne"] = [str(path) for path in export_run(found, stonne)]
    if trace is not None:
        document["trace"] = str(write_trace(trace, found))
        if in_cycles(found):
            document["times"] = IN_CYCLES
    if json:
        write_json(document)
        return
    if stonne is not None:
        print(f"{stonne}: {len(document['stonne'])} files")
    if trace is not None:
        print(f"{trace} (times are {IN_CYCLES})" if in_cycles(found) else trace)


# ---- studies and the machine ----------------------------------------------------------------------------------


@app.command()
def study(
    reference: Annotated[str, typer.Argument(help="A published study's name or a file; without, a list of them.")] = "",
    scale: Annotated[str, typer.Option(help="A smaller or larger version that the study describes.")] = "",
    repeat: Annotated[int | None, typer.Option(help="Repetitions of each configuration.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Forget what was measured and start anew.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Show what would be measured, and stop.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Show what was measured so far, and stop.")] = False,
    json: Json = False,
) -> None:
    """Carry out a designed experiment. Interrupted and started again, it goes on where it stopped."""
    from sonda.report.study import render_plan, render_studies, render_study
    from sonda.studies.catalogue import carry_out, list_studies, load_plan, show_study

    if not reference:
        rows = list_studies()
        write_json({"studies": rows}) if json else print(render_studies(rows))
        return
    if plan:
        document = load_plan(reference, scale, repeat)
        write_json(document) if json else print(render_plan(document))
        return
    if show:
        document = show_study(reference, scale, repeat, open_store())
    else:
        document = carry_out(reference, scale, repeat, again, open_store(), say_each)
    hush()
    write_json(document) if json else print(render_study(document))


@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def explore(
    context: typer.Context,
    workload: Annotated[str, typer.Argument(help="A built-in name or file.py:factory.")],
    on: Annotated[str, typer.Option(help="A simulated accelerator, sim:NAME; an obvious one unless given.")] = "",
    vary: Annotated[
        list[str] | None,
        typer.Option(help="A field and its values: multipliers=64,128 or read_ports=16..256*2 or mapping=stonne,best."),
    ] = None,
    set: Annotated[
        list[str] | None, typer.Option(help="Change the description for all points, e.g. clock_GHz=1; repeatable.")
    ] = None,
    mapping: Annotated[str, typer.Option(help="stonne or best, for all points.")] = "",
    input: Annotated[list[str] | None, typer.Option(help="Shape for file.py:factory; repeatable.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of weights and data.")] = 0,
    threads: Annotated[int | None, typer.Option(help="Threads while the model is looked at.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write all points as a CSV file.")] = None,
    parquet: Annotated[Path | None, typer.Option(help="Write all points as a Parquet file.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Give the run a tag.")] = None,
    rows: Annotated[int, typer.Option("--rows", help="Points of the front to list.", min=0)] = 10,
    json: Json = False,
) -> None:
    """Simulate a workload on many accelerators at once and show which are worth building.

    sonda explore dlrm --vary multipliers=64..1024*2 --vary dn_bw=16,64,256

    Fields are those of the accelerator's description; on=sim:A,sim:B and mapping=stonne,best vary too. Options that are
    not listed here belong to the workload.
    """
    from sonda.report.exploration import write_points
    from sonda.studies.explore import explore as explore_space
    from sonda.studies.space import parse_space
    from sonda.targets.job import Job, options_of

    job = Job(
        workload=workload,
        options=options_of(context.args, {"input": ",".join(input)} if input else {}),
        on=on,
        seed=seed,
        threads=threads,
        mapping=mapping,
        set=" ".join(set or []),
    )
    store = open_store()
    found = explore_space(job, parse_space(vary or []), store, tag or [], say)
    hush()
    for path, form in ((csv, "csv"), (parquet, "parquet")):
        if path is not None:
            write_points(path, found.points, form)
    _show_exploration(found, store, rows, json)


def _show_exploration(run: Run, store: Store, rows: int, json: bool) -> None:
    from sonda.analysis.exploration import explored
    from sonda.analysis.summarise import summarise
    from sonda.report.exploration import exploration_document, render_exploration

    found = explored(run, summarise(run).title)
    if json:
        write_json(exploration_document(found, run.points))
    else:
        print(render_exploration(found, rows=rows, short=store.short(run.id)))


@app.command()
def corun(
    participants: Annotated[
        list[str], typer.Argument(help="Two or more workloads, options in quotes: mlp 'cnn --batch 8' a=stress-cache.")
    ],
    cores: Annotated[str, typer.Option(help="Cores of each, in order: 0,1 or 0-3,4-7 or 0+2,1; few are shared.")] = "",
    seconds: Annotated[float, typer.Option(help="Length of a window.")] = 5.0,
    repeat: Annotated[int, typer.Option(help="Times that everything is measured, with new processes.")] = 3,
    timeout: Annotated[float, typer.Option(help="Seconds without a step after which a program has hung.")] = 120.0,
    ways: Annotated[str, typer.Option(help="Ways of the last-level cache for each, in order: 4,6.")] = "",
    partition: Annotated[str, typer.Option(help="Masks of ways by name: mlp=0xf,cnn=0xf0.")] = "",
    bandwidth: Annotated[str, typer.Option(help="Memory bandwidth for each, in order, in the machine's unit.")] = "",
    sweep_ways: Annotated[bool, typer.Option("--sweep-ways", help="Give the first program 1, 2, … ways.")] = False,
    tag: Annotated[list[str] | None, typer.Option(help="Give the run a tag.")] = None,
    json: Json = False,
) -> None:
    """Run programs alone, in twos and all together, and say how much they slow each other.

    sonda corun "mlp --train" cnn stress-bandwidth --cores 0,1,2
    """
    from sonda.targets.corun import corun as carry_out
    from sonda.targets.corun_plan import Setting

    store = open_store()
    for one in tag or []:
        store.check_tag(one)
    setting = Setting(seconds, repeat, timeout, ways, partition, bandwidth, sweep_ways)
    found = carry_out(participants, store, cores, setting, say_each, warn=lambda text: print(text, file=sys.stderr))
    hush()
    for one in tag or []:
        store.tag(found.id, one)
    _show_corun(found, store, json)


def _show_corun(run: Run, store: Store, json: bool) -> None:
    from sonda.analysis.interference import interference
    from sonda.report.corun import corun_document, render_corun

    found = interference(run)
    if json:
        write_json(corun_document(found))
    else:
        print(render_corun(found, short=store.short(run.id)))


@app.command()
def verify(
    what: Annotated[str, typer.Argument(help="The simulator that the reference runs were made with: stonne.")],
    file: Annotated[Path, typer.Argument(help="A JSON file of reference runs.")],
    json: Json = False,
) -> None:
    """Hold the simulated accelerators against reference runs; exit code 1 when any differs."""
    from sonda.accelerators.verify import verify_stonne
    from sonda.record.errors import SondaError
    from sonda.report.verification import render_verification

    if what != "stonne":
        raise SondaError(f"there are no reference runs of {what!r}", "write: sonda verify stonne FILE.json")
    result = verify_stonne(file)
    document = result.to_document()
    if json:
        write_json(document)
    else:
        print(render_verification(document))
    if result.exit_status:
        raise SystemExit(result.exit_status)


@app.command()
def doctor(
    validate: Annotated[
        bool, typer.Option("--validate", help="Count known work with every probe; exit code 1 when one counts wrong.")
    ] = False,
    json: Json = False,
) -> None:
    """Say what this machine can measure, what it cannot, and what would change that."""
    if validate:
        _validate(json)
        return
    from sonda.probes.doctor import examine
    from sonda.probes.resctrl_partition import left_checks
    from sonda.report.document import checks_document
    from sonda.report.terminal import render_doctor

    root = open_store().root
    left = left_checks(root)
    checks = [(check.name, check.state, check.detail, check.remedy) for check in examine(store=root)] + left
    if json:
        write_json(checks_document(checks))
    else:
        print(render_doctor(checks))


def _validate(json: bool) -> None:
    from sonda.probes.validation import validate
    from sonda.report.validation import render_validation

    found = validate(say)
    hush()
    document = found.to_document()
    write_json(document) if json else print(render_validation(document))
    if found.exit_status:
        raise SystemExit(found.exit_status)


if __name__ == "__main__":
    main()
