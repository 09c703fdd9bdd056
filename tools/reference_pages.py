"""The reference pages of the documentation, made from the code each time that the site is built.

A hook of mkdocs (mkdocs.yml): it adds reference/commands.md from the options of the command line, and
reference/python.md from the docstrings of what `sonda` exports. Neither is kept, so neither can differ from the code.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from types import ModuleType
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from typer.main import get_command

import sonda
from sonda.cli import app
from sonda.cli.help import GROUPS, describe_option, name_argument
from sonda.workloads.catalogue import describe, workload_names

COMMANDS, PYTHON = "reference/commands.md", "reference/python.md"
WIDTH = 80
"""Characters of a signature in one line; a longer one has a line for each parameter."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages to the site. mkdocs calls it when it has listed the files of docs."""
    files.append(File.generated(config, COMMANDS, content=write_commands()))
    files.append(File.generated(config, PYTHON, content=write_python()))
    return files


# ---- the command line -----------------------------------------------------------------------------------------------


def write_commands() -> str:
    """Every command with its arguments and all of its options, as Markdown."""
    lines = [
        "# Commands",
        "",
        "Made from the code. On the screen: `sonda COMMAND --help`, and `--help-all` for all options.",
        "",
    ]
    for name, command in list_commands(get_command(app)):
        lines += [f"## sonda {name}", "", *write_help(command.help or "")]
        arguments = [param for param in command.params if param.param_type_name == "argument"]
        lines += write_table("argument", [(name_argument(param), param.help or "") for param in arguments])
        lines += write_table("option", list_options(name, command))
    lines += [
        "## Options of workloads",
        "",
        "Options behind the name of a built-in workload, with their default values.",
        "",
    ]
    for name in workload_names():
        defaults = describe(name, {}).parameters().items()
        rows = [(f"--{option.replace('_', '-')}", str(value)) for option, value in defaults]
        lines += write_table(name, rows, "default")
    return "\n".join(lines)


def list_commands(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every command below a group, with the words that lead to it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from list_commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


def list_options(name: str, command: Any) -> list[tuple[str, str]]:
    """Every option of a command: those of its short help first, by question, then the others."""
    options = {param.name: param for param in command.params if param.param_type_name == "option"}
    options.pop("help", None)
    first = [option for names in GROUPS.get(name, {}).values() for option in names if option in options]
    return [describe_option(options[option]) for option in dict.fromkeys([*first, *options])]


def write_help(text: str) -> list[str]:
    """Paragraphs of a command's help; its examples become a block."""
    lines = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text.replace("\b", ""))):
        words = paragraph.strip("\n")
        examples = words.lstrip().startswith("sonda ")
        lines += ["```", *words.splitlines(), "```", ""] if examples else [escape(words), ""]
    return lines


def write_table(head: str, rows: Sequence[tuple[str, str]], second: str = "what it does") -> list[str]:
    """A table of names and what they mean."""
    if not rows:
        return []
    return [f"| {head} | {second} |", "|---|---|", *(f"| `{name}` | {escape(text)} |" for name, text in rows), ""]


def escape(text: str) -> str:
    """Plain text as Markdown; only words in backticks look different."""
    parts = " ".join(text.split()).split("`")
    for place in range(0, len(parts), 2):
        parts[place] = re.sub(r"([\\*_\[\]|])", r"\\\1", parts[place]).replace("<", "&lt;")
    return "`".join(parts)


# ---- Python ---------------------------------------------------------------------------------------------------------


def write_python() -> str:
    """Everything that `sonda` exports, with signatures and docstrings, as Markdown."""
    lines = ["# Python", "", "Made from the code. `import sonda` loads nothing until you use it.", ""]
    for name in list_exports():
        lines += [f"## sonda.{name}", "", *write_object(getattr(sonda, name), f"sonda.{name}")]
    return "\n".join(lines)


def list_exports() -> list[str]:
    """What `sonda` exports, functions first."""
    names = [name for name in sonda.__all__ if not name.startswith("_")]
    return sorted(names, key=lambda name: (not inspect.isfunction(getattr(sonda, name)), name))


def write_object(thing: Any, name: str) -> list[str]:
    """A function, a class with its public members, or a module with what it exports."""
    text = write_docstring(thing)
    if isinstance(thing, ModuleType):
        for member in thing.__all__:
            text += [f"### {name}.{member}", "", *write_object(getattr(thing, member), f"{name}.{member}")]
    elif inspect.isclass(thing):
        for member, value in vars(thing).items():
            if not member.startswith("_") and (description := write_member(member, value)):
                text += description
    else:
        text = ["```python", f"{name}{write_signature(thing)}", "```", "", *text]
    return text


def write_member(name: str, value: Any) -> list[str]:
    """A method or a property of a class; [] for what is neither."""
    if isinstance(value, property | cached_property):
        function = value.fget if isinstance(value, property) else value.func
        return [f"**`{name}`**", "", *write_docstring(function)]
    if isinstance(value, classmethod | staticmethod):
        value = value.__func__
    return [f"**`{name}{write_signature(value)}`**", "", *write_docstring(value)] if inspect.isfunction(value) else []


class Unquoted(str):
    """An annotation that a signature shows without quotes."""

    __repr__ = str.__str__


def write_signature(function: Any) -> str:
    """Parameters and result, without `self`."""
    signature = inspect.signature(function)
    parameters = [
        parameter.replace(annotation=Unquoted(parameter.annotation))
        for parameter in signature.parameters.values() if parameter.name not in ("self", "cls")
    ]  # fmt: skip
    text = str(signature.replace(parameters=parameters, return_annotation=Unquoted(signature.return_annotation)))
    if len(text) <= WIDTH or not parameters:
        return text
    result = text.rpartition(")")[2]
    kinds = [str(signature.replace(parameters=[one], return_annotation=signature.empty))[1:-1] for one in parameters]
    star = next((place for place, one in enumerate(parameters) if one.kind is one.KEYWORD_ONLY), None)
    if star is not None and not any(one.kind is one.VAR_POSITIONAL for one in parameters):
        kinds[star] = kinds[star].removeprefix("*, ")
        kinds.insert(star, "*")
    return "(\n" + "".join(f"    {kind.removeprefix('*, ')},\n" for kind in kinds) + f"){result}"


def write_docstring(thing: Any) -> list[str]:
    """Paragraphs of a docstring; lines that begin with >>> become a block of Python."""
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", inspect.getdoc(thing) or ""):
        if paragraph.startswith(">>>"):
            code = [re.sub(r"\s*# doctest:.*", "", line)[4:] for line in paragraph.splitlines()]
            lines += ["```python", *code, "```", ""]
        else:
            lines += [paragraph, ""]
    return lines
