"""Builds what is published: the source archive, and from that archive the wheel. `make package` puts both in dist/.

The tree is copied first: setuptools leaves its work beside what it builds, and takes what an earlier build left there.
Nothing is fetched.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
TAKEN = ("pyproject.toml", "PYPI.md", "LICENSE", "src/sonda")
"""What the source archive is made of."""
LEFT = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info")


def build_package(place: Path) -> tuple[Path, Path]:
    """Build both into a directory, where they take the place of older ones; returns the source archive and the wheel.

    Raises CalledProcessError where setuptools fails.
    """
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        tree, unpacked, built = Path(folder, "tree"), Path(folder, "unpacked"), Path(folder, "built")
        for name in TAKEN:
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            if (REPOSITORY / name).is_dir():
                shutil.copytree(REPOSITORY / name, tree / name, ignore=LEFT)
            else:
                shutil.copyfile(REPOSITORY / name, tree / name)
        source = _build("sdist", tree, built)
        with tarfile.open(source) as archive:
            archive.extractall(unpacked, filter="data")
        (inner,) = unpacked.iterdir()
        wheel = _build("wheel", inner, built)
        for old in (*place.glob("sonda_profiler-*.tar.gz"), *place.glob("sonda_profiler-*.whl")):
            old.unlink()
        return Path(shutil.copy(source, place)), Path(shutil.copy(wheel, place))


def _build(what: str, tree: Path, place: Path) -> Path:
    """The file that setuptools' hook for a tree makes (PEP 517)."""
    place.mkdir(exist_ok=True)
    code = f"import sys; from setuptools import build_meta; print(build_meta.build_{what}(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", code, str(place)], cwd=tree, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stderr)
        done.check_returncode()
    return place / done.stdout.splitlines()[-1]


if __name__ == "__main__":
    for path in build_package(Path(sys.argv[1])):
        print(f"{path}   {path.stat().st_size / 1e6:.1f} MB")
