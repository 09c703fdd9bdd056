"""Where it runs: the CPU, a command; the child process that runs a workload."""
