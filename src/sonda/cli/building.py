"""Building the command line: Typer reads the signature of every command, which is most of the time that starting takes.

So only the command that is asked for is built whole; of the others there are the name and the help.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import typer


def built(app: typer.Typer, words: Sequence[str]) -> Any:
    """The command line for these words, which Typer can run; where they name no command, it can list all of them."""
    return typer.main.get_command(_lean(app, words[0] if words else ""))


def _lean(app: typer.Typer, wanted: str) -> typer.Typer:
    lean = copy.copy(app)
    lean.registered_commands = [one if one.name == wanted else _bare(one) for one in app.registered_commands]
    lean.registered_groups = [copy.copy(one) for one in app.registered_groups]
    for group in lean.registered_groups:
        if group.name != wanted and group.typer_instance is not None:
            group.typer_instance = _lean(group.typer_instance, "")
    return lean


def _bare(info: Any) -> Any:
    """The same command without its options and arguments."""
    found = copy.copy(info)
    found.callback = _silent(info.callback)
    return found


def _silent(callback: Callable[..., Any]) -> Callable[[], None]:
    def nothing() -> None:
        """Replaced below."""

    nothing.__doc__, nothing.__name__ = callback.__doc__, callback.__name__
    return nothing
