"""Nsight Compute's tables and reports."""
