"""The application: its help, options that several commands share, and how it prints and fails."""

from __future__ import annotations

import codecs
import io
import os
import shlex
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from sonda.cli import completion
from sonda.cli.building import build_command
from sonda.cli.help import ALL_WORDS, SondaCommand
from sonda.cli.program_words import names_program, split_program
from sonda.cli.progress import PROGRESS_LOG, SCREEN_LINE

if TYPE_CHECKING:
    from sonda.record.errors import Correction
    from sonda.record.store import Store


class Application(typer.Typer):
    """Commands whose help is that of `SondaCommand`."""

    def command(self, name: str | None = None, *, cls: Any = SondaCommand, **settings: Any) -> Any:
        """As Typer's."""
        return super().command(name, cls=cls, **settings)


app = Application(
    name="sonda",
    help="""Where the time, the energy and the cycles of a neural network go, and why.

    \b
    sonda run train.py               your program, unchanged
    sonda run resnet18 --train       a built-in network
    sonda show -v                    the newest run in tables
    sonda report                     the same as a page
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
    words, program = sys.argv[1:], None
    try:
        command = build_command(app, words)
        if words[:1] in (["run"], ["energy"]):
            own, program = split_program(words[1:], command.commands[words[0]])
            words = [words[0], *own]
        if ALL_WORDS in words:
            words = ["--help" if word == ALL_WORDS else word for word in words]
            show_all = getattr(command.commands.get(words[0]), "show_all", None)
            if show_all is not None:
                show_all()
        if program is None and words:
            SCREEN_LINE.begin(f"sonda {words[0]}")
        code = command.main(words, prog_name="sonda", standalone_mode=False, obj=program)
        print_own_options(words)
    except SondaError as error:
        line = correct_line(error.correction)
        complain(f"{str(error).rstrip('.')}{'' if str(error).endswith('?') or not line else '.'}{line}")
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
    """Print the options of the workload that a command names, below the command's help where that was asked for."""
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
        complain(_describe_mistake(error, context))
        return 2
    if os.environ.get("SONDA_DEBUG"):
        raise error
    from sonda.record.errors import named_line

    complain(f"a defect in Sonda: {named_line(error)}; set SONDA_DEBUG=1 to see where, and report it")
    return 125


def _describe_mistake(error: Any, context: Any) -> str:
    """What is wrong with a command line, and what to type: the line with the word that was meant, or an example."""
    from sonda.record.errors import Correction, nearest

    mistake = error.format_message().rstrip(".")
    command = getattr(context, "command", None)
    where = getattr(context, "command_path", "sonda")
    misspelt = getattr(error, "option_name", "")
    known = [word for parameter in getattr(command, "params", ()) for word in parameter.opts]
    if not misspelt and mistake.startswith(UNKNOWN):
        misspelt, known = mistake.removeprefix(UNKNOWN).split("'")[1], list(getattr(command, "commands", ()))
        if names_program(misspelt):
            return f"there is no command {misspelt!r}; write: sonda run {shlex.join(sys.argv[1:])}"
    if not misspelt or misspelt in known:
        example = first_example(command)
        return f"{mistake}; {f'for example: {example}' if example else f'see: {where} --help'}"
    unknown = f"there is no {'option' if misspelt[0] == '-' else 'command'} {misspelt!r}"
    remedy = nearest(misspelt, known)
    line = correct_line(remedy if isinstance(remedy, Correction) else None)
    return f"{unknown}; {remedy}{line}" if line else f"{unknown}; see: {where} --help"


def first_example(command: Any) -> str:
    """The first line of its help that shows the command; '' of a group, or without any."""
    lines = [line.strip().partition("   ")[0] for line in (getattr(command, "help", "") or "").splitlines()]
    name = f"sonda {getattr(command, 'name', '')} "
    return next((line for line in lines if line.startswith(name)), "")


def correct_line(correction: Correction | None) -> str:
    """` Write: sonda run mlp`: the command line that was typed, with the word in it that was meant; '' where it has not
    the misspelt one, or nothing similar is known."""
    if correction is None:
        return ""
    words = sys.argv[1:]
    places = [place for place, word in enumerate(words) if correction.word and correction.word in word]
    exact = [place for place in places if words[place].lstrip("-") == correction.word.lstrip("-")]
    if not places:
        return ""
    at = (exact or places)[0]
    words[at] = words[at].replace(correction.word, correction.meant, 1)
    return f" Write: {shlex.join(['sonda', *words])}"


def parse_workload_options(context: typer.Context, workload: str, input: list[str] | None) -> dict[str, str]:
    """The options that a command does not know, as options of its workload.

    Raises SondaError for one that the workload does not know either; the remedy names a similar option of the command.
    """
    from sonda.cli.own_options import find_own_flags
    from sonda.cli.program_words import propose_program
    from sonda.record.errors import Correction, SondaError, near
    from sonda.targets.job import parse_options
    from sonda.workloads.catalogue import describe

    unlisted = parse_options(context.args, {})
    options = {**unlisted, **({"input": ",".join(input)} if input else {})}
    try:
        describe(workload, options)
    except SondaError:
        proposed = propose_program(workload) if context.command.name == "run" else ""
        if proposed:
            raise SondaError(f"there is no workload {workload!r}", f"write: {proposed}") from None
        if context.command.name == "run" and is_unlike_all(workload):
            examples = "for example: sonda run train.py, sonda run model.py:build, or sonda run mlp"
            raise SondaError(f"there is no file, command or network {workload!r}", examples) from None
        describe(workload, {})  # raises what is wrong with the workload itself
        own = find_own_flags(workload)
        flags = [word for parameter in context.command.params for word in parameter.opts if word.startswith("--")]
        for key in unlisted:
            flag = f"--{key.replace('_', '-')}"
            meant = near(flag, [*flags, *own])
            if meant in flags and flag not in own:
                remedy = Correction(f"did you mean {meant!r}?", flag, meant)
                raise SondaError(f"{workload} has no option {key!r}", remedy) from None
        raise
    return options


def is_unlike_all(workload: str) -> bool:
    """Whether a word is no workload, and like none."""
    from sonda.record.errors import near
    from sonda.workloads.catalogue import is_garden, workload_names
    from sonda.workloads.own_model import is_own

    known = is_own(workload) or is_garden(workload) or workload.endswith(".onnx")
    return not known and not near(workload, workload_names())


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
