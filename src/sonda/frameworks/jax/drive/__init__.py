"""Built-in workloads in JAX."""
