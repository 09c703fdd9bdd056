"""The workloads in PyTorch: one file for each family, and the task they share. Imported only when one is built."""
