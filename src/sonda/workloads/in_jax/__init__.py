"""Built-in workloads in JAX; imported only in the process that runs one."""
