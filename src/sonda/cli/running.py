"""`sonda run`: an unmodified program, a model of one's own, or a built-in network."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated, Any

import typer

from sonda.cli import completion
from sonda.cli.application import (
    Json,
    Precision,
    Rows,
    Tags,
    Verbose,
    app,
    complain,
    help_on_probes,
    hush,
    open_store,
    parse_workload_options,
    say,
)
from sonda.cli.own_options import WorkloadCommand
from sonda.cli.program_words import describe_misplaced
from sonda.cli.showing import show_runs


@app.command(
    "run",
    short_help="Run a workload or your program and say where its time goes.",
    cls=WorkloadCommand,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def run(
    context: typer.Context,
    workload: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="Your program with its own words (train.py --epochs 1, -m package.train, script.sh, or any command "
            "behind --); a model of yours (file.py:factory); or a built-in network: ops, mlp, cnn, resnet18, resnet34, "
            "resnet50, lstm, transformer, dlrm, stress-cache, stress-bandwidth, stress-compute.",
            autocompletion=completion.runnable,
        ),
    ] = "",
    on: Annotated[
        list[str] | None,
        typer.Option(
            help="Where: cpu, cpu/8 (8 threads), cuda:0, sim:NAME; training on several devices: ddp=cpu/1+cpu/1, and "
            "so dp, hybrid, pipeline, localsgd, with TensorFlow mirrored, centralstorage, multiworker, "
            "parameterserver. Repeated: a column each.",
            autocompletion=completion.targets,
        ),
    ] = None,
    train: Annotated[bool, typer.Option("--train", help="Train instead of inferring.")] = False,
    input: Annotated[
        list[str] | None,
        typer.Option(help="Shape for file.py:factory, e.g. 8x3x224x224 or 8x128:int64<1000; repeatable."),
    ] = None,
    framework: Annotated[
        str,
        typer.Option(
            help="Of a built-in workload: torch, tensorflow, jax or pytensor.", autocompletion=completion.frameworks
        ),
    ] = "torch",
    steps: Annotated[str, typer.Option(help="Timed steps; for a command, the steps seen in detail, e.g. 10:30.")] = "",
    warmup: Annotated[int, typer.Option(help="Steps before timing begins.")] = 3,
    seconds: Annotated[
        float,
        typer.Option(
            help="Time for the timed steps without --steps; with --try on a command, for all tries: 300 by default."
        ),
    ] = 10.0,
    repeat: Annotated[int, typer.Option(help="Repeat in this many processes, each a separate run.")] = 1,
    threads: Annotated[int | None, typer.Option(help="Threads; all that it may use by default.")] = None,
    inter_op_threads: Annotated[int | None, typer.Option(help="Threads that run operations in parallel.")] = None,
    bind: Annotated[
        str,
        typer.Option(
            help="Cores of the threads: none, compact, spread, or 0,2,4-7.", autocompletion=completion.bindings
        ),
    ] = "none",
    gpu_private_threads: Annotated[int, typer.Option(help="Threads for one GPU only (TensorFlow).")] = 0,
    precision: Precision = "float32",
    compile: Annotated[bool, typer.Option("--compile", help="Compile the model (torch.compile, XLA).")] = False,
    channels_last: Annotated[bool, typer.Option("--channels-last", help="Channels last in memory.")] = False,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Give the same bits every time, even if that is slower.")
    ] = False,
    data: Annotated[str, typer.Option(help="Images to train on: a folder, or drawn; by default numbers.")] = "",
    epochs: Annotated[int, typer.Option(help="Train for N epochs of --data, then test.")] = 0,
    split: Annotated[str, typer.Option(help="With --epochs: training/validation/test.")] = "0.85/0.02/0.13",
    images: Annotated[int, typer.Option(help="With --epochs: use at most N images of each class.")] = 0,
    transfer: Annotated[
        str,
        typer.Option(
            help="With --epochs: data to the device by batch, or up-front.", autocompletion=completion.transfers
        ),
    ] = "batch",
    checkpoint: Annotated[str, typer.Option(help="With --epochs: directory of checkpoints; in the store.")] = "",
    workers: Annotated[int, typer.Option(help="Processes that load data.")] = 0,
    prefetch: Annotated[int | None, typer.Option(help="Batches to load ahead.")] = None,
    cache: Annotated[bool, typer.Option("--cache", help="Keep decoded samples in memory.")] = False,
    pin: Annotated[bool | None, typer.Option(help="Batches in pinned memory, which a GPU can read.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of weights and data.")] = 0,
    mapping: Annotated[
        str,
        typer.Option(
            help="On sim:NAME: stonne (STONNE's own rule) or best (a search with the simulator).",
            autocompletion=completion.mappings,
        ),
    ] = "",
    set: Annotated[
        list[str] | None,
        typer.Option(help="On sim:NAME: change its description: multipliers=512 memory.buffer_KiB=64; repeatable."),
    ] = None,
    probe: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Count more: {help_on_probes()}; repeatable.",
            autocompletion=completion.probes,
        ),
    ] = None,
    interval: Annotated[
        str, typer.Option(help="Count a command from outside this often, e.g. 100ms; with --probe pmu, hardware too.")
    ] = "",
    on_cluster: Annotated[
        str, typer.Option(help="A training over nodes as a job of Slurm: slurm:partition=NAME; local to try it.")
    ] = "",
    attempt: Annotated[
        bool,
        typer.Option(
            "--try",
            help="Try the remedies that are a flag away and say what they brought; on a command from outside, with a "
            "patch for what helped.",
        ),
    ] = False,
    tag: Tags = None,
    verbose: Verbose = 0,
    rows: Rows = None,
    max_time: Annotated[float, typer.Option(help="Stop observing a command after N seconds.", min=0)] = 0.0,
    no_count: Annotated[bool, typer.Option("--no-count", help="Use no step of a command to count FLOPs.")] = False,
    no_stacks: Annotated[
        bool, typer.Option("--no-stacks", help="Sample no stacks of a command, so name no lines of its code.")
    ] = False,
    redact: Annotated[bool, typer.Option("--redact", help="Keep no arguments and no host name.")] = False,
    json: Json = False,
) -> None:
    """Run your program, unchanged, or a network, and say where its time goes.

    \b
    sonda run train.py --epochs 1
    sonda run --tag main -- python -u train.py
    sonda run resnet34 --train --batch 16 --image 148x112
    sonda run model.py:build --input 8x3x224x224 --on cpu --on sim:maeri-256
    sonda run dlrm --on sim:dlrm-hybrid --mapping best --set embeddings.multipliers=256

    Put Sonda's options before your program; everything after its name belongs to the program. Other options after a
    network are the network's: sonda run mlp --help lists mlp's below.
    """
    from sonda.record.errors import Correction, SondaError, near

    if workload.startswith("-"):
        flag = workload.partition("=")[0]
        meant = near(flag, (name for option in context.command.params for name in option.opts))
        remedy = "a workload's own options come after its name"
        if meant:
            remedy = Correction(f"did you mean {meant!r}?", flag, meant)
        raise SondaError(f"{flag} is not an option of sonda run", remedy)
    if context.obj is not None:
        if workload:
            raise SondaError(f"both {workload} and a program are named", f"write: {_program_line(context.obj)}")
        if on:
            raise SondaError("a program chooses its own devices", f"write: {_program_line(context.obj)}")
        from sonda.targets.program.launcher import WatchSettings, parse_interval, parse_steps

        _refuse(context, COMMAND_OPTIONS, "is for a built-in network, not for a program")
        first, last = parse_steps(steps)
        watching = WatchSettings(
            count=not no_count, first=first, last=last, max_time=max_time, redact=redact, output_to_stderr=json,
            probe=tuple(probe or ()), stacks=not no_stacks, interval=parse_interval(interval),
        )  # fmt: skip
        if not attempt and _is_given(context, "seconds"):
            raise SondaError(
                "--seconds is for a built-in network, not for a program",
                f"write: {_program_line(context.obj, '--max-time', f'{seconds:g}')}",
            )
        trials = _trials(context, attempt, seconds)
        code = _run_command(context.obj, watching, tag or [], rows, verbose, json, trials)
        misplaced = describe_misplaced(sys.argv[2:], context.command, COMMAND_OPTIONS) if code else ""
        if misplaced:
            complain(misplaced)
        raise SystemExit(code)
    _refuse(context, WORKLOAD_OPTIONS, "is for a program, not for a built-in network")
    if not workload:
        raise SondaError(
            "nothing to run", "name your program: sonda run train.py, or a built-in network: sonda run mlp"
        )
    if on and all(target.startswith("sim:") for target in on):
        _refuse(context, SIMULATED_OPTIONS, "means nothing on a simulated accelerator: it runs once and is exact")
    from sonda.targets.job import Job, parse_whole_option

    job = Job(
        workload=workload,
        options=parse_workload_options(context, workload, input),
        framework=framework,
        train=train,
        steps=parse_whole_option("steps", steps) if steps else None,
        warmup=warmup,
        seconds=seconds,
        epochs=epochs,
        split=split,
        images=images,
        transfer=transfer,
        checkpoint=checkpoint,
        seed=seed,
        threads=threads,
        inter_op_threads=inter_op_threads,
        bind=bind,
        gpu_private_threads=gpu_private_threads,
        precision=precision,
        compile=compile,
        channels_last=channels_last,
        deterministic=deterministic,
        data=data,
        workers=workers,
        prefetch=prefetch,
        cache=cache,
        pin=pin,
        mapping=mapping,
        set=" ".join(set or []),
        probe=",".join(probe or ()),
        redact=redact,
    )
    _run_workload(job, on or ["cpu"], repeat, tag or [], attempt, rows, verbose, json, on_cluster)


COMMAND_OPTIONS = (
    "steps", "probe", "interval", "tag", "rows", "verbose", "max_time", "no_count", "no_stacks", "redact", "json",
    "workload", "on", "attempt", "seconds",
)  # fmt: skip
"""Options of `run` that a program knows."""


MATRIX_OPTIONS = (
    "inter_op_threads", "bind", "gpu_private_threads", "channels_last", "deterministic", "data", "epochs", "split",
    "images", "transfer", "checkpoint", "workers", "prefetch", "cache", "pin",
)  # fmt: skip
"""Options of `run` by which a real machine is used in another way."""


WORKLOAD_OPTIONS = (
    "workload", "on", "train", "input", "framework", "steps", "warmup", "seconds", "repeat", "threads", "precision",
    "compile", *MATRIX_OPTIONS, "seed", "mapping", "set", "probe", "on_cluster", "attempt", "tag", "rows", "verbose",
    "redact", "json",
)  # fmt: skip
"""Options of `run` that a workload knows."""


SIMULATED_OPTIONS = tuple(
    name for name in WORKLOAD_OPTIONS
    if name not in ("steps", "warmup", "seconds", "repeat", *MATRIX_OPTIONS, "probe", "on_cluster", "attempt")
)  # fmt: skip
"""Options of `run` that a workload knows where it is simulated only."""


def _refuse(context: typer.Context, known: tuple[str, ...], why: str) -> None:
    """Raise SondaError for an option that was given and means nothing here: nothing is ignored in silence."""
    from sonda.record.errors import SondaError

    for name in context.params:
        if name not in known and _is_given(context, name):
            flag = f"--{name.replace('_', '-').replace('attempt', 'try')}"
            line = _program_line(context.obj) if context.obj is not None else _line_without(flag, context)
            remedy = f"leave it out: {line}"
            if context.obj is not None and name == "repeat":
                again = _program_line(context.obj, "--tag", "A")
                remedy = f"run it {context.params[name]} times with one tag: {again}"
            raise SondaError(f"{flag} {why}", remedy)
    if context.obj is not None and context.args:
        line = _program_line([*context.obj, *context.args])
        raise SondaError(f"{context.args[0]} is not an option of sonda run", f"put it behind the program: {line}")


def _program_line(program: list[str], *options: str) -> str:
    """The command that runs a program, with these options of Sonda's."""
    return shlex.join(["sonda", "run", *options, "--", *program])


