"""Joules: RAPL, NVML, models without a sensor, and the process that samples them."""
