"""A GPU's counters by Nsight Compute: which metrics a chip has, how it is called, which launches it counted."""
