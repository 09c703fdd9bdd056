"""Helpers of `test_jax_layers.py` that other tests use too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from time import perf_counter_ns as now

import numpy as np

from places import TESTS
from sonda.frameworks import INJECT
from sonda.frameworks.reconstruction.assembly import assemble
from sonda.record.spans import Spans
from sonda.targets.profiles.jax import with_jitted_layers

PROGRAMS = TESTS / "frameworks" / "installed" / "programs"


class Ran:
    def __init__(self, place: Path, program: str, *arguments: str) -> None:
        place.mkdir()
        settings = {"directory": str(place), "count": True, "longest": 1 << 62}
        environment = {
            **os.environ, "JAX_PLATFORMS": "cpu", "PJRT_NPROC": "1", "PYTHONPATH": str(INJECT),
            "SONDA_COLLECT": json.dumps(settings), "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        }  # fmt: skip
        begin = now()
        command = [sys.executable, str(PROGRAMS / program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        assert [path.read_text() for path in place.glob("*.failure")] == []
        self.said = done.stderr
        self.assembly = assemble(place, begin, now())
        self.spans, self.notes = with_jitted_layers(self.assembly, self.assembly.spans, place, begin)

    def words(self, column: str, **which: str) -> list[str]:
        return [str(word) for word in self.spans.words(column).decoded()[self.spans.where(**which)]]

    def layers(self, **which: str) -> set[tuple[str, str]]:
        which = {"kind": "layer", **which}
        return set(zip(self.words("path", **which), self.words("direction", **which), strict=True))

    def counted(self, name: str) -> dict[tuple[str, str], float]:
        """FLOPs of operations of this name by phase and layer, of all counted steps."""
        spans = self.spans
        flops, parent = spans.metric("flops", "nominal"), spans.number("parent")
        kinds, names, paths = (spans.words(column).decoded() for column in ("kind", "name", "path"))
        found: Counter[tuple[str, str]] = Counter()
        for row in np.flatnonzero(spans.where(kind="op", name=name)):
            phase = int(parent[row])
            while kinds[phase] != "phase":
                phase = int(parent[phase])
            found[names[phase], paths[parent[row]]] += flops[row]
        return dict(found)


def steps(spans: Spans, part: str) -> Counter[str]:
    """Steps of a part by pass."""
    parent = spans.number("parent")
    rows = np.flatnonzero(spans.where(kind="step"))
    mine = spans.words("name").decoded()[parent[rows]] == part
    return Counter(spans.words("pass").decoded()[rows[mine]].tolist())
