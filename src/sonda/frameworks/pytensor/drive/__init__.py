"""Built-in workloads in PyTensor."""