def _line_without(flag: str, context: typer.Context) -> str:
    """What was typed, without an option and its value."""
    option = next(parameter for parameter in context.command.params if flag in parameter.opts)
    words = sys.argv[1:]
    place = next((at for at, word in enumerate(words) if word.partition("=")[0] == flag), len(words))
    single = getattr(option, "is_flag", False) or getattr(option, "count", False) or "=" in "".join(words[place:][:1])
    return shlex.join(["sonda", *words[:place], *words[place + (1 if single else 2) :]])


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _trials(context: typer.Context, attempt: bool, seconds: float) -> list[Any]:
    """The instrument that tries remedies on a command, where it is asked for."""
    if not attempt:
        return []
    from sonda.studies.engine.program_trials import SECONDS, ProgramTrials

    return [ProgramTrials(context.obj, seconds if _is_given(context, "seconds") else SECONDS)]


def _run_workload(
    job: Any, on: list[str], repeat: int, tags: list[str], attempt: bool, rows: int | None, verbose: int, json: bool,
    on_cluster: str,
) -> None:  # fmt: skip
    from sonda.record.errors import SondaError
    from sonda.studies.engine.repetition import measure_all, run_to_show
    from sonda.studies.engine.trial import try_remedies

    if attempt and job.epochs:
        raise SondaError("--try would train once more for every remedy", "use it without --epochs, on a few steps")
    if attempt and (on_cluster or any("nodes=" in target for target in on)):
        raise SondaError("--try is for one machine: nodes are started once", "leave it out, or try on one of them")
    store = open_store()
    for tag in tags:
        store.check_tag(tag)
    if on_cluster:
        from sonda.studies.executors.training_jobs import submit_training

        groups = measure_all(job, on, repeat, store, say, submit_training(on_cluster))
    else:
        groups = measure_all(job, on, repeat, store, say)
    hush()
    for measured in (run for group in groups for run in group):
        for tag in tags:
            store.tag(measured.id, tag)
    shown = [run_to_show(group) for group in groups]
    if attempt:
        shown = [(run, try_remedies(job, group, summary, store, say))
                 for group, (run, summary) in zip(groups, shown, strict=True)]  # fmt: skip
        hush()
    show_runs(shown, store, json, rows, verbose)


def _run_command(
    command: list[str], watching: Any, tags: list[str], rows: int | None, verbose: int, json: bool, trials: list[Any]
) -> int:
    """Run a program and show its run; returns the program's exit code."""
    from sonda.analysis.run_summary import summarise
    from sonda.record.errors import SondaError
    from sonda.targets.program.launcher import refuse_isolated, run_command

    store = open_store()
    for tag in tags:
        store.check_tag(tag)
    refuse_isolated(command)
    try:
        observed, code = run_command(command, store, watching, say, trials)
        hush()
        for tag in tags:
            store.tag(observed.id, tag)
        show_runs([(observed, summarise(observed))], store, json, rows, verbose, to=sys.stderr)
    except SondaError as error:
        error.exit_code = 125  # the program may be right: it is Sonda that failed
        raise
    return code
