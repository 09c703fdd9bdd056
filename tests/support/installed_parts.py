"""A package as if it were installed: its modules, and the metadata that an installer would write."""

from __future__ import annotations

import os
import shutil
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def lay_down(package: Path, place: Path) -> Path:
    """Copy what the package's pyproject lists to `place`, with its entry points; returns `place`."""
    project = tomllib.loads((package / "pyproject.toml").read_text())
    for name in project["tool"]["setuptools"]["packages"]:
        shutil.copytree(package / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    about = project["project"]
    metadata = place / f"{about['name'].replace('-', '_')}-{about['version']}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: {about['version']}\n")
    groups = about.get("entry-points", {})
    lines = [f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
             for group, entries in groups.items()]  # fmt: skip
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    return place


@contextmanager
def importable(place: Path) -> Iterator[None]:
    """The place on the path of this process and of its children; modules imported from there are forgotten after."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(place), *([before] if before else [])])
    sys.path.insert(0, str(place))
    try:
        yield
    finally:
        sys.path.remove(str(place))
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
        for name in [name for name, module in sys.modules.items() if _lies_in(module, place)]:
            del sys.modules[name]


def _lies_in(module: object, place: Path) -> bool:
    file = getattr(module, "__file__", None)
    return bool(file) and Path(file).is_relative_to(place)
