"""Counters of the processor and of the operating system, by phase, by layer, over time and from outside."""
