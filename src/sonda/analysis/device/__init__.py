"""A GPU's side of a run: kernels, when the device was busy, the critical path, counters, rooflines, stalls."""
