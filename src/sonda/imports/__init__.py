"""Files of other tools become runs: traces, counters of kernels, timelines, counts of programs."""
