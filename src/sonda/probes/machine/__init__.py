"""The machine: processor, caches, GPUs, versions, what this process may use, what others do meanwhile."""
