"""Completion: the names that a shell offers after Tab, and the words of a line as bash hands them over.

`sonda --install-completion` sets it up for bash, zsh, fish and PowerShell.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from contextlib import redirect_stdout, suppress
from typing import Any

import typer

BREAKS = (":", "=")
"""What bash takes for the end of a word: it hands `sim:maeri-256` over as three, and replaces the last one only."""
ASKED = "_SONDA_COMPLETE"
RECENT = 20
"""Runs whose ids are offered."""
SIMULATORS = ("stonne", "scalesim")
"""What `sonda verify` holds accelerators against."""
DRAWN = ("fish",)
"""What `sonda data make` draws."""


def asked(environment: Mapping[str, str]) -> bool:
    """Whether it is a shell that asks for names, and no user."""
    return ASKED in environment


def answer(line: Callable[[], Any], environment: MutableMapping[str, str]) -> None:
    """Run the command line, which prints the names that fit, a line each; of what bash took apart, the last piece."""
    kept = _mended(environment) if environment.get(ASKED) == "complete_bash" else ""
    said = io.StringIO()
    with redirect_stdout(said), suppress(SystemExit):
        line()
    for name in said.getvalue().splitlines():
        print(name.removeprefix(kept))


def _mended(environment: MutableMapping[str, str]) -> str:
    """Join again what bash took apart; returns the beginning of the word so far that bash would not replace."""
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
    return so_far[: max(so_far.rfind(one) for one in BREAKS) + 1]


def _offered(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """What Typer asks: the names that begin like the word so far. A name that cannot be found out is not offered."""

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


def _accelerators() -> list[str]:
    from sonda.accelerators.description.accelerator import known

    return [f"sim:{name}" for name in known()]


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


def _colours() -> list[str]:
    from sonda.workloads.data.preparation import COLOURS

    return list(COLOURS)


def scales(ctx: typer.Context, incomplete: str) -> list[str]:
    """Those of the study that the line names."""
    from sonda.studies.file.loader import load_study

    named = next(filter(None, (ctx.params.get("reference"), *ctx.args)), "")  # behind an option without its value: args
    return _offered(lambda: load_study(named).scales)(incomplete)


workloads, targets, accelerators = _offered(_workloads), _offered(_targets), _offered(_accelerators)
runs, studies, frameworks, probes = _offered(_runs), _offered(_studies), _offered(_frameworks), _offered(_probes)
precisions, scenarios, backends = _offered(_precisions), _offered(_scenarios), _offered(_backends)
bindings, transfers, mappings, tags = _offered(_bindings), _offered(_transfers), _offered(_mappings), _offered(_tags)
layouts, colours = _offered(_layouts), _offered(_colours)
simulators, drawn = _offered(lambda: SIMULATORS), _offered(lambda: DRAWN)
