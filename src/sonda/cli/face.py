"""The command line itself: the application, options that several commands share, and how it speaks and fails."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from sonda.cli import completion
from sonda.cli.building import built
from sonda.cli.progress import LOG, SHOWN

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


def _tell_version(wanted: bool) -> None:
    if wanted:
        from sonda.version import VERSION

        put(f"sonda {VERSION}")
        raise SystemExit(0)


@app.callback()
def whole(
    version: Annotated[
        bool, typer.Option("--version", help="Say which Sonda this is.", is_eager=True, callback=_tell_version)
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


Rows = Annotated[int, typer.Option("--rows", help="Layers to list.", min=0)]


Reference = Annotated[
    str,
    typer.Argument(help="A run's id (or its beginning), a tag, a path, or 'last'.", autocompletion=completion.runs),
]


UNKNOWN = "No such command"
"""How Typer begins to say that there is none of that name."""


def main() -> None:
    """Run the command line: an error is one line and exit code 2, never a traceback."""
    from sonda.record.errors import SondaError

    _open_streams()
    if completion.asked(os.environ):
        completion.answer(lambda: typer.main.get_command(app).main([], prog_name="sonda"), os.environ)
        sys.exit(0)
    words, command = sys.argv[1:], None
    if words[:1] in (["run"], ["energy"]) and "--" in words:
        cut = words.index("--")
        words, command = words[:cut], words[cut + 1 :]
    try:
        if command is None and words:
            SHOWN.begin(f"sonda {words[0]}")
        code = built(app, words).main(words, prog_name="sonda", standalone_mode=False, obj=command)
        if "--help" in words:
            tell_options(words)
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
    finally:
        hush()
    sys.exit(code)


def _open_streams() -> None:
    """Make streams take everything: one that is closed writes nowhere, what an encoding has no code for becomes `?`."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (stays open until the end)
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper) and (out.errors == "strict" or codecs.lookup(out.encoding).name != "utf-8"):
        out.reconfigure(errors="replace")


def tell_options(words: list[str]) -> None:
    """Below the help of a command, the options of the workload that was named with it."""
    from sonda.cli.own_options import own_options

    text = own_options(words)
    if text:
        put(f"\n{text}")


def _unforeseen(error: Exception) -> int:
    """A mistake in how the command was written has its own words; anything else is a defect of Sonda's."""
    if type(error).__name__ == "NoArgsIsHelpError":  # `sonda` alone, `sonda data` alone
        put(error.format_message())  # type: ignore[attr-defined]
        return 0
    if hasattr(error, "format_message"):
        context = getattr(error, "ctx", None)
        where = getattr(context, "command_path", "sonda")
        said, meant = _mistaken(error, context)
        complain(f"{said}; {meant}see: {where} --help")
        return 2
    if os.environ.get("SONDA_DEBUG"):
        raise error
    from sonda.record.errors import named_line

    complain(f"a defect in Sonda: {named_line(error)}; set SONDA_DEBUG=1 to see where, and report it")
    return 125


def _mistaken(error: Any, context: Any) -> tuple[str, str]:
    """What is wrong with the words of a command, and `did you mean 'run'? ` where a command or an option is near."""
    from sonda.record.errors import near

    said = error.format_message().rstrip(".")
    command = getattr(context, "command", None)
    misspelt = getattr(error, "option_name", "")
    known = [word for parameter in getattr(command, "params", ()) for word in parameter.opts]
    if not misspelt and said.startswith(UNKNOWN):
        misspelt, known = said.removeprefix(UNKNOWN).split("'")[1], list(getattr(command, "commands", ()))
    if not misspelt or misspelt in known:
        return said, ""
    meant = near(misspelt, known)
    return f"there is no {'option' if misspelt[0] == '-' else 'command'} {misspelt!r}", (
        f"did you mean {meant!r}? " if meant else ""
    )


def workload_options(context: typer.Context, workload: str, input: list[str] | None) -> dict[str, str]:
    """The words that a command does not know, as options of its workload.

    Raises SondaError for one that the workload does not know either and that is near to an option of the command.
    """
    from sonda.cli.own_options import own_flags
    from sonda.record.errors import SondaError, near
    from sonda.targets.job import options_of
    from sonda.workloads.catalogue import describe

    unlisted = options_of(context.args, {})
    options = {**unlisted, **({"input": ",".join(input)} if input else {})}
    try:
        describe(workload, options)
    except SondaError:
        describe(workload, {})  # raises what is wrong with the workload itself
        own = own_flags(workload)
        flags = [word for parameter in context.command.params for word in parameter.opts if word.startswith("--")]
        for key in unlisted:
            flag = f"--{key.replace('_', '-')}"
            meant = near(flag, [*flags, *own])
            if meant in flags and flag not in own:
                raise SondaError(f"{workload} has no option {key!r}", f"did you mean {meant!r}?") from None
        raise
    return options


def complain(text: str) -> None:
    hush()
    _print(f"sonda: {text}")


def say(text: str) -> None:
    """Tell somebody who watches what is going on, on one line that goes away; what is `lasting` stays."""
    if getattr(text, "lasting", False):
        hush()
        _print(text)
    else:
        SHOWN.say(text)


def say_each(text: str) -> None:
    """The same for what takes long: without a terminal, lines, so that a log shows how far it is."""
    if sys.stderr.isatty():
        say(text)
    elif LOG.takes(text):
        _print(text)


def _print(text: str) -> None:
    """What is said, line by line, with no character that acts instead of being drawn: names come from outside."""
    from sonda.report.labels import plain

    print("\n".join(plain(line) for line in text.split("\n")), file=sys.stderr, flush=True)


def hush() -> None:
    """Take away what was said, before something that stays is printed."""
    SHOWN.hush()


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
    """A document that is too long to be held, as it comes."""
    for piece in pieces:
        hush()
        sys.stdout.buffer.write(piece)
    sys.stdout.flush()


def open_store() -> Store:
    from sonda.analysis.run_rows import describe_new_runs
    from sonda.record.store import Store

    describe_new_runs()
    return Store()
