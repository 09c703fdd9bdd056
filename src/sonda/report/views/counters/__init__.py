"""Counters of the processor, of the operating system and of a simulated cache."""
