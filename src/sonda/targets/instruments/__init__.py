"""What reads a run beside the clock: counters, callgrind, Nsight Compute, energy, second sources, plug-ins."""
