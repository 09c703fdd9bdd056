"""Counters of the kernel and of the processor: perf events, Top-Down tables, perf stat, PAPI."""
