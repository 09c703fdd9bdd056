"""The command line itself: the application, options that several commands share, and how it speaks and fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
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
    if words[:1] in (["run"], ["energy"]) and "--" in words:
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


def write_pieces(pieces: Iterable[bytes]) -> None:
    """A document that is too long to be held, as it comes."""
    for piece in pieces:
        sys.stdout.buffer.write(piece)
    sys.stdout.flush()


def open_store() -> Store:
    from sonda.record.store import Store

    return Store()
