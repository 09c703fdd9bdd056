"""A workload in a process of this machine."""
