"""Help of a command: the options that a newcomer needs, by the question that they answer; `--help-all` has the rest.

Values are named after what they are (`--steps N`, `--on WHERE`), never by a type of Python's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from typer.core import TyperCommand

GROUPS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "run": {
        "What": ("train", "attempt"),
        "Where": ("on",),
        "How long": ("steps", "seconds", "repeat"),
        "What to count": ("probe",),
        "Output": ("verbose", "tag", "json"),
    },
    "serve": {
        "What": ("weights",),
        "Where": ("on",),
        "How": ("scenario", "find_qps", "latency_bound"),
        "How long": ("queries", "seconds"),
        "What to count": ("probe",),
        "Output": ("verbose", "json"),
    },
    "explore": {
        "What": ("vary", "search"),
        "Where": ("on", "workers"),
        "Output": ("verbose", "rows", "csv", "parquet", "tag", "json"),
    },
    "corun": {
        "Where": ("cores",),
        "How long": ("seconds", "repeat"),
        "What to count": ("probe",),
        "Output": ("verbose", "tag", "json"),
    },
    "study": {
        "What": ("scale", "plan", "show"),
        "Where": ("workers", "on_cluster"),
        "How long": ("repeat", "again"),
        "Output": ("verbose", "page", "json"),
    },
}
"""Options by question, of commands that have more than a newcomer reads; others list all of theirs."""
VALUES = {
    "on": "WHERE", "tag": "NAME", "steps": "N", "fail_above": "PERCENT", "set": "FIELD=VALUE", "vary": "FIELD=VALUES",
    "input": "SHAPE", "search": "PERCENT", "interval": "TIME", "latency_bound": "TIME", "batch_wait": "TIME",
    "idle": "TIME", "older_than": "AGE", "on_cluster": "ADDRESS", "split": "SHARES", "bind": "CORES",
    "image": "WIDTHxHEIGHT", "out": "FOLDER", "checkpoint": "FOLDER", "stonne": "FOLDER", "layers": "MODULE",
    "weights": "RUN", "annotations": "github",
    "tensorboard": "FOLDER", "mlflow": "WHERE", "wandb": "FOLDER",
}  # fmt: skip
"""What the value of an option is called where its own name does not say it."""
NUMBERS = (
    "rows", "threads", "inter_op_threads", "prefetch", "repeat", "queries", "samples", "max_batch", "points_per_batch",
    "qps", "percentile",
)  # fmt: skip
FILES = ("csv", "parquet", "page", "record", "trace", "xplane", "output")
"""Options without a default that would tell what they take."""
ALL_WORDS = "--help-all"


class SondaCommand(TyperCommand):
    """A command whose help is short, and whose `--help-all` says everything."""

    shows_all = False
    """Whether its help is to be complete."""

    def show_all(self) -> None:
        """Let its help be complete."""
        self.shows_all = True

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then options: those that the groups name, and all others with --help-all."""
        params = self.get_params(ctx)
        arguments = [param for param in params if param.param_type_name == "argument"]
        options = {param.name: param for param in params if param.param_type_name == "option"}
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl([(name_argument(param), getattr(param, "help", "") or "") for param in arguments])
        groups = GROUPS.get(self.name or "", {"Options": tuple(options)})
        for title, names in groups.items():
            with formatter.section(title):
                formatter.write_dl([describe_option(options.pop(name)) for name in names if name in options])
        options.pop("help", None)
        if options and self.shows_all:
            with formatter.section("All others"):
                formatter.write_dl([describe_option(option) for option in options.values()])
        elif options:
            with formatter.section("More"):
                formatter.write_dl([(ALL_WORDS, f"Show the other {len(options)} options too.")])


def name_argument(argument: Any) -> str:
    """What an argument is called: `WHAT`."""
    return argument.metavar or str(argument.name).upper()


def describe_option(option: Any) -> tuple[str, str]:
    """An option with the name of its value, and what it does with its default."""
    names = ", ".join(sorted(option.opts, key=len))
    value = "" if option.is_flag or option.count else f" {name_value(option)}"
    default = option.default
    known = default not in (None, "", 0, 0.0, False) and not option.multiple and not option.is_flag
    shown = f" [{default}]" if known and option.show_default and not callable(default) else ""
    more = f" / {', '.join(option.secondary_opts)}" if option.secondary_opts else ""
    return f"{names}{more}{value}", f"{option.help or ''}{shown}"


def name_value(option: Any) -> str:
    """What the value of an option is called: `N`, `FILE`, `WHERE`."""
    if option.name in VALUES:
        return VALUES[option.name]
    if option.name == "seconds":
        return "SECONDS"
    if option.name in NUMBERS or (isinstance(option.default, int | float) and not option.is_flag):
        return "N"
    return "FILE" if option.name in FILES else str(option.name).upper()
