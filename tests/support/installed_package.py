"""Sonda as pip leaves it: an environment with the wheel and the packages that it names, which the tests lend it."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

NO_EXTRA = {"extra": ""}


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and a directory outside of the clone in which its commands run."""

    place: Path
    desk: Path

    @property
    def site(self) -> Path:
        """Where its packages are."""
        return self.place / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"

    def run(self, command: str, *words: str) -> subprocess.CompletedProcess[str]:
        """One of its commands, with a store of its own and nothing of the tests' environment."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SONDA"))}
        return subprocess.run(
            [str(self.place / "bin" / command), *words], cwd=self.desk, capture_output=True, text=True, timeout=300,
            env={**inherited, "SONDA_HOME": str(self.desk / "store"), "COLUMNS": "100", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip


def install_wheel(wheel: Path, place: Path) -> Environment:
    """A new environment under `place` with this wheel and, as links, every package that it needs; no extra."""
    environment = Environment(place / "environment", place / "desk")
    environment.desk.mkdir(parents=True)
    venv.create(environment.place, symlinks=True)
    interpreter = str(environment.place / "bin" / "python")
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", interpreter, "install", "--quiet", "--no-index", "--no-deps",
         "--no-compile", "--disable-pip-version-check", str(wheel)], check=True,
    )  # fmt: skip
    (installed,) = metadata.distributions(path=[str(environment.site)])
    for distribution in _needed(installed, set()):
        for name in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            link = environment.site / name
            if not link.exists():
                link.symlink_to(Path(str(distribution.locate_file(name))))
    return environment


def _needed(distribution: metadata.Distribution, known: set[str]) -> Iterator[metadata.Distribution]:
    """All that this one needs, and what they need in turn."""
    for requirement in map(Requirement, distribution.requires or ()):
        if requirement.name in known or (requirement.marker and not requirement.marker.evaluate(NO_EXTRA)):
            continue
        known.add(requirement.name)
        needed = metadata.distribution(requirement.name)
        yield needed
        yield from _needed(needed, known)
