"""The application: its help, options that several commands share, and how it prints and fails."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from sonda.cli import completion
from sonda.cli.building import build_command
from sonda.cli.progress import PROGRESS_LOG, SCREEN_LINE

if TYPE_CHECKING:
    from sonda.record.store import Store

app = typer.Typer(
    name="sonda",
    help="""Where the time, the energy and the cycles of a neural network go, and why.

    \b
    sonda run -- python train.py     your program, unchanged
    sonda run resnet18 --train       a built-in network
    sonda report                     the newest run as a page
    sonda doctor                     what this machine can measure
    """,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from sonda.version import VERSION

        put(f"sonda {VERSION}")
        raise SystemExit(0)


@app.callback()
def accept_version(
    version: Annotated[
        bool, typer.Option("--version", help="Say which Sonda this is.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, metrics with unit and source.")]


Precision = Annotated[
    str,
    typer.Option(
        help="float32, tf32, bfloat16, float16, mixed_bfloat16, mixed_float16 or float64.",
        autocompletion=completion.precisions,
    ),
]
Tags = Annotated[
    list[str] | None, typer.Option("--tag", help="Give the run a tag; repeatable.", autocompletion=completion.tags)
]


Rows = Annotated[int | None, typer.Option("--rows", help="Layers to list; 5, and 10 with -v.", min=0)]
Verbose = Annotated[
    int,
    typer.Option(
        "-v", "--verbose", count=True, help="Show the tables; -vv counters, missing sensors and footnotes too.",
        show_default=False,
    ),
]  # fmt: skip


Reference = Annotated[
    str,
    typer.Argument(help="A run's id (or its beginning), a tag, a path, or 'last'.", autocompletion=completion.runs),
]


def help_on_probes(*names: str) -> str:
    """What the registry says of these probes, of all of Sonda's own unless any is named."""
    from sonda.targets.instruments.registry import BUILT_IN, describe_probes

    return describe_probes(names or tuple(BUILT_IN))


UNKNOWN = "No such command"
"""How Typer's message about an unknown command begins."""


def main() -> None:
    """Run the command line: an error is one line and exit code 2, never a traceback."""
    from sonda.record.errors import SondaError

    _prepare_streams()
    if completion.is_asked(os.environ):
        completion.answer_shell(lambda: typer.main.get_command(app).main([], prog_name="sonda"), os.environ)
        sys.exit(0)
    words, command = sys.argv[1:], None
    if words[:1] in (["run"], ["energy"]) and "--" in words:
        cut = words.index("--")
        words, command = words[:cut], words[cut + 1 :]
    try:
        if command is None and words:
            SCREEN_LINE.begin(f"sonda {words[0]}")
        code = build_command(app, words).main(words, prog_name="sonda", standalone_mode=False, obj=command)
        if "--help" in words:
            print_own_options(words)
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
        code = _report_failure(error)
    finally:
        hush()
    sys.exit(code)


def _prepare_streams() -> None:
    """Let streams take any text: a closed one writes nowhere, a character that the encoding lacks becomes `?`."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (stays open until the end)
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper) and (out.errors == "strict" or codecs.lookup(out.encoding).name != "utf-8"):
        out.reconfigure(errors="replace")


def print_own_options(words: list[str]) -> None:
    """Print the options of the workload that a command names, below the command's help."""
    from sonda.cli.own_options import describe_own_options

    text = describe_own_options(words)
    if text:
        put(f"\n{text}")


def _report_failure(error: Exception) -> int:
    """Print one line about an error that is no SondaError; returns the exit code.

    It is 2 for a mistake in the command line. Anything else is a defect of Sonda's: 125.
    """
    if type(error).__name__ == "NoArgsIsHelpError":  # `sonda` alone, `sonda data` alone
        put(error.format_message())  # type: ignore[attr-defined]
        return 0
    if hasattr(error, "format_message"):
        context = getattr(error, "ctx", None)
        where = getattr(context, "command_path", "sonda")
        mistake, meant = _describe_mistake(error, context)
        complain(f"{mistake}; {meant}see: {where} --help")
        return 2
    if os.environ.get("SONDA_DEBUG"):
        raise error
    from sonda.record.errors import named_line

    complain(f"a defect in Sonda: {named_line(error)}; set SONDA_DEBUG=1 to see where, and report it")
    return 125


