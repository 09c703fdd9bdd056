"""Helpers of `test_help.py` that other tests use too."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import typer

from sonda.cli import app


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and group below, with the words that lead to it."""
    yield path, group
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, (*path, name))


WHOLE = typer.main.get_command(app)


ALL = {" ".join(path): command for path, command in commands(WHOLE)}


def examples(command: Any) -> list[list[str]]:
    """The lines of its help that show the command line, in words; what explains a line stands after a gap."""
    lines = [line.strip().partition("   ")[0] for line in (command.help or "").replace("\b", "").splitlines()]
    return [shlex.split(line) for line in lines if line.startswith("sonda ")]
