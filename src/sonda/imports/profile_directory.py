"""TensorBoard's log directories: which of the profiles in them are imported.

TensorFlow and JAX write `plugins/profile/<run>/<host>.xplane.pb` below the directory they were given; a run is named by
the time it was recorded. All hosts of one run belong together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sonda.record.errors import SondaError

ENDINGS = (".xplane.pb", ".xplane.pb.gz")
TIME = re.compile(r"\d{4}(?:_\d\d){5}")
INSIDE = {"plugins": "profile/*/*.xplane.pb*", "profile": "*/*.xplane.pb*"}
"""Where the profiles are below these directories of a log directory, which are named in its stead."""
SHOWN = 8
"""Runs that an error names."""


@dataclass(frozen=True)
class Profiles:
    """The files of one run, by host, and what the directory holds beside it."""

    files: list[Path]
    passed_over: list[str]
    notes: list[str]


def find_profiles(directory: Path, run: str = "") -> Profiles | None:
    """The profiles of the run with this name, or of the newest; None where the directory holds none.

    Raises SondaError for a run that is not there, or whose name several have.
    """
    runs = _runs(directory)
    if not runs:
        return None
    chosen = _chosen(runs, directory, run)
    files = sorted(one for one in runs[chosen] if one.stat().st_size) or sorted(runs[chosen])
    passed_over = sorted(one.name for one in chosen.iterdir() if one.is_file() and one not in runs[chosen])
    others = [_name(one, directory) for one in runs if one != chosen]
    notes = [f"{one.name} is empty: what its host did is missing" for one in sorted(runs[chosen]) if one not in files]
    if others:
        few = ", ".join(others[:SHOWN]) + (f" and {len(others) - SHOWN} more" if len(others) > SHOWN else "")
        notes.append(f"read is the run {_name(chosen, directory)}; not read: {few} (choose with --run)")
    return Profiles(files, passed_over, notes)


def _runs(directory: Path) -> dict[Path, list[Path]]:
    """Files by the directory of their run, oldest run first."""
    found: dict[Path, list[Path]] = {}
    here = [one for one in directory.iterdir() if one.name.endswith(ENDINGS) and one.is_file()]
    if here:
        return {directory: here}
    for one in directory.glob(INSIDE.get(directory.resolve().name, "**/plugins/profile/*/*.xplane.pb*")):
        if one.name.endswith(ENDINGS) and one.is_file():
            found.setdefault(one.parent, []).append(one)
    return dict(sorted(found.items(), key=lambda run: _age(*run)))


def _age(run: Path, files: list[Path]) -> tuple[str, float, str]:
    """Names say when a run was recorded, also of a copied directory; others are older, by the time of their files."""
    return (run.name if TIME.match(run.name) else "", max(one.stat().st_mtime for one in files), str(run))


def _name(run: Path, directory: Path) -> str:
    """`train/2026_11_15_13_06_27`, without the two directories that all have."""
    above = run.relative_to(directory).parts
    return "/".join([word for word in above if word not in ("plugins", "profile")] or [run.name])


def _chosen(runs: dict[Path, list[Path]], directory: Path, run: str) -> Path:
    if not run:
        return list(runs)[-1]
    found = [one for one in runs if run in (one.name, _name(one, directory))]
    if len(found) == 1:
        return found[0]
    names = [_name(one, directory) for one in (found or runs)]
    cause = f"several runs of {directory} are called {run!r}" if found else f"{directory} has no run {run!r}"
    raise SondaError(cause, f"give --run one of {', '.join(names[-SHOWN:])}")
