"""Help about a workload: `sonda run mlp --help` lists the options that are mlp's own below those of the command."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

COMMANDS = ("run", "serve", "explore", "corun", "verify")
"""Those that take a workload and its options."""
WIDTH = 78


def own_options(words: Sequence[str]) -> str:
    """The options of the workload that these words name, with what they are unless given; '' where they name none."""
    if not words or words[0] not in COMMANDS or "--help" not in words:
        return ""
    from sonda.workloads.catalogue import describe, names

    named = next((word for word in words[1:] if word in names()), "")
    if not named:
        return ""
    known = describe(named, {}).parameters()
    lines = [f"  --{name.replace('_', '-')} {_written(value)}" for name, value in known.items()]
    if named == "dlrm":
        from sonda.workloads.recommender import presets

        lines.append(fill(f"--preset: {', '.join(presets())}", WIDTH, initial_indent="  ", subsequent_indent="    "))
    return "\n".join([f"Options of {named}, with what they are unless given:", *lines])


def _written(value: object) -> str:
    """A value as one types it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
