"""Counters of the kernel and of the processor, of this process."""
