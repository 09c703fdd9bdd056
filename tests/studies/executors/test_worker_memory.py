"""Workers keep the memory that they free, and what Dask sets for them stays with them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def test_a_worker_keeps_its_memory_whatever_dasks_nanny_says() -> None:
    """Twenty arrays of 8 MiB, one after the other, in a process with what the nanny sets: page faults."""
    code = (
        "import resource, numpy; from sonda.studies.executors.worker import keep_memory\n"
        "def faults():\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    for _ in range(20): numpy.ones(1 << 20)\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before\n"
        "faults(); print(faults()); keep_memory(); faults(); print(faults())"
    )
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True,
        env=os.environ | {"MALLOC_TRIM_THRESHOLD_": "65536"},
    )  # fmt: skip
    before, after = map(int, child.stdout.split())
    if before == 0:
        pytest.skip("this library of C gives nothing back")
    # 8 MiB are 2,048 pages of 4 KiB, or four of 2 MiB.
    assert before >= 20 * 4 and after < before / 20
