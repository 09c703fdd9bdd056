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
    runs = _find_runs(directory)
    if not runs:
        return None
    chosen = _choose_run(runs, directory, run)
    files = sorted(file for file in runs[chosen] if file.stat().st_size) or sorted(runs[chosen])
    passed_over = sorted(file.name for file in chosen.iterdir() if file.is_file() and file not in runs[chosen])
    unread = [_name(run, directory) for run in runs if run != chosen]
    notes = [
        f"{file.name} is empty: what its host did is missing" for file in sorted(runs[chosen]) if file not in files
    ]
    if unread:
        few = ", ".join(unread[:SHOWN]) + (f" and {len(unread) - SHOWN} more" if len(unread) > SHOWN else "")
        notes.append(f"read is the run {_name(chosen, directory)}; not read: {few} (choose with --run)")
    return Profiles(files, passed_over, notes)


def _find_runs(directory: Path) -> dict[Path, list[Path]]:
    """Files by the directory of their run, oldest run first."""
    runs: dict[Path, list[Path]] = {}
    here = [file for file in directory.iterdir() if file.name.endswith(ENDINGS) and file.is_file()]
    if here:
        return {directory: here}
    for file in directory.glob(INSIDE.get(directory.resolve().name, "**/plugins/profile/*/*.xplane.pb*")):
        if file.name.endswith(ENDINGS) and file.is_file():
            runs.setdefault(file.parent, []).append(file)
    return dict(sorted(runs.items(), key=lambda run: _age(*run)))


def _age(run: Path, files: list[Path]) -> tuple[str, float, str]:
    """Names say when a run was recorded, also of a copied directory; others are older, by the time of their files."""
    return (run.name if TIME.match(run.name) else "", max(file.stat().st_mtime for file in files), str(run))


def _name(run: Path, directory: Path) -> str:
    """`train/2026_11_15_13_06_27`, without the two directories that all have."""
    above = run.relative_to(directory).parts
    return "/".join([word for word in above if word not in ("plugins", "profile")] or [run.name])


def _choose_run(runs: dict[Path, list[Path]], directory: Path, run: str) -> Path:
    if not run:
        return list(runs)[-1]
    matching = [candidate for candidate in runs if run in (candidate.name, _name(candidate, directory))]
    if len(matching) == 1:
        return matching[0]
    names = [_name(candidate, directory) for candidate in (matching or runs)]
    cause = f"several runs of {directory} are called {run!r}" if matching else f"{directory} has no run {run!r}"
    raise SondaError(cause, f"give --run one of {', '.join(names[-SHOWN:])}")
