"""Built-in workloads in PyTensor; imported only in the process that runs one."""
