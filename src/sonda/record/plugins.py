"""What other packages add to Sonda through entry points: found by name, imported when it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from importlib import metadata
from typing import Any

from sonda.record.errors import SondaError, named_line

WORKLOADS, PROBES, ACCELERATORS = "sonda.workloads", "sonda.probes", "sonda.accelerators"
ENGINES, RULES = "sonda.engines", "sonda.rules"
NOUNS = {WORKLOADS: "workload", PROBES: "probe", ACCELERATORS: "accelerator", ENGINES: "engine", RULES: "rule"}
"""The groups of entry points, and what an entry of each adds."""


def plugin_entries(group: str) -> dict[str, metadata.EntryPoint]:
    """The entries of a group by name, in the order of the alphabet. Nothing is imported."""
    return dict(_entries(group, metadata.entry_points, tuple(sys.path)))


@lru_cache(maxsize=32)
def _entries(group: str, read: Callable[..., Any], path: tuple[str, ...]) -> dict[str, metadata.EntryPoint]:
    """Read once for each `path`: every package's files are opened, which takes longer than to summarise a run."""
    return {entry.name: entry for entry in sorted(read(group=group), key=lambda entry: entry.name)}


def import_entry(entry: metadata.EntryPoint) -> Any:
    """What an entry names. Raises SondaError, one line, where importing it fails."""
    try:
        return entry.load()
    except Exception as error:
        raise entry_error(entry, error) from error


def call_entry(entry: metadata.EntryPoint, *arguments: Any) -> Any:
    """What an entry gives when it is called. Raises SondaError, one line, where that fails; its own pass."""
    function = import_entry(entry)
    try:
        return function(*arguments)
    except SondaError:
        raise
    except Exception as error:
        raise entry_error(entry, error) from error


def entry_error(entry: metadata.EntryPoint, error: Exception) -> SondaError:
    """The SondaError for an entry that raised this error."""
    noun = NOUNS.get(entry.group, "part")
    return SondaError(
        f"the {noun} {entry.name} of {entry.value} fails: {named_line(error)}",
        "mend or uninstall the package that adds it",
    )
