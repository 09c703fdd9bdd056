"""A GPU's kernels, counters and roofline."""
