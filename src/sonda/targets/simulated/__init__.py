"""Workloads on accelerators that exist as a description: one run, explorations, what-ifs."""
