"""Profiles of a framework's own profiler, read as kernels and layers of a run."""