def _describe_mistake(error: Any, context: Any) -> tuple[str, str]:
    """What is wrong with a command line, and `did you mean 'run'? ` where a command or an option is similar."""
    from sonda.record.errors import near

    mistake = error.format_message().rstrip(".")
    command = getattr(context, "command", None)
    misspelt = getattr(error, "option_name", "")
    known = [word for parameter in getattr(command, "params", ()) for word in parameter.opts]
    if not misspelt and mistake.startswith(UNKNOWN):
        misspelt, known = mistake.removeprefix(UNKNOWN).split("'")[1], list(getattr(command, "commands", ()))
    if not misspelt or misspelt in known:
        return mistake, ""
    meant = near(misspelt, known)
    return f"there is no {'option' if misspelt[0] == '-' else 'command'} {misspelt!r}", (
        f"did you mean {meant!r}? " if meant else ""
    )


def parse_workload_options(context: typer.Context, workload: str, input: list[str] | None) -> dict[str, str]:
    """The options that a command does not know, as options of its workload.

    Raises SondaError for one that the workload does not know either; the remedy names a similar option of the command.
    """
    from sonda.cli.own_options import find_own_flags
    from sonda.record.errors import SondaError, near
    from sonda.targets.job import parse_options
    from sonda.workloads.catalogue import describe

    unlisted = parse_options(context.args, {})
    options = {**unlisted, **({"input": ",".join(input)} if input else {})}
    try:
        describe(workload, options)
    except SondaError:
        describe(workload, {})  # raises what is wrong with the workload itself
        own = find_own_flags(workload)
        flags = [word for parameter in context.command.params for word in parameter.opts if word.startswith("--")]
        for key in unlisted:
            flag = f"--{key.replace('_', '-')}"
            meant = near(flag, [*flags, *own])
            if meant in flags and flag not in own:
                raise SondaError(f"{workload} has no option {key!r}", f"did you mean {meant!r}?") from None
        raise
    return options


def complain(text: str) -> None:
    """Print an error on stderr."""
    hush()
    _print(f"sonda: {text}")


def say(text: str) -> None:
    """Show what is going on, on one line that goes away; a `Lasting` sentence stays."""
    if getattr(text, "lasting", False):
        hush()
        _print(text)
    else:
        SCREEN_LINE.say(text)


def say_or_log(text: str) -> None:
    """The same for long work: without a terminal it prints lines, so that a log shows the progress."""
    if sys.stderr.isatty():
        say(text)
    elif PROGRESS_LOG.accepts(text):
        _print(text)


def _print(text: str) -> None:
    """Print on stderr, line by line, without control characters: names come from outside."""
    from sonda.report.labels import plain

    print("\n".join(plain(line) for line in text.split("\n")), file=sys.stderr, flush=True)


def hush() -> None:
    """Hide the progress line, before something that stays is printed."""
    SCREEN_LINE.hush()


def put(text: Any, to: TextIO | None = None) -> None:
    """Print something that stays, on stdout unless told otherwise."""
    hush()
    print(text, file=to or sys.stdout)


def write_json(fields: dict[str, Any], kind: str = "") -> None:
    """One document on stdout: of this `kind`, with these fields; without a kind the fields are a document already."""
    from sonda.report.json import document, encode

    hush()
    sys.stdout.buffer.write(encode(document(kind, fields) if kind else fields) + b"\n")
    sys.stdout.flush()


def write_pieces(pieces: Iterable[bytes]) -> None:
    """Print a document that may not fit in memory, piece by piece."""
    for piece in pieces:
        hush()
        sys.stdout.buffer.write(piece)
    sys.stdout.flush()


def open_store() -> Store:
    from sonda.analysis.run_rows import describe_new_runs
    from sonda.record.store import Store

    describe_new_runs()
    return Store()
