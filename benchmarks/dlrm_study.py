"""The study of DLRM on a hybrid accelerator, from the command line to its table: the 13 workloads, and all variants."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from time import perf_counter

from benchmarks.bar import Bar

LIMIT = 60.0
"""Seconds."""
WORKLOADS = 13


def run() -> list[Bar]:
    """Carry the study out twice in fresh processes and stores: the published variant alone, then everything."""
    alone, points = _seconds("{next(iter(study.variants)): {}}")
    whole, all_points = _seconds("study.variants")
    for name, seconds, count in (("as published", alone, points), ("all variants", whole, all_points)):
        print(f"{name:14} {count:4} points {seconds:6.1f} s, {1e3 * seconds / count:4.0f} ms a point, start included")
    return [
        _bar(f"study dlrm-accelerator, {WORKLOADS} workloads as published", alone, points == WORKLOADS),
        _bar("study dlrm-accelerator, all variants", whole, all_points > WORKLOADS),
    ]


def _bar(promise: str, seconds: float, complete: bool) -> Bar:
    passed = seconds <= LIMIT and complete
    return Bar(promise, f"{seconds:.1f} s, bar {LIMIT:g} s", "PASS" if passed else "FAIL")


def _seconds(variants: str) -> tuple[float, int]:
    """Wall time of a process that carries out these variants of the study, and how many points it simulated."""
    program = textwrap.dedent(f"""\
        import dataclasses
        from sonda.analysis.run_summary import summarise
        from sonda.record.store import Store
        from sonda.studies.engine.runner import run_study
        from sonda.studies.file.loader import load_study
        from sonda.studies.engine.measurement import measuring
        from sonda.studies.results.table import study_table
        study = load_study("dlrm-accelerator")
        study = dataclasses.replace(study, variants={variants})
        store = Store()
        result = run_study(study, store, measuring(store), lambda state: None)
        study_table(result, summarise)
        print(result.measured)
        """)
    with tempfile.TemporaryDirectory() as root:
        begin = perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", program], env=os.environ | {"SONDA_HOME": str(Path(root) / "runs")},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return perf_counter() - begin, int(done.stdout)
