"""The frameworks in which a workload can run, and who runs it there."""
