"""The options that are a workload's own: `sonda run mlp --help` lists mlp's below those of the command, and a shell
completes `sonda run mlp --b`.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from sonda.cli.help import SondaCommand

COMMANDS = ("run", "serve", "explore", "corun", "verify")
"""Those that take a workload and its options."""
WIDTH = 78


def describe_own_options(words: Sequence[str]) -> str:
    """The options of the workload that these words name, with their defaults; '' where they name no workload."""
    if not words or words[0] not in COMMANDS or "--help" not in words:
        return ""
    from sonda.targets.job import option_text
    from sonda.workloads.catalogue import describe, workload_names

    named = next((word for word in words[1:] if word in workload_names()), "")
    if not named:
        return ""
    known = describe(named, {}).parameters()
    lines = [f"  {_flag(name)} {option_text(value)}" for name, value in known.items()]
    if named == "dlrm":
        from sonda.workloads.networks.dlrm import presets

        lines.append(fill(f"--preset: {', '.join(presets())}", WIDTH, initial_indent="  ", subsequent_indent="    "))
    return "\n".join([f"Options of {named}, with their defaults:", *lines])


class WorkloadCommand(SondaCommand):
    """A command that takes a workload and its options."""

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The command's own options that begin like the word so far, and those of the workload that was named."""
        items = super().shell_complete(ctx, incomplete)
        if not incomplete.startswith("-"):
            return items
        item_of = type(super().shell_complete(ctx, "--help")[0])  # Typer's own, which it does not export
        offered = {item.value for item in items}
        return items + [
            item_of(flag) for flag in find_own_flags(str(ctx.params.get("workload") or ctx.params.get("subject") or ""))
            if flag.startswith(incomplete) and flag not in offered
        ]  # fmt: skip


def find_own_flags(workload: str) -> list[str]:
    """The options of a workload as a user types them; none for an unknown workload."""
    from sonda.record.errors import SondaError
    from sonda.workloads.catalogue import describe

    try:
        known = describe(workload, {}).parameters()
    except SondaError:
        return []
    return [*map(_flag, known), *(["--preset"] if workload == "dlrm" else [])]


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
