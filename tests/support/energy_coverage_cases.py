"""Helpers of `test_energy_coverage.py` that other tests use too."""

from __future__ import annotations

from energy_summary_cases import BOARD, rising

REST = "disks, network, fans, power supply"


NO_COUNTER = {
    "what": "NVML cuda:1 energy", "reason": "refused (Not Supported)", "covers": BOARD, "device": "cuda:1",
    "sensor": "energy",
}  # fmt: skip


PACKAGE = rising("package-0 energy", "cpu", [100] * 6)
"""100 W: 400 J in the 4 s of the program."""
