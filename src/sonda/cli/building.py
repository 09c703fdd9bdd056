"""Building the command line: Typer reads the signature of every command, which is most of the time that starting takes.

So only the command that is asked for is built whole; of the others there are the name and the help.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import typer


def build_command(app: typer.Typer, words: Sequence[str]) -> Any:
    """The command line for these words. It has the named command whole, and name and help of all others."""
    return typer.main.get_command(_reduce_app(app, words[0] if words else ""))


def _reduce_app(app: typer.Typer, wanted: str) -> typer.Typer:
    lean = copy.copy(app)
    lean.registered_commands = [
        info if info.name == wanted else _strip_parameters(info) for info in app.registered_commands
    ]
    lean.registered_groups = [copy.copy(info) for info in app.registered_groups]
    for group in lean.registered_groups:
        if group.name != wanted and group.typer_instance is not None:
            group.typer_instance = _reduce_app(group.typer_instance, "")
    return lean


def _strip_parameters(info: Any) -> Any:
    """A copy of a command without its options and arguments."""
    stripped = copy.copy(info)
    stripped.callback = _empty_callback(info.callback)
    return stripped


def _empty_callback(callback: Callable[..., Any]) -> Callable[[], None]:
    def nothing() -> None:
        """Replaced below."""

    nothing.__doc__, nothing.__name__ = callback.__doc__, callback.__name__
    return nothing
