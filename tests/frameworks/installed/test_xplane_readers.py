"""Our reader of XSpace files and those of JAX and TensorFlow see the same events."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from sonda.imports.xplane.file import profile_events
from sonda.report.trace.xplane import write_xplane
from sonda.targets.imported.launcher import import_files
from xplane_examples import H200, PROFILES

FILES = [H200, *sorted(PROFILES.glob("*.xplane.pb.gz"))]


def content(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.partition(".")[0])
def test_events_and_times_are_those_of_jax(path: Path) -> None:
    profiler = pytest.importorskip("jax.profiler")
    theirs = [
        (plane.name, line.name, event.name, int(event.start_ns), round(event.duration_ns))
        for plane in profiler.ProfileData.from_serialized_xspace(content(path)).planes
        for line in plane.lines
        for event in line.events
    ]
    ours = [
        (plane.name, line.name, event.name, event.start_ns, event.duration_ns)
        for plane, line, event in profile_events(path)
    ]
    assert len(ours) == len(theirs) > 100
    for mine, other in zip(ours, theirs, strict=True):
        assert mine[:3] == other[:3]
        assert abs(mine[3] - other[3]) <= 1 and abs(mine[4] - other[4]) <= 1


def test_what_we_write_is_read_by_jax(tmp_path: Path) -> None:
    profiler = pytest.importorskip("jax.profiler")
    run = import_files([H200], tmp_path / "runs")
    path = write_xplane(tmp_path / "a.xplane.pb", run)
    found = profiler.ProfileData.from_file(str(path))
    events = [event for plane in found.planes for line in plane.lines for event in line.events]
    assert len(events) == len(run.spans)
    assert sorted(dict(event.stats)["step_num"] for event in events if event.name == "train") == [0, 1, 2, 3]
