"""Completion: the names that a shell offers after Tab, and the words of a line as bash hands them over.

`sonda --install-completion` sets it up for bash, zsh, fish and PowerShell.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import typer

BREAKS = (":", "=")
"""Where bash ends a word: it passes `sim:maeri-256` as three words, and replaces the last one only."""
ASKED = "_SONDA_COMPLETE"
RECENT = 20
"""Runs whose ids are offered."""
SIMULATORS = ("stonne", "scalesim")
"""What `sonda verify` holds accelerators against."""
DRAWN = ("fish",)
"""What `sonda data make` draws."""


def is_asked(environment: Mapping[str, str]) -> bool:
    """Whether a shell asks for names to complete."""
    return ASKED in environment


def answer_shell(line: Callable[[], Any], environment: MutableMapping[str, str]) -> None:
    """Print the names that fit, a line each, as the command line gives them. For bash it prints the last piece only."""
    untouched = _rejoin_words(environment) if environment.get(ASKED) == "complete_bash" else ""
    output = io.StringIO()
    with redirect_stdout(output), suppress(SystemExit):
        line()
    for name in output.getvalue().splitlines():
        print(name.removeprefix(untouched))


def _rejoin_words(environment: MutableMapping[str, str]) -> str:
    """Join the words that bash split; returns the beginning of the word so far that bash would not replace."""
    words, at = environment.get("COMP_WORDS", "").split("\n"), int(environment.get("COMP_CWORD", "0"))
    joined: list[str] = []
    place = at
    for number, word in enumerate(words):
        if len(joined) > 1 and (word in BREAKS or joined[-1].endswith(BREAKS)) and number <= at:
            joined[-1] += word
            place -= 1
        else:
            joined.append(word)
    environment["COMP_WORDS"], environment["COMP_CWORD"] = "\n".join(joined), str(place)
    so_far = joined[place] if place < len(joined) else ""
    return so_far[: max(so_far.rfind(mark) for mark in BREAKS) + 1]


def _offer(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """A function for Typer that gives the names that begin like the word so far; none where `names` fails."""

    def complete(incomplete: str) -> list[str]:
        from sonda.record.errors import SondaError

        try:
            return [name for name in names() if name.startswith(incomplete)]
        except (SondaError, OSError):
            return []

    return complete


def _workloads() -> list[str]:
    from sonda.workloads.catalogue import workload_names

    return workload_names()


def _runnable() -> list[str]:
    """Workloads, and scripts of this folder."""
    return [*_workloads(), *sorted(str(path) for path in Path().glob("*.py"))]


def _accelerators() -> list[str]:
    from sonda.accelerators.description.accelerator import known_accelerators

    return [f"sim:{name}" for name in known_accelerators()]


def _targets() -> list[str]:
    from sonda.targets.target import MODES

    return ["cpu", "cpu/", "cuda:0", *_accelerators(), *(f"{mode}=" for mode in MODES)]


def _runs() -> list[str]:
    from sonda.record.store import Store, identity_of

    store = Store()
    recent = [identity_of(name) for name in store.names()[:RECENT]]
    return ["last", *store.tag_names(), *store.shorts(recent)]


def _studies() -> list[str]:
    from sonda.studies.file.loader import published_studies

    return list(published_studies())


def _frameworks() -> list[str]:
    from sonda.targets.adapters.registry import FRAMEWORKS

    return list(FRAMEWORKS)


def _probes() -> list[str]:
    from sonda.targets.instruments.registry import probe_names

    return probe_names()


def _precisions() -> list[str]:
    from sonda.targets.job import PRECISIONS

    return list(PRECISIONS)


def _scenarios() -> list[str]:
    from sonda.targets.serving.traffic import SCENARIOS

    return list(SCENARIOS)


def _backends() -> list[str]:
    from sonda.targets.serving.traffic import BACKENDS

    return list(BACKENDS)


def _bindings() -> list[str]:
    from sonda.targets.job import BINDINGS

    return list(BINDINGS)


def _transfers() -> list[str]:
    from sonda.targets.training.supervisor import TRANSFERS

    return list(TRANSFERS)


def _mappings() -> list[str]:
    from sonda.accelerators.mapping.placement import MAPPINGS

    return list(filter(None, MAPPINGS))


def _tags() -> list[str]:
    from sonda.record.store import Store

    return Store().tag_names()


def _layouts() -> list[str]:
    from sonda.workloads.data.layouts import LAYOUTS

    return ["auto", *LAYOUTS]


def _documents() -> list[str]:
    from sonda.report.schemas import document_kinds

    return [kind.replace(" ", "-") for kind in document_kinds()]


def _colours() -> list[str]:
    from sonda.workloads.data.preparation import COLOURS

    return list(COLOURS)


def scales(ctx: typer.Context, incomplete: str) -> list[str]:
    """The scales of the study that the line names."""
    from sonda.studies.file.loader import load_study

    named = next(filter(None, (ctx.params.get("reference"), *ctx.args)), "")  # behind an option without its value: args
    return _offer(lambda: load_study(named).scales)(incomplete)


workloads, targets, accelerators = _offer(_workloads), _offer(_targets), _offer(_accelerators)
runs, studies, frameworks, probes = _offer(_runs), _offer(_studies), _offer(_frameworks), _offer(_probes)
precisions, scenarios, backends = _offer(_precisions), _offer(_scenarios), _offer(_backends)
bindings, transfers, mappings, tags = _offer(_bindings), _offer(_transfers), _offer(_mappings), _offer(_tags)
layouts, colours, runnable = _offer(_layouts), _offer(_colours), _offer(_runnable)
simulators, drawn, documents = _offer(lambda: SIMULATORS), _offer(lambda: DRAWN), _offer(_documents)
